// Clusters of blocks: what a kernel sees of its own, attributes of nodes, and what updates of an exec leave of them.
#include <algorithm>
#include <string>

#include "test_support.h"

namespace emu_test::cluster_test {
namespace {

class ClusterTest : public EmulatorTest {
 protected:
  static constexpr int kBlocks = 8;
  cudaGraph_t capture(unsigned cluster) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    EXPECT_EQ(cudaSuccess, launch_clusters(stream_, views_, kBlocks, dim3(cluster, cluster > 0, cluster > 0)));
    EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(stream_, &graph));
    return graph;
  }
  static cudaGraphNode_t node_of(cudaGraph_t graph) {
    cudaGraphNode_t node = nullptr;
    std::size_t one = 1;
    EXPECT_EQ(cudaSuccess, cudaGraphGetNodes(graph, &node, &one));
    return node;
  }
  static unsigned cluster_of(cudaGraphNode_t node) {
    cudaKernelNodeAttrValue value{};
    EXPECT_EQ(cudaSuccess, cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
    return value.clusterDim.x;
  }
  unsigned launch(cudaGraphExec_t exec) {
    EXPECT_EQ(cudaSuccess, cudaGraphLaunch(exec, stream_));
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    return host(views_, 1)[0].size;
  }
  void SetUp() override {
    EmulatorTest::SetUp();
    views_ = device<ClusterView>(kBlocks);
  }

  ClusterView* views_ = nullptr;
};

TEST_F(ClusterTest, AKernelKnowsItsOwn) {
  ASSERT_OK(launch_clusters(stream_, views_, kBlocks, dim3(4)));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  const std::vector<ClusterView> views = host(views_, kBlocks);
  for (unsigned i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(1u, views[i].is_specified);
    EXPECT_EQ(4u, views[i].size);
    EXPECT_EQ(i % 4, views[i].rank);
    EXPECT_EQ(i / 4, views[i].index);
    EXPECT_EQ(2u, views[i].clusters);
  }
  ASSERT_OK(launch_clusters(stream_, views_, kBlocks, dim3(0, 0, 0)));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  const ClusterView last = host(views_, kBlocks)[kBlocks - 1];
  EXPECT_EQ(0u, last.is_specified);
  EXPECT_EQ(1u, last.size);
  EXPECT_EQ(0u, last.rank);
  EXPECT_EQ(7u, last.index);
  EXPECT_EQ(8u, last.clusters);
}

TEST_F(ClusterTest, FillsTheGridAndHasEightBlocksAtMost) {
  EXPECT_CUDA(cudaErrorInvalidValue, launch_clusters(stream_, views_, kBlocks, dim3(3)));
  EXPECT_CUDA(cudaErrorInvalidValue, launch_clusters(stream_, views_, kBlocks, dim3(1, 2)));
  EXPECT_CUDA(cudaErrorInvalidClusterSize, launch_clusters(stream_, views_, 2 * kBlocks, dim3(16)));
  ASSERT_OK(launch_clusters(stream_, views_, kBlocks, dim3(8)));
  ASSERT_OK(cudaStreamSynchronize(stream_));
}

TEST_F(ClusterTest, IsAnAttributeOfNodes) {
  const cudaGraph_t two = capture(2), none = capture(0);
  EXPECT_EQ(2u, cluster_of(node_of(two)));
  EXPECT_EQ(0u, cluster_of(node_of(none)));
  ASSERT_OK(cudaGraphKernelNodeCopyAttributes(node_of(none), node_of(two)));
  EXPECT_EQ(2u, cluster_of(node_of(none)));
  cudaKernelNodeAttrValue value{};
  value.clusterDim = {4, 1, 1};
  ASSERT_OK(cudaGraphKernelNodeSetAttribute(node_of(none), cudaLaunchAttributeClusterDimension, &value));
  cudaGraphExec_t exec = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&exec, none, 0));
  EXPECT_EQ(4u, launch(exec));
  ASSERT_OK(cudaGraphExecDestroy(exec));
  for (const cudaGraph_t graph : {two, none}) ASSERT_OK(cudaGraphDestroy(graph));
}

// Nothing tells the program of it: the kernel runs in clusters of the size it had before.
TEST_F(ClusterTest, StaysInAnExecWhoseNewGraphSaysNothingOfIt) {
  for (const unsigned from : {0u, 1u, 2u, 4u}) {
    for (const unsigned to : {0u, 1u, 2u, 4u}) {
      SCOPED_TRACE(std::to_string(from) + " becomes " + std::to_string(to));
      const cudaGraph_t before = capture(from), after = capture(to);
      cudaGraphExec_t exec = nullptr;
      ASSERT_OK(cudaGraphInstantiate(&exec, before, 0));
      EXPECT_EQ(std::max(from, 1u), launch(exec));
      cudaGraphExecUpdateResultInfo info{};
      ASSERT_OK(cudaGraphExecUpdate(exec, after, &info));
      EXPECT_EQ(to > 0 ? to : std::max(from, 1u), launch(exec));
      EXPECT_EQ(to, cluster_of(node_of(after))) << "the graph itself is as it was";
      ASSERT_OK(cudaGraphExecDestroy(exec));
      for (const cudaGraph_t graph : {before, after}) ASSERT_OK(cudaGraphDestroy(graph));
    }
  }
}

}  // namespace
}  // namespace emu_test::cluster_test
