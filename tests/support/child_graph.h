// What stands for the launch of a graph in functions that may be captured: CUDA captures no launch.
#pragma once

#include <cuda_runtime_api.h>

namespace graphsink::testing {

// The result of the last call that was made, and its name.
struct GraphCall {
  cudaError_t code;
  const char* call;
};

// Makes `graph` a child graph node of the capture that `stream` takes part in, behind the stream's work so far. If the
// stream is not being captured, launches `exec`, which was instantiated from `graph`.
inline GraphCall enqueue_graph(cudaStream_t stream, cudaGraph_t graph, cudaGraphExec_t exec) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t captured = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, nullptr, &captured, &before, &edges, &count);
  if (code != cudaSuccess) return {code, "cudaStreamGetCaptureInfo"};
  if (status == cudaStreamCaptureStatusNone) return {cudaGraphLaunch(exec, stream), "cudaGraphLaunch"};
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = graph;
  cudaGraphNode_t child = nullptr;
  code = cudaGraphAddNode(&child, captured, before, edges, count, &params);
  if (code != cudaSuccess) return {code, "cudaGraphAddNode"};
  code = cudaStreamUpdateCaptureDependencies(stream, &child, nullptr, 1, cudaStreamSetCaptureDependencies);
  return {code, "cudaStreamUpdateCaptureDependencies"};
}

}  // namespace graphsink::testing
