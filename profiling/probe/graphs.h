// The calls with which probes capture graphs, name their nodes, and time a piece of work as a link of a chain.
#pragma once

#include <cuda.h>

#include <string>

#include "probe.h"

namespace probe {

template <class F>
cudaGraph_t capture(cudaStream_t s, const F& enqueue) {
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  enqueue();
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(s, &graph));
  return graph;
}

inline std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  NEED(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  NEED(cudaGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

// The name of a kernel node's kernel; of other nodes their type.
inline std::string name_of(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  NEED(cudaGraphNodeGetType(node, &type));
  if (type == cudaGraphNodeTypeConditional) return "conditional";
  if (type != cudaGraphNodeTypeKernel) return "type " + std::to_string(int(type));
  auto params_of = driver_function<decltype(&cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
  auto name_of_function = driver_function<decltype(&cuFuncGetName)>("cuFuncGetName", 12030);
  auto name_of_kernel = driver_function<decltype(&cuKernelGetName)>("cuKernelGetName", 12030);
  if (params_of == nullptr || name_of_function == nullptr || name_of_kernel == nullptr) return "a kernel";
  CUDA_KERNEL_NODE_PARAMS params = {};
  const char* name = nullptr;
  if (params_of(node, &params) != CUDA_SUCCESS) return "a kernel";
  if (params.kern != nullptr) {
    name_of_kernel(&name, params.kern);
  } else {
    name_of_function(&name, params.func);
  }
  return name != nullptr ? name : "a kernel";
}

// Microseconds of `links` pieces of work, one behind the other in one launch of a graph: the median of some launches.
template <class F>
double us_of_chain(cudaStream_t s, int links, const F& enqueue) {
  constexpr int kLaunches = 15;
  cudaGraph_t graph = capture(s, [&] {
    for (int i = 0; i < links; ++i) enqueue();
  });
  cudaGraphExec_t exec = instantiate(graph);
  cudaEvent_t begin, end;
  NEED(cudaEventCreate(&begin));
  NEED(cudaEventCreate(&end));
  std::vector<float> us;
  for (int i = -2; i < kLaunches; ++i) {  // two launches warm up
    NEED(cudaEventRecord(begin, s));
    NEED(cudaGraphLaunch(exec, s));
    NEED(cudaEventRecord(end, s));
    NEED(cudaStreamSynchronize(s));
    float ms = 0;
    NEED(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 0) us.push_back(1e3f * ms);
  }
  std::nth_element(us.begin(), us.begin() + kLaunches / 2, us.end());
  NEED(cudaEventDestroy(begin));
  NEED(cudaEventDestroy(end));
  NEED(cudaGraphExecDestroy(exec));
  NEED(cudaGraphDestroy(graph));
  return double(us[kLaunches / 2]);
}

// Microseconds by which 20 more links make a chain longer, for each: the work and the way from one node to the next,
// without what a launch costs.
template <class F>
double us_in_chain(cudaStream_t s, const F& enqueue) {
  return (us_of_chain(s, 24, enqueue) - us_of_chain(s, 4, enqueue)) / 20;
}

}  // namespace probe
