// Building, reading, instantiating, launching and updating graphs.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "test_support.h"

namespace emu_test::graph_test {
namespace {

class GraphTest : public EmulatorTest {
 protected:
  // Two branches of two kernels each; with join_first the second branch begins after the first kernel of the first.
  cudaGraph_t capture_fork(int* log, int* count, bool joined_inside) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    join(stream_, other_);
    EXPECT_EQ(cudaSuccess, launch_append(stream_, log, count, 0));
    EXPECT_EQ(cudaSuccess, launch_append(stream_, log, count, 1));
    if (joined_inside) join(stream_, other_);
    EXPECT_EQ(cudaSuccess, launch_append(other_, log, count, 10));
    EXPECT_EQ(cudaSuccess, launch_append(other_, log, count, 11));
    join(other_, stream_);
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    return graph;
  }
  std::set<std::vector<int>> orders(bool joined_inside) {
    std::set<std::vector<int>> seen;
    for (unsigned seed = 0; seed < 16; ++seed) {
      emu::set_seed(seed);
      int *log = device<int>(4), *count = device(std::vector<int>{0});
      launch_and_destroy(capture_fork(log, count, joined_inside));
      const std::vector<int> order = host(log, 4);
      const auto at = [&](int value) { return std::find(order.begin(), order.end(), value) - order.begin(); };
      EXPECT_LT(at(0), at(1));
      EXPECT_LT(at(10), at(11));
      seen.insert(order);
    }
    return seen;
  }
  cudaGraphNode_t add_set(cudaGraph_t graph, int* target, int value, std::vector<cudaGraphNode_t> before = {}) {
    void* arguments[] = {&target, &value};
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeKernel);
    params.kernel.func = set_kernel();
    params.kernel.gridDim = params.kernel.blockDim = dim3(1);
    params.kernel.kernelParams = arguments;
    cudaGraphNode_t node = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&node, graph, before.data(), nullptr, before.size(), &params));
    return node;
  }
};

TEST_F(GraphTest, RunsNodesByTheirEdgesNotByTheOrderOfRecording) {
  const auto free = orders(false);
  EXPECT_GT(free.size(), 2u);
  const auto one = orders(true);
  EXPECT_EQ((std::set<std::vector<int>>{{0, 1, 10, 11}}), one);
}

TEST_F(GraphTest, BuildsByHandAndReadsBack) {
  int* target = device<int>(2);
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t a = add_set(graph, target, 1), b = add_set(graph, target, 2);
  cudaGraphNodeParams empty = node_params(cudaGraphNodeTypeEmpty);
  cudaGraphNode_t c = nullptr;
  ASSERT_OK(cudaGraphAddNode(&c, graph, &a, nullptr, 1, &empty));
  ASSERT_OK(cudaGraphAddDependencies(graph, &b, &c, nullptr, 1));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddDependencies(graph, &b, &c, nullptr, 1));
  const cudaGraphNode_t twice_from[] = {a, a}, twice_to[] = {b, b};
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddDependencies(graph, twice_from, twice_to, nullptr, 2));
  ASSERT_OK(cudaGraphRemoveDependencies(graph, &a, &b, nullptr, 1)) << "the first of the two was added";
  size_t count = 0;
  ASSERT_OK(cudaGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(3u, count);
  ASSERT_OK(cudaGraphGetRootNodes(graph, nullptr, &count));
  EXPECT_EQ(2u, count);
  cudaGraphNode_t from[4], to[4];
  count = 4;
  ASSERT_OK(cudaGraphGetEdges(graph, from, to, nullptr, &count));
  ASSERT_EQ(2u, count);
  EXPECT_EQ((std::set<cudaGraphNode_t>{a, b}), (std::set<cudaGraphNode_t>{from[0], from[1]}));
  EXPECT_EQ(c, to[0]);
  EXPECT_EQ(c, to[1]);
  count = 4;
  ASSERT_OK(cudaGraphNodeGetDependencies(c, from, nullptr, &count));
  EXPECT_EQ(2u, count);
  cudaGraphNodeType type;
  ASSERT_OK(cudaGraphNodeGetType(c, &type));
  EXPECT_EQ(cudaGraphNodeTypeEmpty, type);
  const std::string path = ::testing::TempDir() + "emulator_graph_" + std::to_string(::getpid()) + ".dot";
  ASSERT_OK(cudaGraphDebugDotPrint(graph, path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(std::string::npos, text.str().find("->"));
  std::remove(path.c_str());
  launch_and_destroy(graph);
}

TEST_F(GraphTest, ListsNodesAndEdgesInAnOrderOfTheSeed) {
  std::set<std::vector<std::ptrdiff_t>> orders_of_nodes, orders_of_roots, orders_of_edges;
  for (unsigned seed = 0; seed < 4; ++seed) {
    emu::set_seed(seed);
    cudaGraph_t graph = nullptr;
    ASSERT_OK(cudaGraphCreate(&graph, 0));
    std::vector<cudaGraphNode_t> made;
    cudaGraphNodeParams empty = node_params(cudaGraphNodeTypeEmpty);
    for (int i = 0; i < 6; ++i) {  // three roots, each with one that depends on it
      made.emplace_back();
      ASSERT_OK(cudaGraphAddNode(&made.back(), graph, i < 3 ? nullptr : &made[static_cast<std::size_t>(i) - 3], nullptr,
                                 i < 3 ? 0 : 1, &empty));
    }
    const auto order_of = [&](const std::vector<cudaGraphNode_t>& listed) {
      std::vector<std::ptrdiff_t> order;
      for (const cudaGraphNode_t node : listed)
        order.push_back(std::find(made.begin(), made.end(), node) - made.begin());
      return order;
    };
    std::vector<cudaGraphNode_t> nodes(6), roots(3), from(3), to(3);
    size_t count = 6;
    ASSERT_OK(cudaGraphGetNodes(graph, nodes.data(), &count));
    orders_of_nodes.insert(order_of(nodes));
    ASSERT_OK(cudaGraphGetNodes(graph, nodes.data(), &count));
    orders_of_nodes.insert(order_of(nodes));  // the same again
    EXPECT_EQ(made.size(), std::set<cudaGraphNode_t>(nodes.begin(), nodes.end()).size());
    count = 3;
    ASSERT_OK(cudaGraphGetRootNodes(graph, roots.data(), &count));
    orders_of_roots.insert(order_of(roots));
    ASSERT_OK(cudaGraphGetEdges(graph, from.data(), to.data(), nullptr, &count));
    orders_of_edges.insert(order_of(from));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(order_of({from[i]})[0] + 3, order_of({to[i]})[0]);
    ASSERT_OK(cudaGraphDestroy(graph));
  }
  EXPECT_GT(orders_of_nodes.size(), 1u);
  EXPECT_LE(orders_of_nodes.size(), 4u);
  EXPECT_GT(orders_of_roots.size(), 1u);
  EXPECT_GT(orders_of_edges.size(), 1u);
}

TEST_F(GraphTest, ARemovedDependencyShows) {
  std::set<int> with, without;
  for (unsigned seed = 0; seed < 12; ++seed) {
    for (const bool ordered : {true, false}) {
      emu::set_seed(seed);
      int* target = device<int>(1);
      cudaGraph_t graph = nullptr;
      ASSERT_OK(cudaGraphCreate(&graph, 0));
      const cudaGraphNode_t first = add_set(graph, target, 1), second = add_set(graph, target, 2);
      if (ordered) {
        ASSERT_OK(cudaGraphAddDependencies(graph, &first, &second, nullptr, 1));
      }
      launch_and_destroy(graph);
      (ordered ? with : without).insert(host(target, 1)[0]);
    }
  }
  EXPECT_EQ((std::set<int>{2}), with);
  EXPECT_EQ((std::set<int>{1, 2}), without);
}

TEST_F(GraphTest, RefusesCycles) {
  int* target = device<int>(1);
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t a = add_set(graph, target, 1), b = add_set(graph, target, 2, {a});
  ASSERT_OK(cudaGraphAddDependencies(graph, &b, &a, nullptr, 1));
  cudaGraphInstantiateParams params{};
  cudaGraphExec_t exec = nullptr;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphInstantiateWithParams(&exec, graph, &params));
  EXPECT_EQ(cudaGraphInstantiateInvalidStructure, params.result_out);
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, CopiesParametersAndRunsMemsetMemcpyAndChildNodes) {
  unsigned short* halves = device<unsigned short>(8);
  int* target = device<int>(4);
  cudaGraph_t child = nullptr, graph = nullptr;
  ASSERT_OK(cudaGraphCreate(&child, 0));
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  cudaGraphNodeParams fill = node_params(cudaGraphNodeTypeMemset);
  fill.memset = {halves, 8, 0x1234, 2, 2, 2};
  cudaGraphNode_t filled = nullptr, copied = nullptr, nested = nullptr;
  ASSERT_OK(cudaGraphAddNode(&filled, child, nullptr, nullptr, 0, &fill));
  cudaGraphNodeParams copy = node_params(cudaGraphNodeTypeMemcpy);
  copy.memcpy.copyParams.srcPtr = {halves, 16, 16, 1};
  copy.memcpy.copyParams.dstPtr = {target, 16, 16, 1};
  copy.memcpy.copyParams.extent = {16, 1, 1};
  copy.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
  ASSERT_OK(cudaGraphAddNode(&copied, child, &filled, nullptr, 1, &copy));
  cudaGraphNodeParams inner = node_params(cudaGraphNodeTypeGraph);
  inner.graph.graph = child;
  ASSERT_OK(cudaGraphAddNode(&nested, graph, nullptr, nullptr, 0, &inner));
  ASSERT_OK(cudaGraphDestroy(child));
  ASSERT_OK(cudaGraphChildGraphNodeGetGraph(nested, &child));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphDestroy(child));
  add_set(graph, target + 3, 77, {nested});
  launch_and_destroy(graph);
  EXPECT_EQ((std::vector<int>{0x12341234, -1, 0x12341234, 77}), host(target, 4));
}

TEST_F(GraphTest, SerializesAnExecWithItself) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    int *log = device<int>(8), *count = device(std::vector<int>{0});
    cudaGraphExec_t exec = nullptr;
    const cudaGraph_t graph = capture_fork(log, count, true);
    ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
    ASSERT_OK(cudaGraphDestroy(graph));
    ASSERT_OK(cudaGraphLaunch(exec, stream_));
    ASSERT_OK(cudaGraphLaunch(exec, other_));
    ASSERT_OK(cudaGraphExecDestroy(exec));
    ASSERT_OK(cudaStreamSynchronize(other_));
    EXPECT_EQ((std::vector<int>{0, 1, 10, 11, 0, 1, 10, 11}), host(log, 8));
  }
}

TEST_F(GraphTest, UpdatesParametersButNotTopology) {
  int* target = device<int>(1);
  const auto capture = [&](int value, bool twice) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    EXPECT_EQ(cudaSuccess, launch_set(stream_, target, value));
    if (twice) {
      EXPECT_EQ(cudaSuccess, launch_set(stream_, target, value));
    }
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    return graph;
  };
  const cudaGraph_t one = capture(1, false), two = capture(2, false), long_one = capture(3, true);
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, one, 0));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  cudaGraphExecUpdateResultInfo info{};
  ASSERT_OK(cudaGraphExecUpdate(exec, two, &info));
  int* copy = device<int>(1);
  ASSERT_OK(cudaMemcpyAsync(copy, target, 4, cudaMemcpyDeviceToDevice, stream_));
  ASSERT_OK(cudaGraphLaunch(exec, stream_));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(1, host(copy, 1)[0]);
  EXPECT_EQ(2, host(target, 1)[0]);
  EXPECT_CUDA(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, long_one, &info));
  EXPECT_EQ(cudaGraphExecUpdateErrorTopologyChanged, info.result);
  EXPECT_CUDA(cudaErrorGraphExecUpdateFailure, cudaGetLastError());
  ASSERT_OK(cudaGraphExecDestroy(exec));
  for (const cudaGraph_t graph : {one, two, long_one}) ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, UpdatesCompareEdgesBeforeTypesAndFillsOfOneRowOnlyByTheirHeight) {
  int* target = device<int>(4);
  const auto fill = [&](unsigned element_bytes, std::size_t width, std::size_t height) {
    cudaGraphNodeParams params = node_params(cudaGraphNodeTypeMemset);
    params.memset = {target, 8, 0, element_bytes, width, height};
    return params;
  };
  const auto chain = [](std::vector<cudaGraphNodeParams> nodes, bool is_joined) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphCreate(&graph, 0));
    cudaGraphNode_t last = nullptr;
    for (cudaGraphNodeParams& params : nodes) {
      const cudaGraphNode_t before = last;
      const bool depends = is_joined && before != nullptr;
      EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&last, graph, depends ? &before : nullptr, nullptr, depends, &params));
    }
    return graph;
  };
  const auto update = [&](cudaGraph_t from, cudaGraph_t to) {
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&exec, from, 0));
    cudaGraphExecUpdateResultInfo info{};
    (void)cudaGraphExecUpdate(exec, to, &info);
    EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(exec));
    for (const cudaGraph_t graph : {from, to}) EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
    return info.result;
  };
  const cudaGraphNodeParams empty = node_params(cudaGraphNodeTypeEmpty);
  EXPECT_EQ(cudaGraphExecUpdateErrorTopologyChanged,
            update(chain({empty, empty}, true), chain({empty, fill(4, 1, 1)}, false)));
  EXPECT_EQ(cudaGraphExecUpdateErrorNodeTypeChanged,
            update(chain({empty, empty}, true), chain({empty, fill(4, 1, 1)}, true)));
  EXPECT_EQ(cudaGraphExecUpdateSuccess, update(chain({fill(4, 2, 1)}, true), chain({fill(1, 5, 1)}, true)));
  EXPECT_EQ(cudaGraphExecUpdateErrorParametersChanged,
            update(chain({fill(4, 2, 2)}, true), chain({fill(2, 2, 2)}, true)));
  // Nodes are paired from those on which nothing depends, whatever the order in which the others were added.
  const auto pair = [&](cudaGraphNodeParams root, cudaGraphNodeParams end, bool end_first) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaGraphCreate(&graph, 0));
    cudaGraphNode_t from = nullptr, to = nullptr;
    EXPECT_EQ(cudaSuccess,
              cudaGraphAddNode(end_first ? &to : &from, graph, nullptr, nullptr, 0, end_first ? &end : &root));
    EXPECT_EQ(cudaSuccess,
              cudaGraphAddNode(end_first ? &from : &to, graph, nullptr, nullptr, 0, end_first ? &root : &end));
    EXPECT_EQ(cudaSuccess, cudaGraphAddDependencies(graph, &from, &to, nullptr, 1));
    return graph;
  };
  EXPECT_EQ(cudaGraphExecUpdateSuccess, update(pair(empty, fill(4, 1, 1), false), pair(empty, fill(4, 2, 1), true)));
  EXPECT_EQ(cudaGraphExecUpdateErrorNodeTypeChanged,
            update(pair(empty, empty, false), pair(empty, fill(4, 1, 1), true)));
  // Of a pair, the numbers of dependencies are compared before the types.
  const auto end_of = [&](std::size_t count, cudaGraphNodeParams params) {
    const cudaGraph_t graph = chain({empty, empty}, false);
    cudaGraphNode_t before[2] = {}, node = nullptr;
    std::size_t two = 2;
    EXPECT_EQ(cudaSuccess, cudaGraphGetNodes(graph, before, &two));
    EXPECT_EQ(cudaSuccess, cudaGraphAddNode(&node, graph, before, nullptr, count, &params));
    return graph;
  };
  EXPECT_EQ(cudaGraphExecUpdateErrorTopologyChanged, update(end_of(1, empty), end_of(2, fill(4, 1, 1))));
  cudaGraphNodeParams no_rows = fill(4, 1, 0);
  const cudaGraph_t graph = chain({}, true);
  cudaGraphNode_t node = nullptr;
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &no_rows));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, IsNotLaunchedIntoACapture) {
  cudaGraph_t graph = nullptr, lost = nullptr;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  add_set(graph, device<int>(1), 6);
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA(cudaErrorStreamCaptureUnsupported, cudaGraphLaunch(exec, stream_));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaGraphLaunch(exec, stream_));
  EXPECT_CUDA(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream_, &lost));
  ASSERT_OK(cudaGraphExecDestroy(exec));
  ASSERT_OK(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, AChildNodeInACaptureKeepsItsEdges) {
  int* target = device<int>(1);
  cudaGraph_t graph = nullptr, outer = nullptr, inner = nullptr;
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  ASSERT_OK(launch_set(stream_, target, 1));
  ASSERT_OK(launch_add(stream_, target, target, 1));
  ASSERT_OK(launch_add(stream_, target, target, 1));
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status;
  ASSERT_OK(cudaStreamGetCaptureInfo(stream_, &status, nullptr, &outer, nullptr, nullptr, nullptr));
  cudaGraphNodeParams params = node_params(cudaGraphNodeTypeGraph);
  params.graph.graph = graph;
  cudaGraphNode_t child = nullptr;
  ASSERT_OK(cudaGraphAddNode(&child, outer, nullptr, nullptr, 0, &params));
  ASSERT_OK(cudaStreamUpdateCaptureDependencies(stream_, &child, nullptr, 1, cudaStreamSetCaptureDependencies));
  ASSERT_OK(launch_add(stream_, target, target, 10));
  ASSERT_OK(cudaStreamEndCapture(stream_, &outer));
  ASSERT_OK(cudaGraphDestroy(graph));
  ASSERT_OK(cudaGraphChildGraphNodeGetGraph(child, &inner));
  std::size_t edges = 0;
  ASSERT_OK(cudaGraphGetEdges(inner, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 2u);
  launch_and_destroy(outer);
  EXPECT_EQ(13, host(target, 1)[0]);
}

TEST_F(GraphTest, RefusesNodesOfOthersAndUnknownKernels) {
  cudaGraph_t one = nullptr, two = nullptr;
  ASSERT_OK(cudaGraphCreate(&one, 0));
  ASSERT_OK(cudaGraphCreate(&two, 0));
  cudaGraphNodeParams empty = node_params(cudaGraphNodeTypeEmpty);
  cudaGraphNode_t a = nullptr, b = nullptr;
  ASSERT_OK(cudaGraphAddNode(&a, one, nullptr, nullptr, 0, &empty));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGraphAddNode(&b, two, &a, nullptr, 1, &empty));
  int unknown = 0;
  cudaGraphNodeParams kernel = node_params(cudaGraphNodeTypeKernel);
  kernel.kernel.func = &unknown;
  kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction, cudaGraphAddNode(&b, two, nullptr, nullptr, 0, &kernel));
  ASSERT_OK(cudaGraphDestroy(one));
  ASSERT_OK(cudaGraphDestroy(two));
}

}  // namespace
}  // namespace emu_test::graph_test
