// Arguments that the device refuses, or takes, as tests written for NVIDIA hardware expect.
#include <cuda.h>

#include <limits>

#include "test_support.h"

namespace emu_test::argument_test {
namespace {

class ArgumentTest : public EmulatorTest {
 protected:
  void TearDown() override {
    emu::set_device_count(1);
    EmulatorTest::TearDown();
  }
};

TEST_F(ArgumentTest, MorePinnedMemoryThanTheMachineHasIsOutOfMemory) {
  void* pointer = nullptr;
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 50}) {
    EXPECT_CUDA(cudaErrorMemoryAllocation, cudaMallocHost(&pointer, bytes));
    EXPECT_CUDA(cudaErrorMemoryAllocation, cudaHostAlloc(&pointer, bytes, cudaHostAllocMapped));
    EXPECT_EQ(nullptr, pointer);
  }
}

TEST_F(ArgumentTest, AnAllocationNodeNamesExistingDevices) {
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  const auto add = [&](void (*change)(cudaMemAllocNodeParamsV2&, cudaMemAccessDesc&)) {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeMemAlloc);
    params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    params.alloc.bytesize = 256;
    params.alloc.accessDescs = &access;
    params.alloc.accessDescCount = 1;
    change(params.alloc, access);
    cudaGraphNode_t node = nullptr;
    return cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params);
  };
  EXPECT_EQ(cudaSuccess, add([](auto&, auto&) {}));
  EXPECT_EQ(cudaErrorInvalidValue, add([](auto& alloc, auto&) { alloc.poolProps.location.id = 1; }));
  EXPECT_EQ(cudaErrorInvalidValue,
            add([](auto& alloc, auto&) { alloc.poolProps.allocType = cudaMemAllocationTypeInvalid; }));
  EXPECT_EQ(cudaErrorInvalidValue,
            add([](auto& alloc, auto&) { alloc.poolProps.handleTypes = cudaMemHandleTypePosixFileDescriptor; }));
  EXPECT_EQ(cudaErrorInvalidValue, add([](auto& alloc, auto&) { alloc.accessDescs = nullptr; }));
  EXPECT_EQ(cudaErrorInvalidValue, add([](auto& alloc, auto&) { alloc.accessDescCount = 2; }));
  EXPECT_EQ(cudaErrorInvalidValue, add([](auto&, auto& access) { access.location.id = -1; }));
  EXPECT_EQ(cudaErrorInvalidValue, add([](auto&, auto& access) { access.flags = static_cast<cudaMemAccessFlags>(2); }));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(ArgumentTest, APoolIsPinnedMemoryOfADevice) {
  const auto create = [](void (*change)(cudaMemPoolProps&)) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    change(properties);
    cudaMemPool_t pool = nullptr;
    const cudaError_t code = cudaMemPoolCreate(&pool, &properties);
    EXPECT_EQ(code, cudaMemPoolDestroy(pool));  // of none: the same invalid value
    return code;
  };
  EXPECT_EQ(cudaSuccess, create([](auto&) {}));
  EXPECT_EQ(cudaSuccess, create([](auto& pool) { pool.handleTypes = cudaMemHandleTypePosixFileDescriptor; }));
  EXPECT_EQ(cudaErrorInvalidValue, create([](auto& pool) { pool.allocType = cudaMemAllocationTypeInvalid; }));
  EXPECT_EQ(cudaErrorInvalidValue, create([](auto& pool) { pool.location.type = cudaMemLocationTypeInvalid; }));
  EXPECT_EQ(cudaErrorInvalidValue, create([](auto& pool) { pool.location.id = 1; }));
  EXPECT_EQ(cudaErrorInvalidValue, create([](auto& pool) { pool.reserved[3] = 1; }));
}

TEST_F(ArgumentTest, AnAccessPolicyWindowHasLimits) {
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  int *target = device<int>(1), value = 1;
  void* arguments[] = {&target, &value};
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeKernel);
  params.kernel.func = set_kernel();
  params.kernel.gridDim = params.kernel.blockDim = dim3(1);
  params.kernel.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  ASSERT_OK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  int most = 0;
  ASSERT_OK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxAccessPolicyWindowSize, 0));
  const auto set = [&](std::size_t bytes, float ratio, cudaAccessProperty miss) {
    cudaKernelNodeAttrValue attribute = {};
    attribute.accessPolicyWindow = {target, bytes, ratio, cudaAccessPropertyPersisting, miss};
    return cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeAccessPolicyWindow, &attribute);
  };
  const auto limit = static_cast<std::size_t>(most);
  EXPECT_CUDA(cudaSuccess, set(limit, 0.6f, cudaAccessPropertyStreaming));
  EXPECT_CUDA(cudaErrorInvalidValue, set(limit + 1, 0.6f, cudaAccessPropertyStreaming));
  EXPECT_CUDA(cudaErrorInvalidValue, set(limit, -0.6f, cudaAccessPropertyStreaming));
  EXPECT_CUDA(cudaErrorInvalidValue, set(limit, 1.1f, cudaAccessPropertyStreaming));
  EXPECT_CUDA(cudaErrorInvalidValue, set(limit, 0.6f, cudaAccessPropertyPersisting));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(ArgumentTest, MappedMemoryHasGranularityAndAccess) {
  const auto granularity = entry<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  const auto set_access = entry<decltype(cuMemSetAccess)>("cuMemSetAccess");
  const auto reserve = entry<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  const auto create = entry<decltype(cuMemCreate)>("cuMemCreate");
  const auto map = entry<decltype(cuMemMap)>("cuMemMap");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t unit = 0;
  EXPECT_EQ(CUDA_SUCCESS, granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  int no_flag = 0xff;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            granularity(&unit, &properties, static_cast<CUmemAllocationGranularity_flags>(no_flag)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, granularity(nullptr, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle block = 0;
  ASSERT_EQ(CUDA_SUCCESS, reserve(&base, unit, 0, 0, 0));
  ASSERT_EQ(CUDA_SUCCESS, create(&block, unit, &properties, 0));
  ASSERT_EQ(CUDA_SUCCESS, map(base, unit, 0, block, 0));
  CUmemAccessDesc access[2] = {{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                               {properties.location, static_cast<CUmemAccess_flags>(2)}};
  EXPECT_EQ(CUDA_SUCCESS, set_access(base, unit, access, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set_access(base, unit, access, 2)) << "one of two is wrong";
  access[1] = access[0];
  access[1].location.id = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set_access(base, unit, access, 2));
  emu::release_memory();
}

TEST_F(ArgumentTest, AnEventOfSeveralProcessesHasNoTimes) {
  cudaEvent_t event = nullptr;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaEventCreateWithFlags(&event, cudaEventInterprocess));
  ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  ASSERT_OK(cudaEventDestroy(event));
}

TEST_F(ArgumentTest, TimesAreOfOneDevice) {
  emu::set_device_count(2);
  cudaEvent_t events[2] = {};
  cudaStream_t streams[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(cudaSetDevice(i));
    ASSERT_OK(cudaStreamCreate(&streams[i]));
    ASSERT_OK(cudaEventCreate(&events[i]));
    ASSERT_OK(cudaEventRecord(events[i], streams[i]));
    ASSERT_OK(cudaEventSynchronize(events[i]));
  }
  ASSERT_OK(cudaSetDevice(0));
  float elapsed = 0.0f;
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&elapsed, events[0], events[1]));
  for (const cudaEvent_t event : events) ASSERT_OK(cudaEventDestroy(event));
  for (const cudaStream_t stream : streams) ASSERT_OK(cudaStreamDestroy(stream));
}

TEST_F(ArgumentTest, ACooperativeLaunchNeedsAFunction) {
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction,
              cudaLaunchCooperativeKernel(nullptr, dim3(1), dim3(1), nullptr, 0, stream_));
}

}  // namespace
}  // namespace emu_test::argument_test
