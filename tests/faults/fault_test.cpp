// What a failing CUDA call must not do, one by one; fault_loop_test.cpp makes all of them fail.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "api/plan_of.h"
#include "busy_time.h"
#include "device/cuda/open.h"
#include "fault_fixture.h"
#include "fault_harness.h"
#include "graphsink/cuda.h"
#include "test_ops.h"

namespace graphsink::fault_test {
namespace {

using testing::busy_share;
using testing::contains;
using testing::Fault;
using testing::infer_like_first;
using testing::LogText;
using testing::message_of;
using testing::TwoKernelCommit;

TEST_F(Fault, AReadThatFailsLosesNoRecords) {
  TwoKernelCommit model;
  model.p.run(interactive);
  model.p.sync();
  const char* call = "cudaStreamSynchronize";  // the values do not need it, sync() does
  emu::fail(call, 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { (void)model.p.records("loss"); }), call));
  EXPECT_EQ(model.p.records("loss"), (std::vector<float>{2}));
}

TEST_F(Fault, PollAndTryReadWaitForNothingAndCopyNothing) {
  TwoKernelCommit model;
  for (Mode mode : {interactive, sink, sink}) {
    model.p.run(mode);
    emu::reset_calls();
    std::size_t polls = 1;
    while (!model.p.poll()) ++polls;
    EXPECT_EQ(model.p.try_records("loss").size(), 1u);
    EXPECT_EQ(emu::calls("cudaStreamQuery"), polls);
    // Besides the mode of captures, which poll() sets and restores, nothing else.
    EXPECT_EQ(emu::total_calls(), polls + emu::calls("cudaThreadExchangeStreamCaptureMode"));
  }
}

TEST_F(Fault, APollThatFailsSaysSoAndLosesNothing) {
  TwoKernelCommit model;
  model.p.run(interactive);
  emu::fail("cudaStreamQuery", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { (void)model.p.poll(); }), "cudaStreamQuery returned"));
  while (!model.p.poll()) {
  }
  EXPECT_EQ(model.p.try_records("loss"), (std::vector<float>{2}));
}

TEST_F(Fault, AWriteThatFailsCountsAsNone) {
  TwoKernelCommit model;
  emu::fail("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  EXPECT_THROW(model.p.write(model.x, std::vector<float>{5}), Error);
  EXPECT_TRUE(contains(message_of([&] { model.p.run(interactive); }), "nothing was written to \"x\""));
  model.p.write(model.x, std::vector<float>{5});
  model.p.run(interactive);
  EXPECT_EQ(model.p.records("loss"), (std::vector<float>{10}));
}

// Streams that were not joined yet when issuing failed.
TEST_F(Fault, WhatAFailedStepLeavesOnOtherStreamsIsWaitedFor) {
  Graph g;
  Variable state("state", Tensor({0.5f}));
  Value x = g.feed("x", f32, {1}), left = x, right = g.value(state);
  for (int i = 0; i < 4; ++i) left = left * 0.75 + 0.5, right = right * 0.5 - 0.25;
  assign(state, left + right);
  Program p = compile(g, {.target = cuda(0)});
  ASSERT_GT(plan_of(p).streams, 1);
  p.write(x, std::vector<float>{1});
  emu::reset_calls();
  p.run(interactive_parallel);
  p.sync();
  auto kernels = static_cast<int>(emu::calls("cudaLaunchKernelExC"));
  for (int nth = 1; nth <= kernels; ++nth) {
    emu::fail("cudaLaunchKernelExC", nth, cudaErrorLaunchOutOfResources);
    EXPECT_THROW(p.run(interactive_parallel), Error);
    (void)message_of([&] { p.sync(); });
    EXPECT_EQ(emu::outstanding(), 0u) << "kernel " << nth;
    state.write(Tensor({0.5f}));
  }
}

// The wait of sync() fails, not the step: what the step has to say is not lost.
TEST_F(Fault, AFailedWaitDoesNotHideAFailedStep) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  g.record("y", sum(emit(testing::cpu_refuse_negative, {x})[0]));
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{-1});
  p.run(interactive);
  emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "cudaStreamSynchronize returned"));
  EXPECT_TRUE(contains(message_of([&] { p.sync(); }), "its body threw: negative input"));
  p.sync();
}

// A copy whose end no event tells is still under way: its staging memory may not be used for the next.
TEST_F(Fault, StagingMemoryIsNotReusedWhileACopyReadsIt) {
  auto device = open_cuda_device(0);
  auto stream = device->make_stream();
  Memory memory = device->allocate(8 * sizeof(int));
  auto* numbers = static_cast<int*>(memory.get());
  int first = 1;
  emu::fail("cudaEventRecord", 1, cudaErrorInvalidValue);
  EXPECT_THROW(device->upload(*stream, numbers, &first, sizeof first), Error);
  for (int i = 1; i < 8; ++i) {
    int value = 10 * i;
    device->upload(*stream, numbers + i, &value, sizeof value);
  }
  int seen[8] = {};
  device->copy(*stream, seen, numbers, sizeof seen);
  device->wait(*stream);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[7], 70);
}

// A body that does not look at the codes of its calls: the last error tells that the device is lost, which is no reason
// to run the step in another way.
TEST_F(Fault, ABodyThatLosesTheDeviceInACaptureIsAnError) {
  std::string log;
  Graph g;
  Variable state("state", Tensor::scalar<std::int32_t>(1));
  ExternalOp op{.name = "careless", .outputs = {{i32, {}}}, .cuda = [](CudaArgs& a) {
                  (void)cudaMemcpyAsync(a.out<void>(0), a.in<void>(0), sizeof(int), cudaMemcpyDeviceToDevice,
                                        a.stream());
                }};
  assign(state, external_op(std::move(op), {g.value(state)})[0]);
  Program p = compile(
      g, {.target = cuda(0), .log = [&](LogLevel, std::string_view message) { log += std::string(message) + "\n"; }});
  p.run(interactive_serial);
  p.sync();
  emu::fail("cudaMemcpyAsync", 1, cudaErrorIllegalAddress);
  const std::string message = message_of([&] { p.run(sink); });
  EXPECT_TRUE(contains(message, "careless: a call of its body returned cudaErrorIllegalAddress")) << message;
  EXPECT_TRUE(contains(message_of([&] { p.run(sink); }), "the device is lost: careless: "));
  EXPECT_FALSE(contains(log, "its capture failed")) << log;
}

TEST_F(Fault, WhatADestructorCannotReleaseIsLogged) {
  auto device = open_cuda_device(0);
  auto stream = device->make_stream();
  LogText log;
  emu::fail("cudaEventDestroy", 1, cudaErrorInvalidValue);
  stream.reset();
  EXPECT_TRUE(contains(log.take(), "cudaEventDestroy returned cudaErrorInvalidValue"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the user's next check would meet it";
}

// Every message of a program's life goes to its function, from the device and from what outlives the program too.
TEST_F(Fault, AllMessagesGoToTheLogOfTheProgram) {
  const auto kWithTheProgram = {
      "cudaGraphExecDestroy", "cudaGraphDestroy", "cudaStreamDestroy", "cudaEventDestroy", "cudaFree",
      "cudaFreeHost",         "cuMemUnmap"};
  const auto kWithTheVariable = {"cudaFree", "cublasLtMatmulDescDestroy", "cublasLtDestroy"};
  LogText spdlog_text;
  std::string seen;
  LogFunction keep = [&](LogLevel, std::string_view message) { seen += std::string(message) + "\n"; };
  auto expect_seen = [&](std::string_view part) {
    EXPECT_TRUE(contains(seen, part)) << part << " in: " << seen;
    seen.clear();
  };
  Graph g;
  Variable w("w", Tensor(f32, {3, 2}));
  Value x = g.feed("x", f32, {4, 3});
  g.record("y", sum(if_(
                    sum(x) > 0.0, [&] { return matmul(x, w); }, [&] { return matmul(x, w) * 2.0; })));
  {
    Program p = compile(g, {.target = cuda(0), .log = keep});
    p.write(x, std::vector<float>(12, 1.0f));
    emu::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
    p.bind();
    expect_seen("the kernels of a product are loaded by its first use");
    emu::fail("cudaStreamBeginCapture", 1, cudaErrorInvalidValue);
    p.run();
    expect_seen("a step runs op by op, its capture failed");
    p.run();
    for (const char* call : kWithTheProgram) emu::fail(call, 1, cudaErrorInvalidValue);
  }
  for (const char* call : kWithTheProgram) EXPECT_TRUE(contains(seen, call)) << call << " in: " << seen;
  seen.clear();
  // The home of the Variable keeps the device.
  for (const char* call : kWithTheVariable) emu::fail(call, 1, cudaErrorInvalidValue);
  w = Variable();
  g = Graph();
  x = Value();
  for (const char* call : kWithTheVariable) EXPECT_TRUE(contains(seen, call)) << call << " in: " << seen;
  EXPECT_EQ(spdlog_text.take(), "");
}

#if !defined(__SANITIZE_ADDRESS__)  // it leaks on purpose
TEST_F(Fault, AProgramThatCannotWaitKeepsItsMemory) {
  LogText log;
  std::size_t before = emu::live_objects().total();
  {
    TwoKernelCommit model;
    model.p.run(interactive);
    before = emu::live_objects().total();
    emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue, true);
    emu::fail("cudaStreamQuery", 1, cudaErrorInvalidValue, true);
  }
  EXPECT_TRUE(contains(log.take(), "keeps its memory"));
  EXPECT_EQ(emu::live_objects().total(), before);
}
#endif

// Bodies on the host go on when the context is lost, and use what the program owns.
struct LongBody {
  static inline std::atomic<bool> begun = false, may_end = false;
  static void run(const CpuArgs& a) {
    begun = true;
    may_end.wait(false);
    *a.out<float>(0) = 0;
  }
};
const OpDef long_op{.name = "long", .infer = infer_like_first, .bodies = {LongBody::run}};

TEST_F(Fault, ADestructorSleepsUntilBodiesOnTheHostHaveEnded) {
  LogText log;
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(long_op, {x})[0]);
  std::optional<Program> p = compile(g, {.target = cuda(0)});
  p->write(x, std::vector<float>{1});
  p->run(interactive_serial);
  while (!LongBody::begun) (void)p->poll();
  emu::fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  std::thread ends([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    LongBody::may_end = true;
    LongBody::may_end.notify_all();
  });
  EXPECT_LT(busy_share([&] { p.reset(); }), 0.2);
  EXPECT_TRUE(LongBody::may_end) << "it waited";
  ends.join();
}

TEST_F(Fault, AProgramWaitsByOtherMeansBeforeItFrees) {
  LogText log;
  std::size_t before = emu::live_objects().total();
  {
    TwoKernelCommit model;
    model.p.run(interactive);
    emu::fail("cudaStreamSynchronize", 1, cudaErrorInvalidValue, true);
  }
  EXPECT_TRUE(contains(log.take(), "cudaStreamSynchronize returned"));
  EXPECT_EQ(emu::live_objects().total(), before);
}

// What is copied to the host before a step is copied again where that could not be issued.
TEST_F(Fault, AnInvariantCopyThatFailsIsMadeByTheNextRun) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(testing::cpu_plus_one, {x})[0]);
  Program p = compile(g, {.target = cuda(0)});
  p.write(x, std::vector<float>{1});
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(0), 2.0);
  p.write(x, std::vector<float>{5});
  emu::reset_calls();
  emu::fail("cudaMemcpyAsync", 1, cudaErrorInvalidValue);
  EXPECT_TRUE(contains(message_of([&] { p.run(interactive); }), "cudaMemcpyAsync returned"));
  EXPECT_EQ(emu::injected().size(), 1u);
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(0), 6.0);
}

}  // namespace
}  // namespace graphsink::fault_test
