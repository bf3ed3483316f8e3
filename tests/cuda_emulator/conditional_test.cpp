// IF, WHILE and SWITCH nodes, built during capture.
#include <functional>

#include "test_support.h"

namespace emu_test::conditional_test {
namespace {

using Body = std::function<void(cudaStream_t)>;

class ConditionalTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    for (cudaStream_t& stream : spare_) ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void TearDown() override {
    for (const cudaStream_t stream : spare_) cudaStreamDestroy(stream);
    EmulatorTest::TearDown();
  }
  void begin() { ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)); }
  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    return graph;
  }
  cudaGraphConditionalHandle handle(cudaStream_t stream, unsigned value = 0, unsigned flags = 0) {
    cudaGraphConditionalHandle made = 0;
    EXPECT_EQ(cudaSuccess, cudaGraphConditionalHandleCreate(&made, graph_of(stream), value, flags));
    return made;
  }
  // Appends a conditional to a capturing stream; each body is captured on its own stream.
  void conditional(cudaStream_t stream, cudaGraphConditionalNodeType type, cudaGraphConditionalHandle condition,
                   const std::vector<Body>& bodies) {
    cudaStreamCaptureStatus status;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* before = nullptr;
    const cudaGraphEdgeData* data = nullptr;
    size_t count = 0;
    ASSERT_OK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &data, &count));
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeConditional);
    params.conditional.handle = condition;
    params.conditional.type = type;
    params.conditional.size = static_cast<unsigned>(bodies.size());
    cudaGraphNode_t node = nullptr;
    ASSERT_OK(cudaGraphAddNode(&node, graph, before, data, count, &params));
    const cudaStream_t body_stream = spare_[depth_++];
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      const cudaGraph_t body = params.conditional.phGraph_out[i];
      ASSERT_OK(
          cudaStreamBeginCaptureToGraph(body_stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
      bodies[i](body_stream);
      cudaGraph_t same = nullptr;
      ASSERT_OK(cudaStreamEndCapture(body_stream, &same));
      EXPECT_EQ(body, same);
    }
    --depth_;
    ASSERT_OK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
  }
  cudaGraph_t graph_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    return graph;
  }
  void expect_refused(cudaGraph_t graph, cudaGraphInstantiateResult result) {
    cudaGraphInstantiateParams params{};
    cudaGraphExec_t exec = nullptr;
    EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphInstantiateWithParams(&exec, graph, &params));
    EXPECT_EQ(result, params.result_out);
    ASSERT_OK(cudaGraphDestroy(graph));
  }
  int* zero() { return device(std::vector<int>{0}); }

 private:
  cudaStream_t spare_[3] = {};
  std::size_t depth_ = 0;
};

TEST_F(ConditionalTest, LoopsWithADeviceCounter) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    emu::set_seed(seed);
    int *counter = zero(), *sum = zero(), *after = zero();
    begin();
    const auto condition = handle(stream_, 1, cudaGraphCondAssignDefault);
    conditional(stream_, cudaGraphCondTypeWhile, condition, {[&](cudaStream_t body) {
                  ASSERT_OK(launch_add(body, sum, sum, 2));
                  ASSERT_OK(launch_step(body, counter, 5, condition));
                }});
    ASSERT_OK(launch_add(stream_, after, sum, 1));
    emu::reset_calls();
    launch_and_destroy(end());
    EXPECT_EQ(5, host(counter, 1)[0]);
    EXPECT_EQ(10, host(sum, 1)[0]);
    EXPECT_EQ(11, host(after, 1)[0]);
    EXPECT_EQ(11u, emu::executed().kernels);
    EXPECT_EQ(6u, emu::executed().conditionals);
  }
}

TEST_F(ConditionalTest, RunsAWhileBodyNotAtAllAndAssignsTheDefaultAtEachLaunch) {
  int *sum = zero(), *no = zero();
  begin();
  const auto never = handle(stream_, 0, cudaGraphCondAssignDefault);
  conditional(stream_, cudaGraphCondTypeWhile, never,
              {[&](cudaStream_t body) { ASSERT_OK(launch_add(body, sum, sum, 100)); }});
  const auto once = handle(stream_, 1, cudaGraphCondAssignDefault);
  conditional(stream_, cudaGraphCondTypeWhile, once, {[&](cudaStream_t body) {
                ASSERT_OK(launch_add(body, sum, sum, 1));
                ASSERT_OK(launch_decide(body, no, once));
              }});
  launch_and_destroy(end(), 3);
  EXPECT_EQ(3, host(sum, 1)[0]);
}

TEST_F(ConditionalTest, ChoosesBetweenTwoBodies) {
  for (const int predicate : {0, 1, 7}) {
    int *taken = zero(), *flag = device(std::vector<int>{predicate});
    begin();
    const auto condition = handle(stream_);
    ASSERT_OK(launch_decide(stream_, flag, condition));
    conditional(stream_, cudaGraphCondTypeIf, condition,
                {[&](cudaStream_t body) { ASSERT_OK(launch_set(body, taken, 1)); },
                 [&](cudaStream_t body) { ASSERT_OK(launch_set(body, taken, 2)); }});
    launch_and_destroy(end(), 2);
    EXPECT_EQ(predicate != 0 ? 1 : 2, host(taken, 1)[0]);
  }
}

TEST_F(ConditionalTest, SwitchesAndIgnoresLargeValues) {
  for (const int predicate : {0, 2, 3}) {
    int *taken = zero(), *flag = device(std::vector<int>{predicate});
    begin();
    const auto condition = handle(stream_);
    ASSERT_OK(launch_decide(stream_, flag, condition));
    std::vector<Body> bodies;
    for (int i = 0; i < 3; ++i) {
      bodies.push_back([taken, i](cudaStream_t body) { ASSERT_OK(launch_set(body, taken, 10 + i)); });
    }
    conditional(stream_, cudaGraphCondTypeSwitch, condition, bodies);
    launch_and_destroy(end());
    EXPECT_EQ(predicate < 3 ? 10 + predicate : 0, host(taken, 1)[0]);
  }
}

TEST_F(ConditionalTest, NestsALoopAndABranchInALoop) {
  int *outer_count = zero(), *inner_count = zero(), *odd = zero(), *zeroed = zero();
  begin();
  const auto outer = handle(stream_, 1, cudaGraphCondAssignDefault);
  conditional(stream_, cudaGraphCondTypeWhile, outer, {[&](cudaStream_t body) {
                ASSERT_OK(launch_add(body, inner_count, zeroed, 0));
                const auto inner = handle(body);
                ASSERT_OK(launch_step(body, odd, 1 << 30, inner));
                conditional(body, cudaGraphCondTypeWhile, inner,
                            {[&](cudaStream_t nested) { ASSERT_OK(launch_step(nested, inner_count, 3, inner)); }});
                ASSERT_OK(launch_step(body, outer_count, 4, outer));
              }});
  emu::reset_calls();
  launch_and_destroy(end());
  EXPECT_EQ(4, host(outer_count, 1)[0]);
  EXPECT_EQ(3, host(inner_count, 1)[0]);
  EXPECT_EQ(4u * (2 + 3 + 1), emu::executed().kernels);
}

TEST_F(ConditionalTest, RunsChildGraphsAndEmptyBodies) {
  int *target = zero(), *counter = zero();
  cudaGraph_t child = nullptr;
  begin();
  ASSERT_OK(launch_add(stream_, target, target, 10));
  child = end();
  begin();
  const auto loop = handle(stream_, 1, cudaGraphCondAssignDefault);
  conditional(stream_, cudaGraphCondTypeWhile, loop, {[&](cudaStream_t body) {
                cudaGraphNodeParams params = node_params(cudaGraphNodeTypeGraph);
                params.graph.graph = child;
                cudaGraphNode_t node = nullptr;
                ASSERT_OK(cudaGraphAddNode(&node, graph_of(body), nullptr, nullptr, 0, &params));
                ASSERT_OK(launch_step(body, counter, 3, loop));
              }});
  conditional(stream_, cudaGraphCondTypeIf, handle(stream_, 1, cudaGraphCondAssignDefault), {[](cudaStream_t) {}});
  launch_and_destroy(end());
  ASSERT_OK(cudaGraphDestroy(child));
  EXPECT_EQ(30, host(target, 1)[0]);
}

TEST_F(ConditionalTest, HasAGarbageValueWithoutADefault) {
  int* taken = zero();
  begin();
  conditional(stream_, cudaGraphCondTypeSwitch, handle(stream_, 0, 0),
              {[&](cudaStream_t body) { ASSERT_OK(launch_set(body, taken, 1)); }});
  launch_and_destroy(end());
  EXPECT_EQ(0, host(taken, 1)[0]);
}

TEST_F(ConditionalTest, RefusesHostNodesInBodiesAtInstantiation) {
  begin();
  const auto outer = handle(stream_, 1, cudaGraphCondAssignDefault);
  conditional(stream_, cudaGraphCondTypeIf, outer, {[&](cudaStream_t body) {
                const auto inner = handle(body, 1, cudaGraphCondAssignDefault);
                conditional(body, cudaGraphCondTypeIf, inner, {[](cudaStream_t nested) {
                              ASSERT_OK(cudaLaunchHostFunc(
                                  nested, [](void*) {}, nullptr));
                            }});
              }});
  expect_refused(end(), cudaGraphInstantiateNodeOperationNotSupported);
}

TEST_F(ConditionalTest, RefusesPageableCopiesInBodies) {
  int* target = zero();
  int source = 1;
  begin();
  conditional(stream_, cudaGraphCondTypeIf, handle(stream_, 1, 1), {[&](cudaStream_t body) {
                ASSERT_OK(cudaMemcpyAsync(target, &source, 4, cudaMemcpyHostToDevice, body));
              }});
  expect_refused(end(), cudaGraphInstantiateMultipleDevicesNotSupported);
}

TEST_F(ConditionalTest, RefusesUnusedAndReusedHandles) {
  begin();
  handle(stream_);
  expect_refused(end(), cudaGraphInstantiateConditionalHandleUnused);
  begin();
  const auto condition = handle(stream_, 0, 1);
  conditional(stream_, cudaGraphCondTypeIf, condition, {[](cudaStream_t) {}});
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeConditional);
  params.conditional = {condition, cudaGraphCondTypeIf, 1, nullptr};
  cudaGraphNode_t node = nullptr;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&node, graph_of(stream_), nullptr, nullptr, 0, &params));
  launch_and_destroy(end());
}

TEST_F(ConditionalTest, IsInstantiatedOnceAtATimeAndNeverAChild) {
  begin();
  conditional(stream_, cudaGraphCondTypeIf, handle(stream_, 0, 1), {[](cudaStream_t) {}});
  const cudaGraph_t graph = end();
  cudaGraphExec_t first = nullptr, second = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&first, graph, 0));
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphInstantiate(&second, graph, 0));
  ASSERT_OK(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaGraphLaunch(first, other_));
  cudaGraph_t lost = nullptr;
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(other_, &lost));
  ASSERT_OK(cudaGraphExecDestroy(first));
  ASSERT_OK(cudaGraphInstantiate(&second, graph, 0));
  ASSERT_OK(cudaGraphExecDestroy(second));
  cudaGraph_t parent = nullptr;
  ASSERT_OK(cudaGraphCreate(&parent, 0));
  cudaGraphNodeParams child = node_params(cudaGraphNodeTypeGraph);
  child.graph.graph = graph;
  cudaGraphNode_t node = nullptr;
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphAddNode(&node, parent, nullptr, nullptr, 0, &child));
  ASSERT_OK(cudaGraphDestroy(parent));
  cudaGraph_t copy = nullptr;
  EXPECT_CUDA(cudaErrorNotSupported, cudaGraphClone(&copy, graph));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(ConditionalTest, FailsWhenTwoThreadsSetTheCondition) {
  begin();
  const auto condition = handle(stream_);
  ASSERT_OK(launch_two_setters(stream_, condition));
  conditional(stream_, cudaGraphCondTypeIf, condition, {[](cudaStream_t) {}});
  cudaGraphExec_t exec = nullptr;
  const cudaGraph_t graph = end();
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaGraphDestroy(graph));
}

TEST_F(ConditionalTest, FailsWhenTheConditionIsSetOutsideItsGraph) {
  ASSERT_OK(launch_decide(stream_, zero(), 0x1234));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
}

}  // namespace
}  // namespace emu_test::conditional_test
