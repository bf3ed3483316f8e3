// Kernels and libraries of the caller's as nodes of a graph.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/cuda.h"
#include "guest_kernels.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::cuda_external_op_test {
namespace {

using testing::contains;
using testing::message_of;

class CudaExternal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
  }
  // out = 3 in + 1, by a copy and two kernels that know nothing of graphsink.
  ExternalOp guest() {
    return {.name = "guest", .outputs = {{i32, {}}}, .cuda = [this](CudaArgs& a) {
              ++calls_;
              (void)cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), sizeof(int), cudaMemcpyDeviceToDevice, a.stream());
              testing::guest_affine(a.stream(), a.out<int>(0), 3, 0);
              testing::guest_add(a.stream(), a.out<int>(0), 1);
            }};
  }
  // The log of steps whose state, at first 1, is op(state), which none of them launches. `next` is what the op
  // computes.
  static std::string log_of_steps(ExternalOp op, int (*next)(int)) {
    std::string log;
    Graph g;
    Variable state("state", Tensor::scalar<std::int32_t>(1));
    assign(state, external_op(std::move(op), {g.value(state)})[0]);
    Program p = compile(
        g, {.target = cuda(0), .log = [&](LogLevel, std::string_view message) { log += std::string(message) + "\n"; }});
    int expected = 1;
    for (int i = 0; i < 8; ++i) {
      p.run(sink);
      expected = next(expected);
      EXPECT_EQ(state.read().at(0), expected);
    }
    EXPECT_EQ(p.counters().graph_launches, 0u);
    return log;
  }
  static int guest_number(int x) { return 3 * x + 1; }  // what guest() computes
  int calls_ = 0;
};

TEST_F(CudaExternal, IsCapturedWithTheRestOfTheStep) {
  Graph g;
  Value x = g.input("x", i32, {});
  g.output("y", external_op(guest(), {x + 1})[0] * 2);
  Program p = compile(g, {.target = cuda(0), .require_whole_graph = true});
  for (int i = 0; i < 6; ++i) {
    p.write(x, Tensor::scalar<std::int32_t>(i));
    p.run(i == 0 ? interactive_serial : sink);
    EXPECT_EQ(p.output("y").at(0), 2 * (3 * (i + 1) + 1));
  }
  EXPECT_EQ(calls_, 2) << "once op by op, once for the capture";
  EXPECT_EQ(p.counters().graph_launches, 5u);
  EXPECT_EQ(p.counters().fallbacks, 0u);
}

// A graph that keeps memory cannot be launched again.
TEST_F(CudaExternal, MemoryThatItKeepsIsAReasonNotToSink) {
  std::vector<void*> kept;
  ExternalOp op = guest();
  op.name = "keeps";
  op.cuda = [&kept, work = op.cuda](CudaArgs& a) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(a.stream(), &status);
    void* scratch = nullptr;
    (void)cudaMallocAsync(&scratch, 64, a.stream());
    if (status == cudaStreamCaptureStatusNone) kept.push_back(scratch);
    work(a);
  };
  const std::string log = log_of_steps(std::move(op), guest_number);
  for (const char* part :
       {"keeps: ", "it allocates memory in stream order 1 time and frees it 0 times", "remedy: free what"}) {
    EXPECT_TRUE(contains(log, part)) << log;
  }
  for (void* memory : kept) EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

// Behind the call that breaks a capture all others fail, too. The reason names the first.
TEST_F(CudaExternal, TheCallThatBreaksACaptureIsNamed) {
  ExternalOp op = guest();
  op.name = "allocates";
  op.cuda = [work = op.cuda](CudaArgs& a) {
    void* scratch = nullptr;
    if (cudaMalloc(&scratch, 64) == cudaSuccess) (void)cudaFree(scratch);
    work(a);
  };
  const std::string log = log_of_steps(std::move(op), guest_number);
  for (const char* part : {"allocates: cuMemAlloc returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "remedy: "}) {
    EXPECT_TRUE(contains(log, part)) << log;
  }
}

// What it gives to a stream of its own is missing from launches. In a capture it runs at once, in no order with the
// step: so the op writes to other memory then, and the numbers of the steps are certain.
TEST_F(CudaExternal, WorkOnAStreamOfItsOwnIsAReasonNotToSink) {
  cudaStream_t own = nullptr;
  int* scratch = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&scratch), sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
  ExternalOp op{.name = "elsewhere", .outputs = {{i32, {}}}, .cuda = [own, scratch](CudaArgs& a) {
                  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
                  (void)cudaStreamIsCapturing(a.stream(), &status);
                  const bool is_live = status == cudaStreamCaptureStatusNone;
                  int* out = is_live ? a.out<int>(0) : scratch;
                  if (is_live) (void)cudaStreamSynchronize(a.stream());
                  (void)cudaMemcpyAsync(out, a.in<void>(0), sizeof(int), cudaMemcpyDeviceToDevice, own);
                  testing::guest_add(own, out, 1);
                  if (is_live) (void)cudaStreamSynchronize(own);
                }};
  const std::string log = log_of_steps(std::move(op), [](int x) { return x + 1; });
  EXPECT_TRUE(contains(log, "elsewhere: it enqueued nothing on the stream that it was given")) << log;
  EXPECT_TRUE(contains(log, "has run meanwhile, in no order with the step")) << log;
  EXPECT_TRUE(contains(log, "CudaArgs::stream()")) << log;
  EXPECT_EQ(cudaStreamSynchronize(own), cudaSuccess);
  EXPECT_EQ(cudaFree(scratch), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
}

// A launch would copy what is on the stack then.
TEST_F(CudaExternal, ACopyOfALocalVariableIsAReasonNotToSink) {
  std::string log;
  int step = 0;
  Graph g;
  Variable state("state", Tensor::scalar<std::int32_t>(0));
  ExternalOp op{.name = "copies", .outputs = {{i32, {}}}, .cuda = [&step](CudaArgs& a) {
                  const int local = step;
                  (void)cudaMemcpyAsync(a.out<void>(0), &local, sizeof local, cudaMemcpyHostToDevice, a.stream());
                }};
  assign(state, g.value(state) + external_op(std::move(op), {g.value(state)})[0]);
  Program p = compile(
      g, {.target = cuda(0), .log = [&](LogLevel, std::string_view message) { log += std::string(message) + "\n"; }});
  int sum = 0;
  for (; step < 8; ++step) {
    p.run(sink);
    sum += step;
    EXPECT_EQ(state.read().at(0), sum);
  }
  EXPECT_EQ(p.counters().graph_launches, 0u);
  EXPECT_TRUE(contains(log, "copies: it copies from 0x")) << log;
  EXPECT_TRUE(contains(log, "a variable of a function that has returned")) << log;
}

TEST_F(CudaExternal, MayBeInALoop) {
  Graph g;
  Value x = g.input("x", i32, {});
  auto end = while_(
      {x}, [](const Value& v) { return v < 1000; }, [&](const Value& v) { return external_op(guest(), {v})[0]; });
  g.output("y", end[0]);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, Tensor::scalar<std::int32_t>(1));
  int expected = 1;
  while (expected < 1000) expected = 3 * expected + 1;
  for (Mode mode : testing::kModes) {
    p.run(mode);
    EXPECT_EQ(p.output("y").at(0), expected) << to_string(mode);
  }
}

// The body for the device is taken on a GPU, that for the CPU by a program for the CPU, or by request.
TEST_F(CudaExternal, ChoosesTheFunctionByPlace) {
  for (bool on_host : {false, true}) {
    Graph g;
    Value x = g.input("x", i32, {});
    ExternalOp op = guest();
    op.cpu = [](const CpuArgs& a) { *a.out<int>(0) = *a.in<int>(0) - 1; };
    g.output("y", external_op(std::move(op), {x}, on_host ? on_cpu : Placement())[0]);
    Program p = compile(g, {.target = cuda(0)});
    p.write(x, Tensor::scalar<std::int32_t>(5));
    p.run();
    EXPECT_EQ(p.output("y").at(0), on_host ? 4.0 : 16.0);
  }
}

TEST_F(CudaExternal, WhatCannotBeCapturedSaysSo) {
  Graph g;
  Value x = g.input("x", i32, {});
  ExternalOp op = guest();
  op.cuda = [inner = op.cuda](CudaArgs& a) {
    inner(a);
    (void)cudaStreamSynchronize(a.stream());
  };
  op.traits = {.capturable = false};
  g.output("y", external_op(std::move(op), {x + 1})[0] * 2);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, Tensor::scalar<std::int32_t>(1));
  for (int i = 0; i < 3; ++i) p.run(sink);
  EXPECT_EQ(p.output("y").at(0), 14.0);
  EXPECT_EQ(p.counters().fallbacks, 0u);
  EXPECT_TRUE(contains(p.explain(), "guest"));
}

TEST_F(CudaExternal, WhatItThrowsIsAnErrorOfRun) {
  Graph g;
  Value x = g.input("x", i32, {});
  ExternalOp op = guest();
  op.cuda = [](CudaArgs&) { throw std::runtime_error("no such table"); };
  g.output("y", external_op(std::move(op), {x})[0]);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, Tensor::scalar<std::int32_t>(1));
  const std::string message = message_of([&] { p.run(); });
  for (const char* word : {"guest", "its body threw: no such table", "cuda_external_op_test.cpp:"})
    EXPECT_TRUE(contains(message, word)) << message;
}

TEST_F(CudaExternal, HasNoFunctionForAProgramOnTheCpu) {
  Graph g;
  Value x = g.input("x", i32, {});
  g.output("y", external_op(guest(), {x})[0]);
  const std::string message = message_of([&] { compile(g); });
  EXPECT_TRUE(contains(message, "guest")) << message;
  EXPECT_TRUE(contains(message, "cuda_external_op_test.cpp:")) << message;
}

TEST_F(CudaExternal, OnTheHostSaysWhatItsCallsCost) {
  Graph g;
  Value x = g.input("x", i32, {});
  ExternalOp op;
  op.name = "guest on the host";
  op.outputs = {{i32, {}}};
  op.cpu = [](const CpuArgs& a) { *a.out<std::int32_t>(0) = *a.in<std::int32_t>(0); };
  op.call_cost = "10 us for a lock";
  g.output("y", external_op(std::move(op), {x + 1})[0] * 2);
  const Program p = compile(g, {.target = cuda(0)});
  const std::vector<Reason> reasons = p.plan().reasons;
  const auto is_priced = [](const Reason& reason) { return reason.cost.ends_with(", 10 us for a lock"); };
  EXPECT_EQ(std::count_if(reasons.begin(), reasons.end(), is_priced), 1) << p.explain();
}

}  // namespace
}  // namespace graphsink::cuda_external_op_test
