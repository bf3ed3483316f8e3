// Clusters of blocks: what is captured of them, the attribute of a node, and what updates of an exec make of it.
#include <algorithm>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kAttribute = "2 attributes of kernel nodes, cluster dimension [header]";

unsigned cluster_of(Recorder& r, cudaGraphNode_t node) {
  cudaKernelNodeAttrValue value = {};
  r.call("cudaGraphKernelNodeGetAttribute",
         cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
  return value.clusterDim.x;
}

cudaKernelNodeAttrValue cluster_value(unsigned cluster) {
  cudaKernelNodeAttrValue value = {};
  value.clusterDim.x = cluster;
  value.clusterDim.y = value.clusterDim.z = 1;
  return value;
}

// A launch in clusters, recorded.
cudaGraph_t capture_cluster(Recorder& r, int* memory, unsigned cluster) {
  const cudaStream_t stream = make_stream(r);
  begin(r, stream);
  r.need("kernel launch", launch_cluster(stream, memory, cluster));
  return end(r, stream);
}

std::vector<Case> attribute_cases() {
  return {{"cluster.live_launch",
           "2 cluster dimension of a launch [header]",
           {returns("kernel launch", cudaSuccess), gives("ran with", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             r.call("kernel launch", launch_cluster(make_stream(r), memory, 2));
             r.value("ran with", read_int(r, memory));
           }},
          {"cluster.captured_launch",
           kAttribute,
           {returns("cudaGraphKernelNodeGetAttribute", cudaSuccess), gives("cluster", 2), gives("ran with", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = capture_cluster(r, memory, 2);
             r.value("cluster", cluster_of(r, first_node(r, graph)));
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("ran with", read_int(r, memory));
           }},
          {"cluster.set_on_a_node",
           kAttribute,
           {returns("cudaGraphKernelNodeSetAttribute", cudaSuccess),
            returns("cudaGraphKernelNodeGetAttribute", cudaSuccess), gives("cluster", 4), gives("ran with", 4)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraph_t graph = capture_cluster(r, memory, 0);
             const cudaGraphNode_t node = first_node(r, graph);
             const cudaKernelNodeAttrValue value = cluster_value(4);
             r.call("cudaGraphKernelNodeSetAttribute",
                    cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
             r.value("cluster", cluster_of(r, node));
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("ran with", read_int(r, memory));
           }},
          {"cluster.copied_from_another_node",
           kAttribute,
           {returns("cudaGraphKernelNodeCopyAttributes", cudaSuccess),
            returns("cudaGraphKernelNodeGetAttribute", cudaSuccess), gives("cluster", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaGraphNode_t from = first_node(r, capture_cluster(r, memory, 2)),
                                   to = first_node(r, capture_cluster(r, memory, 0));
             r.call("cudaGraphKernelNodeCopyAttributes", cudaGraphKernelNodeCopyAttributes(to, from));
             r.value("cluster", cluster_of(r, to));
           }}};
}

// An exec of a launch in clusters is updated with a graph of one in others. A graph that says nothing of clusters
// leaves those that were there, which is wrong.
Case update(unsigned from, unsigned to) {
  const unsigned ran_with = to > 0 ? to : std::max(from, 1u);
  return {"cluster.update_" + std::to_string(from) + "_to_" + std::to_string(to),
          "4.3 cluster dimensions in cudaGraphExecUpdate [probe on an H100]",
          {returns("cudaGraphExecUpdate", cudaSuccess), gives("result", cudaGraphExecUpdateSuccess),
           gives("ran with", static_cast<int>(ran_with))},
          [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaGraphExec_t exec = instantiate(r, capture_cluster(r, memory, from));
            const cudaGraph_t other = capture_cluster(r, memory, to);
            cudaGraphExecUpdateResultInfo info = {};
            r.call("cudaGraphExecUpdate", cudaGraphExecUpdate(exec, other, &info));
            r.value("result", info.result);
            launch(r, exec, make_stream(r));
            r.value("ran with", read_int(r, memory));
          }};
}

}  // namespace

std::vector<Case> cluster_cases() {
  std::vector<Case> cases = attribute_cases();
  for (const unsigned from : {0u, 1u, 2u, 4u}) {
    for (const unsigned to : {0u, 1u, 2u, 4u}) {
      if (from != to) cases.push_back(update(from, to));
    }
  }
  return cases;
}

}  // namespace conformance
