// Faults, counters, live objects, memory and device information.
#include <cuda.h>
#include <sys/wait.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "test_support.h"

namespace emu_test::control_test {
namespace {

class ControlTest : public EmulatorTest {};

// How a process ends that touches device memory: by the signal, or by a sanitizer's report of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool was_kept_out(int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; }
constexpr const char* kKeptOut = "Sanitizer:DEADLYSIGNAL";
#else
bool was_kept_out(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV; }
constexpr const char* kKeptOut = "";
#endif

TEST_F(ControlTest, FailsTheNthCallOnce) {
  int value = 0;
  emu::fail("cudaGetDevice", 3, cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaSuccess, cudaGetDevice(&value));
  EXPECT_CUDA(cudaSuccess, cudaGetDeviceCount(&value));
  EXPECT_CUDA(cudaSuccess, cudaGetDevice(&value));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaGetDevice(&value));
  EXPECT_CUDA(cudaSuccess, cudaGetDevice(&value));
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaPeekAtLastError());
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaGetLastError());
  EXPECT_CUDA(cudaSuccess, cudaGetLastError());
}

TEST_F(ControlTest, FailsAnyCallForEver) {
  int value = 0;
  emu::fail("*", 2, cudaErrorUnknown, true);
  EXPECT_CUDA(cudaSuccess, cudaGetDevice(&value));
  EXPECT_CUDA(cudaErrorUnknown, cudaGetDeviceCount(&value));
  EXPECT_CUDA(cudaErrorUnknown, cudaStreamSynchronize(stream_));
  emu::clear_faults();
  EXPECT_CUDA(cudaSuccess, cudaStreamSynchronize(stream_));
}

TEST_F(ControlTest, AFailedCallDoesNothing) {
  const emu::LiveObjects before = emu::live_objects();
  void* pointer = nullptr;
  emu::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&pointer, 16));
  EXPECT_EQ(nullptr, pointer);
  EXPECT_EQ(before.total(), emu::live_objects().total());
}

TEST_F(ControlTest, AStickyFaultStaysUntilReset) {
  int value = 0;
  emu::fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream_));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaGetDevice(&value));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaGetLastError());
  EXPECT_CUDA(cudaSuccess, cudaGetLastError()) << "it only tells of calls, and the next one fails again";
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaGetDevice(&value));
  emu::reset();
  EXPECT_CUDA(cudaSuccess, cudaGetDevice(&value));
}

TEST_F(ControlTest, KeepsTheLastErrorPerThread) {
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(4));
  std::thread([] { EXPECT_CUDA(cudaSuccess, cudaGetLastError()); }).join();
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaGetLastError());
}

TEST_F(ControlTest, CountsCallsAndObjects) {
  emu::reset_calls();
  const emu::LiveObjects before = emu::live_objects();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  void* pinned = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  ASSERT_OK(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault));
  event();
  EXPECT_EQ(2u, emu::calls("cudaGraphLaunch"));
  EXPECT_EQ(0u, emu::calls("cudaGraphDestroy"));
  EXPECT_EQ(6u, emu::total_calls());
  const emu::LiveObjects live = emu::live_objects();
  EXPECT_EQ(before.graphs + 1, live.graphs);
  EXPECT_EQ(before.execs + 1, live.execs);
  EXPECT_EQ(before.events + 1, live.events);
  EXPECT_EQ(before.pinned_allocations + 1, live.pinned_allocations);
  ASSERT_OK(cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaGraphDestroy(graph));
  ASSERT_OK(cudaFreeHost(pinned));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphLaunch(exec, stream_));
}

TEST_F(ControlTest, DescribesTheDevice) {
  int count = 0, warp = 0, version = 0, least = 1, greatest = 1;
  cudaDeviceProp properties;
  ASSERT_OK(cudaGetDeviceCount(&count));
  ASSERT_OK(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0));
  ASSERT_OK(cudaGetDeviceProperties(&properties, 0));
  ASSERT_OK(cudaDriverGetVersion(&version));
  ASSERT_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(1, count);
  EXPECT_EQ(32, warp);
  EXPECT_EQ(32, properties.warpSize);
  EXPECT_EQ(13000, version);
  EXPECT_LT(greatest, least);
  EXPECT_STREQ("cudaErrorStreamCaptureMerge", cudaGetErrorName(cudaErrorStreamCaptureMerge));
  int blocks = 0;
  cudaFuncAttributes attributes;
  ASSERT_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, set_kernel(), 1024, 0));
  EXPECT_EQ(2, blocks);
  ASSERT_OK(cudaFuncGetAttributes(&attributes, set_kernel()));
  EXPECT_EQ(1024, attributes.maxThreadsPerBlock);
}

TEST_F(ControlTest, KnowsItsMemory) {
  int* pointer = device<int>(4);
  int local = 0;
  cudaPointerAttributes attributes;
  ASSERT_OK(cudaPointerGetAttributes(&attributes, pointer + 1));
  EXPECT_EQ(cudaMemoryTypeDevice, attributes.type);
  ASSERT_OK(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(cudaMemoryTypeUnregistered, attributes.type);
  size_t free = 0, total = 0;
  ASSERT_OK(cudaMemGetInfo(&free, &total));
  EXPECT_LT(free, total);
  void* huge = nullptr;
  EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMalloc(&huge, total));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(&local));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(pointer + 1));
}

TEST_F(ControlTest, ReportsACopyOfFreedMemory) {
  void* pointer = nullptr;
  ASSERT_OK(cudaMalloc(&pointer, 64));
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(cudaMemsetAsync(pointer, 0, 64, stream_));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaFree(pointer));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream_));
  emu::reset();
  ASSERT_OK(cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(ControlTest, MapsMemoryIntoReservations) {
  const auto reserve = entry<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  const auto free_range = entry<decltype(cuMemAddressFree)>("cuMemAddressFree");
  const auto create = entry<decltype(cuMemCreate)>("cuMemCreate");
  const auto release = entry<decltype(cuMemRelease)>("cuMemRelease");
  const auto map = entry<decltype(cuMemMap)>("cuMemMap");
  const auto unmap = entry<decltype(cuMemUnmap)>("cuMemUnmap");
  const auto set_access = entry<decltype(cuMemSetAccess)>("cuMemSetAccess");
  const auto granularity = entry<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t unit = 0;
  ASSERT_EQ(CUDA_SUCCESS, granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  ASSERT_EQ(CUDA_SUCCESS, reserve(&base, 8 * unit, 0, 0, 0));
  auto* data = reinterpret_cast<int*>(base);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemset(data, 0, 4));
  CUmemGenericAllocationHandle blocks[2];
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (unsigned i = 0; i < 2; ++i) {
    ASSERT_EQ(CUDA_SUCCESS, create(&blocks[i], unit, &properties, 0));
    ASSERT_EQ(CUDA_SUCCESS, map(base + i * unit, unit, 0, blocks[i], 0));
    EXPECT_EQ(CUDA_ERROR_ALREADY_MAPPED, map(base + i * unit, unit, 0, blocks[i], 0));
    ASSERT_EQ(CUDA_SUCCESS, set_access(base + i * unit, unit, &access, 1));
    ASSERT_EQ(CUDA_SUCCESS, release(blocks[i]));
  }
  // What nobody has written is no zero, as it may be on a GPU.
  for (const size_t at : {size_t{0}, unit - sizeof(int), unit, 2 * unit - sizeof(int)}) {
    EXPECT_EQ(-1, host(data + at / sizeof(int), 1)[0]) << "at byte " << at;
  }
  // A copy may cross from one block to the next, as the addresses are contiguous.
  ASSERT_OK(launch_set(stream_, data, 17));
  ASSERT_OK(cudaMemsetAsync(data + 1, 0, 2 * unit - 4, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<int>{17, 0}), host(data, 2));
  EXPECT_EXIT(*static_cast<volatile int*>(data) = 1, was_kept_out, kKeptOut) << "the host writes mapped memory";
  EXPECT_EXIT((void)*static_cast<volatile int*>(data), was_kept_out, kKeptOut) << "the host reads mapped memory";
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemset(data, 0, 2 * unit + 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, free_range(base, 8 * unit));
  ASSERT_EQ(CUDA_SUCCESS, unmap(base, 2 * unit));
  ASSERT_EQ(CUDA_SUCCESS, free_range(base, 8 * unit));
  void* missing = this;
  cudaDriverEntryPointQueryResult found;
  ASSERT_OK(cudaGetDriverEntryPointByVersion("cuNoSuch", &missing, 13000, cudaEnableDefault, &found));
  EXPECT_EQ(nullptr, missing);
  EXPECT_EQ(cudaDriverEntryPointSymbolNotFound, found);
}

TEST_F(ControlTest, KernelNodesTellTheirArguments) {
  const auto get_params = entry<decltype(cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams");
  const auto param_info = entry<decltype(cuFuncGetParamInfo)>("cuFuncGetParamInfo");
  int* data = device<int>(4);
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(launch_set(stream_, data, 17));
  ASSERT_OK(cudaMemsetAsync(data, 0, 4, stream_));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphNode_t nodes[2];  // in the order of the stream: the memset depends on the kernel
  size_t count = 1;
  ASSERT_OK(cudaGraphGetEdges(graph, &nodes[0], &nodes[1], nullptr, &count));
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_EQ(CUDA_SUCCESS, get_params(nodes[0], &params));
  EXPECT_EQ(data, *static_cast<int**>(params.kernelParams[0]));
  EXPECT_EQ(17, *static_cast<int*>(params.kernelParams[1]));
  size_t offset = 0, bytes = 0;
  ASSERT_EQ(CUDA_SUCCESS, param_info(params.func, 1, &offset, &bytes));
  EXPECT_EQ(8u, offset);
  EXPECT_EQ(4u, bytes);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, param_info(params.func, 2, &offset, &bytes));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, get_params(nodes[1], &params)) << "a memset";
  ASSERT_OK(cudaGraphDestroy(graph));
}

// Proves for the build and the machine at hand that the host cannot touch device memory: before anything ran, after
// operations ran, and in a host function.
TEST_F(ControlTest, TheHostCannotTouchDeviceMemory) {
  ASSERT_NE(emu::memory_protection(), "off") << "GS_EMU_PROTECT=0 is for comparisons, not for tests";
  std::cout << "device memory is closed to the host by " << emu::memory_protection() << '\n';
  volatile int* pointer = device<int>(1);
  EXPECT_EXIT(*pointer = 1, was_kept_out, kKeptOut) << "a write";
  EXPECT_EXIT((void)*pointer, was_kept_out, kKeptOut) << "a read";
  ASSERT_OK(launch_set(stream_, const_cast<int*>(pointer), 7));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EXIT(*pointer = 1, was_kept_out, kKeptOut) << "a write after a kernel ran";
  EXPECT_EXIT((void)*pointer, was_kept_out, kKeptOut) << "a read after a kernel ran";
  auto touch_in_host_function = [&] {
    ASSERT_OK(launch_set(stream_, const_cast<int*>(pointer), 8));
    ASSERT_OK(cudaLaunchHostFunc(
        stream_, [](void* p) { (void)*static_cast<volatile int*>(p); }, const_cast<int*>(pointer)));
    ASSERT_OK(cudaStreamSynchronize(stream_));
  };
  EXPECT_EXIT(touch_in_host_function(), was_kept_out, kKeptOut) << "a read in a host function";
}

}  // namespace
}  // namespace emu_test::control_test
