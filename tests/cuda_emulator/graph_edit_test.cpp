// Copies, removals, moved children, external events, changes to single nodes of an exec, several devices.
#include <set>

#include "test_support.h"

namespace emu_test::graph_edit_test {
namespace {

class GraphEditTest : public EmulatorTest {
 protected:
  cudaGraph_t make_graph() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphCreate(&graph, 0));
    return graph;
  }
  cudaGraphNodeParams set_params(int* target, int value) {
    target_ = target;
    value_ = value;
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeKernel);
    params.kernel.func = set_kernel();
    params.kernel.gridDim = params.kernel.blockDim = dim3(1);
    params.kernel.kernelParams = arguments_;
    return params;
  }
  cudaGraphNode_t add(cudaGraph_t graph, cudaGraphNodeParams params, std::vector<cudaGraphNode_t> before = {}) {
    cudaGraphNode_t node = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&node, graph, before.data(), nullptr, before.size(), &params));
    return node;
  }
  cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&exec, graph, 0));
    return exec;
  }
  void launch(cudaGraphExec_t exec) {
    ASSERT_OK(cudaGraphLaunch(exec, stream_));
    ASSERT_OK(cudaStreamSynchronize(stream_));
  }
  void destroy(cudaGraphExec_t exec, cudaGraph_t graph) {
    ASSERT_OK(cudaGraphExecDestroy(exec));
    ASSERT_OK(cudaGraphDestroy(graph));
  }

 private:
  int* target_ = nullptr;
  int value_ = 0;
  void* arguments_[2] = {&target_, &value_};
};

TEST_F(GraphEditTest, ACloneGoesItsOwnWay) {
  int* target = device(std::vector<int>{0, 0});
  const cudaGraph_t graph = make_graph();
  const cudaGraphNode_t first = add(graph, set_params(target, 1));
  cudaGraph_t clone = nullptr;
  ASSERT_OK(cudaGraphClone(&clone, graph));
  add(graph, set_params(target + 1, 9), {first});
  size_t count = 0;
  ASSERT_OK(cudaGraphGetNodes(clone, nullptr, &count));
  EXPECT_EQ(1u, count);
  ASSERT_OK(cudaGraphDestroy(graph));
  launch_and_destroy(clone);
  EXPECT_EQ((std::vector<int>{1, 0}), host(target, 2));
}

TEST_F(GraphEditTest, ARemovedNodeTakesItsEdgesAlong) {
  std::set<int> seen;
  for (unsigned seed = 0; seed < 12; ++seed) {
    emu::set_seed(seed);
    int* target = device<int>(1);
    const cudaGraph_t graph = make_graph();
    const cudaGraphNode_t first = add(graph, set_params(target, 1));
    const cudaGraphNode_t between = add(graph, node_params(cudaGraphNodeTypeEmpty), {first});
    add(graph, set_params(target, 2), {between});
    ASSERT_OK(cudaGraphDestroyNode(between));
    EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphDestroyNode(between));
    launch_and_destroy(graph);
    seen.insert(host(target, 1)[0]);
  }
  EXPECT_EQ((std::set<int>{1, 2}), seen);
}

TEST_F(GraphEditTest, AMovedChildGoesWithItsParent) {
  int* target = device<int>(1);
  const cudaGraph_t outer = make_graph(), inner = make_graph();
  cudaGraphNodeParams child = node_params(cudaGraphNodeTypeGraph);
  child.graph = {inner, cudaGraphChildGraphOwnershipMove};
  add(outer, child);
  add(inner, set_params(target, 3));
  EXPECT_EQ(1u, emu::live_objects().graphs);
  launch_and_destroy(outer);
  EXPECT_EQ(3, host(target, 1)[0]);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphDestroy(inner));
}

TEST_F(GraphEditTest, AGraphIsInsideItselfOnlyAsACopy) {
  int *log = device<int>(8), *count = device(std::vector<int>{0});
  cudaGraph_t outer = nullptr;
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(launch_append(stream_, log, count, 1));
  ASSERT_OK(cudaStreamEndCapture(stream_, &outer));
  const cudaGraph_t inner = make_graph();
  cudaGraphNodeParams child = node_params(cudaGraphNodeTypeGraph);
  child.graph = {inner, cudaGraphChildGraphOwnershipMove};
  cudaGraphNode_t node = nullptr;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&node, inner, nullptr, nullptr, 0, &child));
  add(outer, child);
  child.graph = {outer, cudaGraphChildGraphOwnershipMove};
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&node, inner, nullptr, nullptr, 0, &child));
  child.graph = {outer, cudaGraphChildGraphOwnershipClone};
  EXPECT_DEATH((void)cudaGraphAddNode(&node, outer, nullptr, nullptr, 0, &child), "becomes a child of itself");
  EXPECT_DEATH((void)cudaGraphAddNode(&node, inner, nullptr, nullptr, 0, &child), "becomes a child of itself");
  cudaGraph_t copy = nullptr;
  ASSERT_OK(cudaGraphClone(&copy, outer));
  child.graph = {copy, cudaGraphChildGraphOwnershipClone};
  add(outer, child);
  ASSERT_OK(cudaGraphDestroy(copy));
  launch_and_destroy(outer);
  EXPECT_EQ(2, host(count, 1)[0]);
}

TEST_F(GraphEditTest, ADisabledNodeStillOrdersTheOthers) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    emu::set_seed(seed);
    int* target = device<int>(1);
    const cudaGraph_t graph = make_graph();
    const cudaGraphNode_t first = add(graph, set_params(target, 1));
    const cudaGraphNode_t between = add(graph, set_params(target, 7), {first});
    const cudaGraphNode_t last = add(graph, set_params(target, 2), {between});
    const cudaGraphExec_t exec = instantiate(graph);
    ASSERT_OK(cudaGraphNodeSetEnabled(exec, between, 0));
    launch(exec);
    EXPECT_EQ(2, host(target, 1)[0]);
    ASSERT_OK(cudaGraphNodeSetEnabled(exec, last, 0));
    launch(exec);
    EXPECT_EQ(1, host(target, 1)[0]);
    destroy(exec, graph);
  }
}

TEST_F(GraphEditTest, NewParametersLeaveQueuedLaunchesAlone) {
  int* target = device(std::vector<int>{0, 0});
  const cudaGraph_t graph = make_graph();
  const cudaGraphNode_t node = add(graph, set_params(target, 1));
  const cudaGraphExec_t exec = instantiate(graph);
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  cudaGraphNodeParams params = set_params(target + 1, 2);
  ASSERT_OK(cudaGraphExecNodeSetParams(exec, node, &params));
  launch(exec);
  EXPECT_EQ((std::vector<int>{1, 2}), host(target, 2));
  cudaGraphNodeParams fill = node_params(cudaGraphNodeTypeEmpty);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphExecNodeSetParams(exec, node, &fill));
  destroy(exec, graph);
}

TEST_F(GraphEditTest, ExternalEventsOrderAGraphWithStreams) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    emu::set_seed(seed);
    int *target = device(std::vector<int>{0}), *result = device<int>(1);
    const cudaEvent_t before = event(), inside = event();
    cudaGraph_t graph = nullptr;
    ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    ASSERT_OK(cudaStreamWaitEvent(stream_, before, cudaEventWaitExternal));
    ASSERT_OK(launch_add(stream_, target, target, 10));
    ASSERT_OK(cudaEventRecordWithFlags(inside, stream_, cudaEventRecordExternal));
    ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
    const cudaGraphExec_t exec = instantiate(graph);
    ASSERT_OK(launch_set(other_, target, 1));
    ASSERT_OK(cudaEventRecord(before, other_));
    ASSERT_OK(cudaGraphLaunch(exec, stream_));
    ASSERT_OK(cudaStreamWaitEvent(other_, inside, 0));
    ASSERT_OK(launch_add(other_, result, target, 0));
    ASSERT_OK(cudaStreamSynchronize(other_));
    EXPECT_EQ(11, host(result, 1)[0]);
    ASSERT_OK(cudaStreamSynchronize(stream_));
    destroy(exec, graph);
  }
}

TEST_F(GraphEditTest, KeepsAttributesOfKernels) {
  const cudaGraph_t graph = make_graph();
  const cudaGraphNode_t one = add(graph, set_params(device<int>(1), 1)), two = add(graph, set_params(nullptr, 1));
  cudaKernelNodeAttrValue value{};
  value.priority = -2;
  ASSERT_OK(cudaGraphKernelNodeSetAttribute(one, cudaLaunchAttributePriority, &value));
  ASSERT_OK(cudaGraphKernelNodeCopyAttributes(two, one));
  value.priority = 0;
  ASSERT_OK(cudaGraphKernelNodeGetAttribute(two, cudaLaunchAttributePriority, &value));
  EXPECT_EQ(-2, value.priority);
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(GraphEditTest, DevicesHaveStreamsOfTheirOwn) {
  emu::set_device_count(2);
  int *here = device<int>(1), count = 0, current = -1;
  ASSERT_OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(2, count);
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(2));
  ASSERT_OK(cudaSetDevice(1));
  ASSERT_OK(cudaGetDevice(&current));
  EXPECT_EQ(1, current);
  int* there = device<int>(1);
  cudaPointerAttributes attributes{};
  ASSERT_OK(cudaPointerGetAttributes(&attributes, there));
  EXPECT_EQ(1, attributes.device);
  ASSERT_OK(cudaPointerGetAttributes(&attributes, here));
  EXPECT_EQ(0, attributes.device);
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, launch_set(stream_, there, 1));
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  // A blocking capture holds up the legacy stream of its device only.
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  ASSERT_OK(cudaSetDevice(0));
  EXPECT_CUDA(cudaSuccess, launch_set(nullptr, here, 1));
  ASSERT_OK(cudaSetDevice(1));
  EXPECT_CUDA(cudaErrorStreamCaptureImplicit, launch_set(nullptr, there, 1));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(blocking, &graph));
  ASSERT_OK(cudaStreamDestroy(blocking));
  ASSERT_OK(cudaSetDevice(0));
  emu::set_device_count(1);
}

}  // namespace
}  // namespace emu_test::graph_edit_test
