// The rules of stream capture, one code each.
#include <functional>
#include <thread>

#include "test_support.h"

namespace emu_test::capture_test {
namespace {

class CaptureTest : public EmulatorTest {
 protected:
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_OK(cudaStreamBeginCapture(stream_, mode));
  }
  // Ends the capture, which must give this code and no graph.
  void expect_lost(cudaError_t code) {
    cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(this);
    EXPECT_CUDA(code, cudaStreamEndCapture(stream_, &graph));
    EXPECT_EQ(nullptr, graph);
    EXPECT_EQ(cudaStreamCaptureStatusNone, status(stream_));
    cudaGetLastError();
  }
  cudaStreamCaptureStatus status(cudaStream_t stream) {
    cudaStreamCaptureStatus result = cudaStreamCaptureStatusInvalidated;
    EXPECT_EQ(cudaSuccess, cudaStreamIsCapturing(stream, &result));
    return result;
  }
  void expect_fine() {
    cudaGraph_t graph = nullptr;
    ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
    ASSERT_OK(cudaGraphDestroy(graph));
  }
};

TEST_F(CaptureTest, RunsNothingWhileCapturing) {
  int* target = device(std::vector<int>{0});
  int source = 7;
  emu::set_seed(5);
  begin();
  emu::reset_calls();
  ASSERT_OK(launch_set(stream_, target, 5));
  ASSERT_OK(cudaMemcpyAsync(target, &source, sizeof source, cudaMemcpyHostToDevice, stream_));
  ASSERT_OK(cudaMemsetAsync(target, 1, 4, stream_));
  bool called = false;
  ASSERT_OK(cudaLaunchHostFunc(
      stream_, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called));
  EXPECT_EQ(0u, emu::outstanding());
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  const emu::Executed none = emu::executed();
  EXPECT_EQ(0u, none.kernels + none.copies + none.fills + none.host_functions);
  EXPECT_FALSE(called);
  EXPECT_EQ(0, host(target, 1)[0]);
  launch_and_destroy(graph);
  EXPECT_TRUE(called);
  EXPECT_EQ(0x01010101, host(target, 1)[0]);
}

TEST_F(CaptureTest, ReadsPageableSourcesAtReplay) {
  int* target = device<int>(1);
  int source = 1;
  begin();
  ASSERT_OK(cudaMemcpyAsync(target, &source, sizeof source, cudaMemcpyHostToDevice, stream_));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  source = 2;
  launch_and_destroy(graph);
  EXPECT_EQ(2, host(target, 1)[0]);
}

TEST_F(CaptureTest, RefusesUnsafeCallsByTheModeRule) {
  void* pointer = nullptr;
  using Call = std::function<cudaError_t()>;
  const cudaEvent_t plain = event();
  ASSERT_OK(cudaEventRecord(plain, other_));
  const Call calls[] = {[&] { return cudaMalloc(&pointer, 0); },       [] { return cudaFree(nullptr); },
                        [&] { return cudaMallocHost(&pointer, 0); },   [&] { return cudaHostAlloc(&pointer, 0, 0); },
                        [&] { return cudaStreamSynchronize(other_); }, [&] { return cudaStreamQuery(other_); },
                        [&] { return cudaEventQuery(plain); }};
  for (const Call& call : calls) {
    begin();
    EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, call());
    EXPECT_EQ(cudaStreamCaptureStatusInvalidated, status(stream_));
    EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, launch_set(stream_, nullptr, 1));
    expect_lost(cudaErrorStreamCaptureInvalidated);
    begin(cudaStreamCaptureModeRelaxed);
    EXPECT_CUDA(cudaSuccess, call());
    expect_fine();
    begin();
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    ASSERT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_CUDA(cudaSuccess, call());
    ASSERT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(cudaStreamCaptureModeRelaxed, mode);
    expect_fine();
  }
}

TEST_F(CaptureTest, LetsSynchronousCopiesPassBesideAStreamThatDoesNotBlock) {
  int* memory = device<int>(2);
  int value = 7;
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(cudaSuccess, cudaMemset(memory + 1, 0, sizeof(int)));
  EXPECT_CUDA(cudaSuccess, cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaSuccess, cudaMemcpy(memory + 1, memory, sizeof value, cudaMemcpyDeviceToDevice));
  EXPECT_EQ((std::vector<int>{7, 7}), host(memory, 2));
  expect_fine();
}

TEST_F(CaptureTest, DestroysAnExecAsItMakesOne) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  begin();
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaGraphExecDestroy(exec)) << "also once the capture is lost";
  expect_lost(cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_CUDA(cudaSuccess, cudaGraphLaunch(exec, other_));
  EXPECT_CUDA(cudaSuccess, cudaGraphDestroy(graph));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_CUDA(cudaSuccess, cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  expect_fine();
}

TEST_F(CaptureTest, DoesNotTellTheDeviceOfACapturingStream) {
  int device = -1;
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaSuccess, cudaStreamGetDevice(other_, &device));
  EXPECT_EQ(0, device);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamGetDevice(stream_, &device));
  expect_lost(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, IsLostByALaunchThatTheDriverRefuses) {
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorInvalidValue, launch_divergent(stream_, 4096, 0));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  // Of a function it does not know, the runtime tells the driver nothing.
  int unknown = 0;
  const cudaLaunchConfig_t config{dim3(1), dim3(1), 0, stream_, nullptr, 0};
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaLaunchKernelExC(&config, &unknown, nullptr));
  expect_fine();
}

TEST_F(CaptureTest, ProtectsOtherThreadsByMode) {
  const auto in_thread = [](auto call) {
    cudaError_t code = cudaSuccess;
    std::thread([&] { code = call(); }).join();
    return code;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_CUDA(cudaSuccess, in_thread([] { return cudaFree(nullptr); }));
  expect_fine();
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, in_thread([] { return cudaFree(nullptr); }));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, in_thread([] { return cudaDeviceSynchronize(); }));
  expect_lost(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, AllowsHarmlessCalls) {
  begin(cudaStreamCaptureModeGlobal);
  int value = 0;
  size_t free = 0, total = 0;
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGetDeviceCount(&value));
  ASSERT_OK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
  ASSERT_OK(cudaMemGetInfo(&free, &total));
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaGraphDestroy(graph));
  event();
  expect_fine();
}

TEST_F(CaptureTest, RefusesToWaitForTheCapturingStream) {
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream_));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream_));
  expect_lost(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, RefusesToQueryCapturedEvents) {
  const cudaEvent_t captured = event();
  begin(cudaStreamCaptureModeRelaxed);
  ASSERT_OK(cudaEventRecord(captured, stream_));
  EXPECT_CUDA(cudaErrorCapturedEvent, cudaEventQuery(captured));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  EXPECT_CUDA(cudaErrorCapturedEvent, cudaEventSynchronize(captured));
  begin();
  ASSERT_OK(cudaEventRecord(captured, stream_));
  float milliseconds = 0;
  EXPECT_CUDA(cudaErrorCapturedEvent, cudaEventElapsedTime(&milliseconds, captured, captured));
  expect_fine();  // the one question that does no harm
  ASSERT_OK(cudaEventRecord(captured, stream_));
  EXPECT_CUDA(cudaSuccess, cudaEventSynchronize(captured));
}

TEST_F(CaptureTest, IsolatesTheCapture) {
  const cudaEvent_t outside = event();
  ASSERT_OK(cudaEventRecord(outside, other_));
  begin();
  EXPECT_CUDA(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream_, outside, 0));
  expect_lost(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, DoesNotMergeCaptures) {
  const cudaEvent_t mine = event();
  begin();
  ASSERT_OK(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(cudaEventRecord(mine, stream_));
  EXPECT_CUDA(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(other_, mine, 0));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(other_, &graph));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamWaitEvent(other_, mine, 0));
}

TEST_F(CaptureTest, EndsOnlyOnTheOriginAndJoined) {
  int* target = device<int>(1);
  begin();
  join(stream_, other_);
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(other_, &graph));
  EXPECT_EQ(cudaStreamCaptureStatusInvalidated, status(other_));
  expect_lost(cudaErrorStreamCaptureInvalidated);
  begin();
  join(stream_, other_);
  ASSERT_OK(launch_set(other_, target, 1));
  expect_lost(cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaStreamCaptureStatusNone, status(other_));
}

TEST_F(CaptureTest, EndsOnTheThreadThatBegan) {
  const auto end_elsewhere = [&](cudaGraph_t& graph) {
    cudaError_t code = cudaSuccess;
    std::thread([&] { code = cudaStreamEndCapture(stream_, &graph); }).join();
    return code;
  };
  cudaGraph_t graph = nullptr;
  begin();
  EXPECT_CUDA(cudaErrorStreamCaptureWrongThread, end_elsewhere(graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_EQ(cudaStreamCaptureStatusNone, status(stream_));
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaSuccess, end_elsewhere(graph));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(CaptureTest, ForbidsTheLegacyStreamBesideABlockingCapture) {
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  int* target = device<int>(1);
  cudaGraph_t graph = nullptr;
  cudaStreamCaptureStatus ignored;
  ASSERT_OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing(nullptr, &ignored));
  EXPECT_EQ(cudaStreamCaptureStatusActive, status(blocking));
  EXPECT_CUDA(cudaErrorStreamCaptureImplicit, cudaMemset(target, 0, 4));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
  ASSERT_OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorStreamCaptureImplicit, launch_set(nullptr, target, 1));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
  ASSERT_OK(cudaStreamDestroy(blocking));
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaSuccess, launch_set(nullptr, target, 1));
  expect_fine();
}

TEST_F(CaptureTest, EndsWhenTheStreamThatBeganIsDestroyed) {
  cudaStream_t origin = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
  const emu::LiveObjects before = emu::live_objects();
  ASSERT_OK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal));
  join(origin, other_);
  ASSERT_OK(cudaStreamDestroy(origin));
  EXPECT_EQ(before.streams - 1, emu::live_objects().streams);
  EXPECT_EQ(before.graphs, emu::live_objects().graphs);
  EXPECT_EQ(cudaStreamCaptureStatusNone, status(other_)) << "it had joined the capture";
  void* memory = nullptr;
  ASSERT_OK(cudaMalloc(&memory, 4));
  ASSERT_OK(cudaFree(memory));
}

TEST_F(CaptureTest, GoesOnWithoutADestroyedStreamThatJoinedIt) {
  int* target = device(std::vector<int>{0});
  for (const bool is_joined_again : {true, false}) {
    cudaStream_t fork = nullptr;
    ASSERT_OK(cudaStreamCreateWithFlags(&fork, cudaStreamNonBlocking));
    begin();
    join(stream_, fork);
    ASSERT_OK(launch_set(fork, target, 7));
    if (is_joined_again) join(fork, stream_);
    ASSERT_OK(cudaStreamDestroy(fork));
    EXPECT_EQ(cudaStreamCaptureStatusActive, status(stream_));
    if (!is_joined_again) {
      expect_lost(cudaErrorStreamCaptureUnjoined);
      continue;
    }
    cudaGraph_t graph = nullptr;
    ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
    launch_and_destroy(graph);
    EXPECT_EQ(7, host(target, 1)[0]);
  }
}

TEST_F(CaptureTest, WhatWasJoinedStaysSoWhenItIsTakenOutOfTheDependencies) {
  int* target = device(std::vector<int>{0});
  begin();
  join(stream_, other_);
  ASSERT_OK(launch_set(other_, target, 7));
  join(other_, stream_);
  ASSERT_OK(cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  launch_and_destroy(graph);
  EXPECT_EQ(7, host(target, 1)[0]);
}

TEST_F(CaptureTest, KeepsACapturingStreamWhereToldSo) {
  begin();
  emu::set_destroy_ends_capture(false);
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamDestroy(stream_));
  emu::set_destroy_ends_capture(true);
  EXPECT_EQ(cudaStreamCaptureStatusInvalidated, status(stream_));
  expect_lost(cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureTest, NeedsNoPlaceForItsGraph) {
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaStreamBeginCaptureToGraph(stream_, graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaSuccess, cudaStreamEndCapture(stream_, nullptr));
  EXPECT_EQ(cudaStreamCaptureStatusNone, status(stream_));
  ASSERT_OK(cudaGraphDestroy(graph));
  begin();
  cudaStreamCaptureStatus ignored;
  ASSERT_OK(cudaStreamGetCaptureInfo(stream_, &ignored, nullptr, &graph, nullptr, nullptr, nullptr));
  EXPECT_CUDA(cudaSuccess, cudaStreamEndCapture(stream_, nullptr));
  EXPECT_EQ(cudaStreamCaptureStatusNone, status(stream_));
  ASSERT_OK(cudaGraphDestroy(graph)) << "it lives, and whoever knows it may have it";
}

TEST_F(CaptureTest, ChecksItsArguments) {
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaStreamBeginCapture(stream_, static_cast<cudaStreamCaptureMode>(3)));
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamEndCapture(stream_, &graph));
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, 0));
  const cudaEvent_t outside = event();
  EXPECT_CUDA(cudaErrorIllegalState, cudaEventRecordWithFlags(outside, stream_, cudaEventRecordExternal));
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamWaitEvent(stream_, outside, cudaEventWaitExternal));
  begin();
  EXPECT_CUDA(cudaErrorIllegalState, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  expect_fine();
}

TEST_F(CaptureTest, ForgetsItsPlaceInTheStream) {
  // After a capture the stream goes on behind what it did before.
  int *log = device<int>(2), *count = device(std::vector<int>{0});
  ASSERT_OK(launch_append(stream_, log, count, 1));
  begin();
  ASSERT_OK(launch_append(stream_, log, count, 9));
  expect_fine();
  ASSERT_OK(launch_append(stream_, log, count, 2));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<int>{1, 2}), host(log, 2));
}

}  // namespace
}  // namespace emu_test::capture_test
