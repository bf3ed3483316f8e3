// What the CUDA device does when calls fail. Only the software device fails when told to.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "cuda_device_fixture.h"
#include "emulator.h"
#include "graphsink/cuda.h"
#include "ir/plan.h"

namespace graphsink::testing::cuda_fault_test {
namespace {

class FaultTest : public CudaDeviceTest {
 protected:
  void TearDown() override { emu::reset(); }
};

TEST_F(FaultTest, AFailedGrowthChangesNothing) {
  std::unique_ptr<Arena> arena = device_->reserve();
  arena->grow(1);
  auto* x = reinterpret_cast<float*>(arena->base());
  set(x, 5.0f);
  std::size_t size = arena->size();
  std::size_t blocks = emu::live_objects().physical_blocks;
  for (const char* function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    emu::fail(function, 1, cudaErrorMemoryAllocation);
    EXPECT_THROW(arena->grow(size + 1), Error) << function;
    EXPECT_EQ(arena->size(), size);
    EXPECT_EQ(emu::live_objects().physical_blocks, blocks) << function;
  }
  arena->grow(size + 1);
  EXPECT_EQ(get(x), 5.0f);
}

TEST_F(FaultTest, AfterAStickyErrorEveryCallSaysWhatHappenedFirst) {
  emu::fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  std::string message = message_of([&] { device_->wait(*stream_); });
  EXPECT_TRUE(contains(message, "cudaStreamSynchronize returned cudaErrorIllegalAddress")) << message;
  for (int i = 0; i < 2; ++i) {
    message = message_of([&] { device_->allocate(1); });
    EXPECT_TRUE(contains(message, "the device is lost: cudaStreamSynchronize returned cudaErrorIllegalAddress"));
    EXPECT_TRUE(contains(message, "remedy: restart the process")) << message;
  }
}

TEST_F(FaultTest, AStickyErrorWhileCapturingIsNotTransient) {
  float* x = make(1.0f);
  emu::fail("cudaLaunchKernelExC", 1, cudaErrorIllegalAddress);
  try {
    capture([&](Stream& s) { call(s, affine, {x}); });
    FAIL() << "nothing was thrown";
  } catch (const CaptureFailed&) {
    FAIL() << "a lost device is more than a failed capture";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "affine");
  }
  EXPECT_TRUE(contains(message_of([&] { device_->wait(*stream_); }), "the device is lost: affine: "));
}

// Each call of a capture fails once. The streams must be live afterwards, and nothing left behind.
TEST_F(FaultTest, AnyFailureLeavesTheStreamsUsable) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  bool* more = make(true);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  Stream* const streams[] = {stream_.get(), other.get()};
  auto attempt = [&] {
    return capture(streams, [&](Streams s) {
      call(*s[0], affine, {x});
      device_->make_wait(*s[1], *s[0]);
      device_->copy(*s[1], on_host, x, sizeof(float));
      device_->call(*s[1], host_node(host_double, {on_host, on_host + 1}, *static_cast<HostStatus*>(status.get())));
      device_->control(s.first(1), TaskKind::loop, more, 1, [&](std::size_t, Streams body) {
        branch(
            *body[0], more, [&](Stream& b) { call(b, affine, {x}); }, [](Stream&) {});
      });
      device_->make_wait(*s[0], *s[1]);
    });
  };
  attempt();
  auto are_live = [] { return emu::live_objects().graphs + emu::live_objects().execs; };
  std::size_t before = are_live();  // other tests may have left some
  std::size_t not_destroyed = 0;    // graphs whose destruction was made to fail
  int failures = 0;
  for (int n = 1;; ++n) {
    emu::reset_calls();
    emu::fail("*", n, cudaErrorUnknown);
    std::unique_ptr<CapturedGraph> captured;
    try {
      captured = attempt();
    } catch (const CaptureFailed&) {
      ++failures;
    }
    bool is_done = emu::total_calls() < static_cast<std::size_t>(n);
    emu::clear_faults();
    captured.reset();
    not_destroyed += emu::injected().count("cudaGraphDestroy");
    EXPECT_EQ(are_live() - before, not_destroyed) << "call " << n;
    set(x, 1.0f);
    device_->make_wait(*other, *stream_);
    call(*other, affine, {x}, Affine{1, 1});
    device_->make_wait(*stream_, *other);
    EXPECT_EQ(get(x), 2.0f) << "call " << n;
    if (is_done) break;
  }
  EXPECT_GT(failures, 40);
}

float pageable = 5;
const OpDef copies_pageable = {.name = "copies_pageable", .bodies = {[](CudaArgs& a) {
                                                            (void)cudaMemcpyAsync(a.in_out<float>(0), &pageable,
                                                                                  sizeof pageable,
                                                                                  cudaMemcpyHostToDevice, a.stream());
                                                          }}};

// How a driver says this is not known; the software device says it as cudaGraphInstantiateParams allows.
TEST_F(FaultTest, WhatTheDriverRefusesIsNamedByItsOp) {
  float* x = make(1.0f);
  bool* more = make(true);
  std::string message = message_of(
      [&] { capture([&](Stream& s) { loop(s, more, [&](Stream& body) { call(body, copies_pageable, {x}); }); }); });
  EXPECT_TRUE(contains(message, "copies_pageable: ")) << message;
  EXPECT_TRUE(contains(message, "at a memcpy node")) << message;
  expect_usable();
}

TEST_F(FaultTest, AGraphThatTheDriverRefusesWithoutAReasonSaysWhereTheReasonIs) {
  float* x = make(1.0f);
  for (cudaError_t code : {cudaErrorInvalidValue, cudaErrorNotSupported}) {
    emu::fail("cudaGraphInstantiateWithParams", 1, code);
    std::string message = message_of([&] { capture([&](Stream& s) { call(s, affine, {x}); }); });
    EXPECT_TRUE(contains(message, cudaGetErrorName(code))) << message;
    EXPECT_TRUE(contains(message, "remedy: run with CUDA_LOG_FILE=stderr to see the driver's reason")) << message;
    expect_usable();
  }
}

TEST_F(FaultTest, PinnedMemoryThatIsNotThereIsNamed) {
  emu::fail("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  std::string message = message_of([&] { device_->allocate_host(3 << 20); });
  EXPECT_TRUE(contains(message, "out of memory: cudaHostAlloc cannot pin 3.0 MiB of host memory")) << message;
  EXPECT_TRUE(contains(message, "remedy: ")) << message;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  expect_usable();
}

}  // namespace
}  // namespace graphsink::testing::cuda_fault_test
