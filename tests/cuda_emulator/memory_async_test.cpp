// Allocation in stream order, and memory that graphs allocate.
#include "test_support.h"

namespace emu_test::memory_async_test {
namespace {

class AsyncMemoryTest : public EmulatorTest {
 protected:
  static std::size_t allocations() { return emu::live_objects().device_allocations; }
  // An allocation node; its address goes to `memory`.
  cudaGraphNode_t add_alloc(cudaGraph_t graph, int*& memory) {
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeMemAlloc);
    params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    params.alloc.bytesize = 4;
    cudaGraphNode_t node = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    memory = static_cast<int*>(params.alloc.dptr);
    return node;
  }
  // Captures an allocation, a kernel that reads it into `target`, and one that writes to it.
  cudaGraph_t capture_use(int* target, int*& memory, bool frees) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    EXPECT_EQ(cudaSuccess, cudaMallocAsync(&memory, 4, stream_));
    EXPECT_EQ(cudaSuccess, launch_add(stream_, target, memory, 0));
    EXPECT_EQ(cudaSuccess, launch_set(stream_, memory, 5));
    if (frees) {
      EXPECT_EQ(cudaSuccess, cudaFreeAsync(memory, stream_));
    }
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    return graph;
  }
};

TEST_F(AsyncMemoryTest, IsFreedInStreamOrder) {
  const std::size_t before = allocations();
  int *memory = nullptr, *target = device<int>(1);
  ASSERT_OK(cudaMallocAsync(&memory, 4, stream_));
  ASSERT_OK(launch_set(stream_, memory, 3));
  ASSERT_OK(launch_add(stream_, target, memory, 1));
  ASSERT_OK(cudaFreeAsync(memory, stream_));
  EXPECT_EQ(before + 2, allocations());
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeAsync(memory, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(before + 1, allocations());
  EXPECT_EQ(4, host(target, 1)[0]);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeAsync(memory, stream_));
}

TEST_F(AsyncMemoryTest, UseAfterTheFreeIsAFault) {
  int* memory = nullptr;
  ASSERT_OK(cudaMallocAsync(&memory, 4, stream_));
  ASSERT_OK(cudaMemsetAsync(memory, 0, 4, stream_));
  ASSERT_OK(cudaFreeAsync(memory, stream_));
  ASSERT_OK(cudaMemsetAsync(memory, 0, 4, stream_));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream_));
}

TEST_F(AsyncMemoryTest, AGraphGetsItsMemoryBackWithGarbage) {
  const std::size_t before = allocations();
  int *memory = nullptr, *target = device<int>(1);
  launch_and_destroy(capture_use(target, memory, true), 2);
  EXPECT_EQ(-1, host(target, 1)[0]);
  EXPECT_EQ(before + 1, allocations());
}

// A graph and its exec may be destroyed while a launch is under way, which then ends as usual.
TEST_F(AsyncMemoryTest, ALaunchUnderWayKeepsTheMemoryOfItsGraph) {
  const std::size_t before = allocations();
  int *memory = nullptr, *target = device<int>(1);
  cudaGraph_t graph = capture_use(target, memory, true);
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) ASSERT_OK(cudaGraphLaunch(exec, stream_));
  ASSERT_OK(cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaGraphDestroy(graph));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(-1, host(target, 1)[0]);
  EXPECT_EQ(before + 1, allocations());
}

TEST_F(AsyncMemoryTest, AnAllocationOutlivesItsGraph) {
  const std::size_t before = allocations();
  int *memory = nullptr, *target = device<int>(1);
  launch_and_destroy(capture_use(target, memory, false));
  EXPECT_EQ(5, host(memory, 1)[0]);
  EXPECT_EQ(before + 2, allocations());
  ASSERT_OK(cudaFree(memory));
  EXPECT_EQ(before + 1, allocations());
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory));
}

TEST_F(AsyncMemoryTest, AFreeNodeOfAnotherGraphEndsIt) {
  int* memory = nullptr;
  cudaGraph_t makes = nullptr, frees = nullptr;
  ASSERT_OK(cudaGraphCreate(&makes, 0));
  ASSERT_OK(cudaGraphCreate(&frees, 0));
  add_alloc(makes, memory);
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeMemFree);
  params.free.dptr = memory;
  cudaGraphNode_t node = nullptr;
  ASSERT_OK(cudaGraphAddNode(&node, frees, nullptr, nullptr, 0, &params));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&node, frees, nullptr, nullptr, 0, &params)) << "twice";
  cudaGraphExec_t make = nullptr, free = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&make, makes, 0));
  ASSERT_OK(cudaGraphInstantiate(&free, frees, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphLaunch(free, stream_)) << "nothing is allocated yet";
  ASSERT_OK(cudaGraphLaunch(make, stream_));
  ASSERT_OK(cudaGraphLaunch(free, stream_));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphLaunch(free, stream_));
  ASSERT_OK(cudaGraphLaunch(make, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  ASSERT_OK(cudaFree(memory));
  for (const cudaGraphExec_t exec : {make, free}) ASSERT_OK(cudaGraphExecDestroy(exec));
  for (const cudaGraph_t graph : {makes, frees}) ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(AsyncMemoryTest, AGraphWithAnAllocationCannotBeCopiedOrTakenApart) {
  int* memory = nullptr;
  cudaGraph_t graph = nullptr, other = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  add_alloc(graph, memory);
  cudaGraphNode_t alloc = nullptr, empty = nullptr, child = nullptr;
  size_t one = 1;
  ASSERT_OK(cudaGraphGetNodes(graph, &alloc, &one));
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeEmpty);
  ASSERT_OK(cudaGraphAddNode(&empty, graph, &alloc, nullptr, 1, &params));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphClone(&other, graph));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphRemoveDependencies(graph, &alloc, &empty, nullptr, 1));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphDestroyNode(alloc));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphDestroyNode(empty));
  ASSERT_OK(cudaGraphCreate(&other, 0));
  params = node_params(cudaGraphNodeTypeGraph);
  params.graph = {graph, cudaGraphChildGraphOwnershipClone};
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphAddNode(&child, other, nullptr, nullptr, 0, &params));
  cudaGraphExec_t exec = nullptr, second = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphInstantiate(&second, graph, 0));
  ASSERT_OK(cudaGraphExecDestroy(exec));
  for (const cudaGraph_t made : {graph, other}) ASSERT_OK(cudaGraphDestroy(made));
}

TEST_F(AsyncMemoryTest, WhatAMovedChildAllocatesLivesUntilItIsFreed) {
  int* memory = nullptr;
  cudaGraph_t graph = nullptr, inner = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  ASSERT_OK(cudaGraphCreate(&inner, 0));
  add_alloc(inner, memory);
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeGraph);
  params.graph = {inner, cudaGraphChildGraphOwnershipMove};
  cudaGraphNode_t child = nullptr;
  ASSERT_OK(cudaGraphAddNode(&child, graph, nullptr, nullptr, 0, &params));
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphLaunch(exec, stream_)) << "it is allocated already";
  ASSERT_OK(cudaStreamSynchronize(stream_));
  ASSERT_OK(cudaFree(memory));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  ASSERT_OK(cudaFreeAsync(memory, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  ASSERT_OK(cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(AsyncMemoryTest, MemoryOfANodeIsNotTheProgramsToFree) {
  int* memory = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  add_alloc(graph, memory);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFree(memory));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaFreeAsync(memory, stream_));
  ASSERT_OK(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace emu_test::memory_async_test
