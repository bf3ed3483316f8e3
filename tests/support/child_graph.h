// What stands for the launch of a graph in functions that may be captured: CUDA captures no launch.
#pragma once

#include <cuda_runtime_api.h>

namespace graphsink::testing {

// Makes `graph` a child graph node of the capture that `stream` takes part in, behind the stream's work so far. If the
// stream is not being captured, launches `exec`, which was instantiated from `graph`.
inline cudaError_t enqueue_graph(cudaStream_t stream, cudaGraph_t graph, cudaGraphExec_t exec) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t captured = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  cudaError_t code = cudaStreamGetCaptureInfo(stream, &status, nullptr, &captured, &before, &edges, &count);
  if (code != cudaSuccess) return code;
  if (status == cudaStreamCaptureStatusNone) return cudaGraphLaunch(exec, stream);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = graph;
  cudaGraphNode_t child = nullptr;
  code = cudaGraphAddNode(&child, captured, before, edges, count, &params);
  if (code != cudaSuccess) return code;
  return cudaStreamUpdateCaptureDependencies(stream, &child, nullptr, 1, cudaStreamSetCaptureDependencies);
}

}  // namespace graphsink::testing
