// The fixture of the tests of the CUDA device. It makes scalars in device memory, calls small ops and makes captures.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_device_kernels.h"
#include "device/cuda/open.h"
#include "exec/issue/launch_queue.h"
#include "ir/bound_node.h"
#include "messages.h"

namespace graphsink::testing {

inline const OpDef host_double = {.name = "host_double",
                                  .bodies = {[](const CpuArgs& a) { *a.in_out<float>(1) = 2 * *a.in<float>(0); }}};
inline const OpDef host_throws = {
    .name = "host_throws", .bodies = {[](const CpuArgs&) { throw std::runtime_error("the file is not there"); }}};

inline const OpDef host_throws_a_number = {.name = "host_throws_a_number",
                                           .bodies = {[](const CpuArgs&) { throw 42; }}};

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef GRAPHSINK_EMULATED
    ASSERT_GT(count_cuda_devices(), 0) << "a test before this one left an error on the software device";
#endif
    if (count_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device answers";
    device_ = open_cuda_device(0);
    stream_ = device_->make_stream();
  }

  // Returns the address of a new scalar in device memory.
  template <class T>
  T* make(T value) {
    memory_.push_back(device_->allocate(sizeof(T)));
    device_->upload(*stream_, memory_.back().get(), &value, sizeof(T));
    return static_cast<T*>(memory_.back().get());
  }
  template <class T>
  void set(T* address, T value) {
    device_->upload(*stream_, address, &value, sizeof(T));
  }
  template <class T>
  T get(const T* address) {
    T value{};
    device_->copy(*stream_, &value, address, sizeof(T));
    device_->wait(*stream_);
    return value;
  }

  const BoundNode& node(const OpDef& op, std::vector<void*> operands, Attrs attrs = {}, StepBlock* step = nullptr,
                        Where where = Where::current()) {
    Node& n = nodes_.emplace_back(Node{std::move(operands), std::move(attrs), {}});
    n.bound.op = &op;
    n.bound.attrs = &n.attrs;
    n.bound.pointers = n.operands.data();
    n.bound.inputs = static_cast<int>(n.operands.size());
    n.bound.step = step;
    n.bound.id = static_cast<int>(nodes_.size());
    n.bound.where = where;
    return n.bound;
  }
  // Makes a node whose CPU body runs, and reports exceptions in `status`.
  const BoundNode& host_node(const OpDef& op, std::vector<void*> operands, HostStatus& status,
                             Where where = Where::current()) {
    node(op, std::move(operands), {}, nullptr, where);
    nodes_.back().bound.status = &status;
    nodes_.back().bound.on_host = true;
    return nodes_.back().bound;
  }
  void call(Stream& stream, const OpDef& op, std::vector<void*> operands, Attrs attrs = Affine{},
            StepBlock* step = nullptr, Where where = Where::current()) {
    device_->call(stream, node(op, std::move(operands), std::move(attrs), step, where));
  }

  std::unique_ptr<CapturedGraph> capture(Streams streams, const std::function<void(Streams)>& issue) {
    try {
      device_->begin_capture(streams);
      issue(streams);
      return device_->end_capture(streams);
    } catch (...) {
      device_->leave_capture(streams);
      throw;
    }
  }
  std::unique_ptr<CapturedGraph> capture(const std::function<void(Stream&)>& issue) {
    Stream* const streams[] = {stream_.get()};
    return capture(streams, [&](Streams s) { issue(*s[0]); });
  }
  void loop(Stream& stream, const bool* predicate, const std::function<void(Stream&)>& body) {
    Stream* const streams[] = {&stream};
    device_->control(streams, TaskKind::loop, predicate, 1, [&](std::size_t, Streams s) { body(*s[0]); });
  }
  void branch(Stream& stream, const bool* predicate, const std::function<void(Stream&)>& then_body,
              const std::function<void(Stream&)>& else_body) {
    Stream* const streams[] = {&stream};
    device_->control(streams, TaskKind::branch, predicate, 2,
                     [&](std::size_t which, Streams s) { (which == 0 ? then_body : else_body)(*s[0]); });
  }
  // Checks that the streams of the test are live and execute work.
  void expect_usable() {
    float* x = make(1.0f);
    call(*stream_, affine, {x}, Affine{3, 0});
    EXPECT_EQ(get(x), 3.0f);
    auto captured = capture([&](Stream& s) { call(s, affine, {x}, Affine{1, 1}); });
    device_->launch(*stream_, *captured);
    EXPECT_EQ(get(x), 4.0f);
  }

  struct Node {
    std::vector<void*> operands;
    Attrs attrs;
    BoundNode bound;
  };
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::deque<Node> nodes_;
  std::vector<Memory> memory_;
};

}  // namespace graphsink::testing
