// Calls that the library does not make and that programs around it do.
#include <numeric>
#include <thread>

#include "test_support.h"

namespace emu_test::guest_call_test {
namespace {

class GuestCallTest : public EmulatorTest {
 protected:
  void TearDown() override {
    EmulatorTest::TearDown();
    emu::set_device_count(1);
  }
};

std::vector<int> counting(std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

constexpr std::size_t kInt = sizeof(int);

// Columns 1 and 2 of a matrix of 3 rows and 4 columns.
const std::vector<int> kColumns{1, 2, 5, 6, 9, 10};

TEST_F(GuestCallTest, CopiesRows) {
  int* matrix = device(counting(12));
  int* columns = device<int>(6);
  ASSERT_OK(cudaMemcpy2DAsync(columns, 2 * kInt, matrix + 1, 4 * kInt, 2 * kInt, 3, cudaMemcpyDeviceToDevice, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(kColumns, host(columns, 6));
  std::vector<int> values = counting(12);
  // Pageable memory is read before the call returns, and written when it does.
  ASSERT_OK(
      cudaMemcpy2DAsync(columns, 2 * kInt, values.data(), 4 * kInt, 2 * kInt, 3, cudaMemcpyHostToDevice, stream_));
  values.assign(12, -1);
  ASSERT_OK(
      cudaMemcpy2DAsync(values.data(), 4 * kInt, columns, 2 * kInt, 2 * kInt, 3, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ((std::vector<int>{0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1}), values);
  ASSERT_OK(cudaMemcpy2D(values.data(), 2 * kInt, matrix + 1, 4 * kInt, 2 * kInt, 3, cudaMemcpyDeviceToHost));
  EXPECT_EQ(kColumns, std::vector<int>(values.begin(), values.begin() + 6));
}

TEST_F(GuestCallTest, CapturesACopyOfRows) {
  int* matrix = device(counting(12));
  int* columns = device(std::vector<int>(6, 0));
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(cudaMemcpy2DAsync(columns, 2 * kInt, matrix + 1, 4 * kInt, 2 * kInt, 3, cudaMemcpyDeviceToDevice, stream_));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  std::size_t count = 1;
  cudaGraphNode_t node = nullptr;
  ASSERT_OK(cudaGraphGetNodes(graph, &node, &count));
  cudaMemcpy3DParms params = {};
  ASSERT_OK(cudaGraphMemcpyNodeGetParams(node, &params));
  EXPECT_EQ(2 * kInt, params.extent.width);
  EXPECT_EQ(3u, params.extent.height);
  EXPECT_EQ(4 * kInt, params.srcPtr.pitch);
  EXPECT_EQ(2 * kInt, params.dstPtr.pitch);
  // A node with these parameters does the same.
  cudaGraph_t second = nullptr;
  int* again = device(std::vector<int>(6, 0));
  cudaGraphNodeParams made = node_params(cudaGraphNodeTypeMemcpy);
  made.memcpy.copyParams = params;
  made.memcpy.copyParams.dstPtr.ptr = again;
  ASSERT_OK(cudaGraphCreate(&second, 0));
  ASSERT_OK(cudaGraphAddNode(&node, second, nullptr, nullptr, 0, &made));
  cudaGraphExec_t exec = nullptr;
  cudaGraphExecUpdateResultInfo info;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, second, &info));
  EXPECT_EQ(cudaGraphExecUpdateErrorParametersChanged, info.result);
  ASSERT_OK(cudaGraphExecDestroy(exec));
  launch_and_destroy(graph);
  launch_and_destroy(second);
  EXPECT_EQ(kColumns, host(columns, 6));
  EXPECT_EQ(kColumns, host(again, 6));
}

TEST_F(GuestCallTest, RefusesRowsThatOverlapOrLeaveTheMemory) {
  int* matrix = device(counting(12));
  int* columns = device<int>(6);
  const auto copy = [&](std::size_t target_pitch, std::size_t source_pitch, std::size_t rows) {
    return cudaMemcpy2DAsync(columns, target_pitch, matrix, source_pitch, 2 * kInt, rows, cudaMemcpyDeviceToDevice,
                             stream_);
  };
  EXPECT_CUDA(cudaErrorInvalidPitchValue, copy(kInt, 4 * kInt, 3));
  EXPECT_CUDA(cudaErrorInvalidPitchValue, copy(2 * kInt, kInt, 3));
  EXPECT_CUDA(cudaErrorInvalidValue, copy(2 * kInt, 4 * kInt, 4));
  ASSERT_OK(copy(2 * kInt, 4 * kInt, 0));
}

TEST_F(GuestCallTest, CopiesBetweenDevices) {
  emu::set_device_count(2);
  int* source = device(std::vector<int>{7});
  ASSERT_OK(cudaSetDevice(1));
  int* target = device<int>(1);
  ASSERT_OK(cudaSetDevice(0));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(target, 2, source, 0, kInt, stream_));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaMemcpyPeerAsync(target, 1, source, -1, kInt, stream_));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpyPeerAsync(target, 0, source, 0, kInt, stream_));
  int pageable = 0;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpyPeerAsync(&pageable, 1, source, 0, kInt, stream_));
  ASSERT_OK(cudaMemcpyPeerAsync(target, 1, source, 0, kInt, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(7, host(target, 1)[0]);
}

TEST_F(GuestCallTest, EachThreadHasADefaultStream) {
  const std::size_t streams = emu::live_objects().streams;
  int* first = device(std::vector<int>{0});
  int* second = device(std::vector<int>{0});
  ASSERT_OK(launch_set(cudaStreamPerThread, first, 1));
  std::thread([&] {
    EXPECT_EQ(cudaSuccess, cudaStreamQuery(cudaStreamPerThread));
    EXPECT_EQ(cudaSuccess, launch_set(cudaStreamPerThread, second, 2));
  }).join();
  EXPECT_EQ(1, host(first, 1)[0]);  // by the legacy stream, which waits for it
  ASSERT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(2, host(second, 1)[0]);
  EXPECT_EQ(streams, emu::live_objects().streams);
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaStreamDestroy(cudaStreamPerThread));
}

TEST_F(GuestCallTest, DefaultStreamOfAThreadIsCaptured) {
  int* target = device(std::vector<int>{0});
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(launch_set(cudaStreamPerThread, target, 3));
  ASSERT_OK(cudaStreamEndCapture(cudaStreamPerThread, &graph));
  EXPECT_EQ(0, host(target, 1)[0]);
  launch_and_destroy(graph);
  EXPECT_EQ(3, host(target, 1)[0]);
}

TEST_F(GuestCallTest, AddsAKernelNode) {
  int* target = device(std::vector<int>{0});
  int value = 5;
  void* arguments[] = {&target, &value};
  cudaKernelNodeParams params = {};
  params.func = set_kernel();
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t first = nullptr, second = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddKernelNode(&first, graph, nullptr, 0, nullptr));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddKernelNode(&first, graph, nullptr, 1, &params));
  ASSERT_OK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &params));
  value = 6;  // the first node has copied its arguments
  ASSERT_OK(cudaGraphAddKernelNode(&second, graph, &first, 1, &params));
  params.func = nullptr;
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaGraphAddKernelNode(&second, graph, nullptr, 0, &params));
  launch_and_destroy(graph);
  EXPECT_EQ(6, host(target, 1)[0]);
}

using GuestCallDeathTest = GuestCallTest;

// In a process of its own, because everything is gone afterwards.
TEST_F(GuestCallDeathTest, ResetTakesWhatThereIs) {
  const auto reset = [] {
    emu::reset();
    void *memory = nullptr, *pinned = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    bool is_right = cudaMalloc(&memory, 16) == cudaSuccess && cudaMallocHost(&pinned, 16) == cudaSuccess &&
                    cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreate(&event) == cudaSuccess &&
                    cudaGraphCreate(&graph, 0) == cudaSuccess && cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess &&
                    cudaMemsetAsync(memory, 0, 16, stream) == cudaSuccess &&
                    cudaMemsetAsync(memory, 0, 16, cudaStreamPerThread) == cudaSuccess;
    is_right = is_right && cudaDeviceReset() == cudaSuccess && emu::live_objects().total() == 0;
    is_right = is_right && emu::outstanding() == 0 && cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle;
    // The device works as before.
    is_right = is_right && cudaMalloc(&memory, 16) == cudaSuccess &&
               cudaMemsetAsync(memory, 0, 16, cudaStreamPerThread) == cudaSuccess &&
               cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
    std::exit(is_right ? 0 : 1);
  };
  EXPECT_EXIT(reset(), testing::ExitedWithCode(0), "");
}

TEST_F(GuestCallTest, ResetOfADeviceLeavesTheOthers) {
  emu::set_device_count(2);
  int* other = device(std::vector<int>{4});
  const std::size_t before = emu::live_objects().total();
  ASSERT_OK(cudaSetDevice(1));
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ASSERT_OK(cudaStreamCreate(&stream));
  ASSERT_OK(cudaMalloc(&memory, 16));
  ASSERT_OK(cudaDeviceReset());
  ASSERT_OK(cudaSetDevice(0));
  EXPECT_EQ(before, emu::live_objects().total());
  EXPECT_EQ(4, host(other, 1)[0]);
}

TEST_F(GuestCallTest, ResetIsRefusedDuringACapture) {
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaDeviceReset());
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &graph));
}

}  // namespace
}  // namespace emu_test::guest_call_test
