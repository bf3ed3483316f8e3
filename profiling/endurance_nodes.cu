#include <cuda_runtime.h>

#include <algorithm>

#include "graphsink/error.h"
#include "profiling/clock.h"
#include "profiling/endurance.h"

namespace graphsink::bench {
namespace {

// Memory is given to graphs in blocks, so small graphs are instantiated often enough to fill many of these.
constexpr std::int64_t kNodesInAll = 200000, kMostGraphs = 2000;

__global__ void add_one_kernel(int* x) { *x += 1; }

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error(call, {}, cudaGetErrorString(code), "run it on a machine with a working GPU");
}

// The kernels of a graph, one behind the other.
cudaGraph_t chain(cudaStream_t stream, int* x, std::int64_t nodes) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (std::int64_t i = 0; i < nodes; ++i) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(1);
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, add_one_kernel, x), "cudaLaunchKernelEx");
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

NodeBytes measure(int device, cudaStream_t stream, int* x, std::int64_t nodes, std::int64_t graphs) {
  cudaGraph_t graph = chain(stream, x, nodes);
  std::vector<cudaGraphExec_t> instantiated;
  const std::int64_t before = *used_device_bytes(device);
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < graphs; ++i) {
    instantiated.push_back(nullptr);
    check(cudaGraphInstantiate(&instantiated.back(), graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(instantiated.back(), stream), "cudaGraphUpload");
  }
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const double us = us_since(start) / static_cast<double>(graphs);
  const std::int64_t held = *used_device_bytes(device) - before;
  for (cudaGraphExec_t exec : instantiated) check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return {nodes, graphs, held, *used_device_bytes(device) - before, us};
}

}  // namespace

std::optional<std::int64_t> used_device_bytes(int device) {
  std::size_t free = 0, total = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
  return static_cast<std::int64_t>(total - free);
}

std::vector<NodeBytes> measure_node_bytes(int device, const std::vector<std::int64_t>& nodes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  int* x = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaMalloc(&x, sizeof *x), "cudaMalloc");
  std::vector<NodeBytes> rows;
  (void)measure(device, stream, x, 1, 1);  // the first row does not hold what the driver loads once
  for (std::int64_t n : nodes)
    rows.push_back(measure(device, stream, x, n, std::clamp<std::int64_t>(kNodesInAll / n, 4, kMostGraphs)));
  check(cudaFree(x), "cudaFree");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return rows;
}

}  // namespace graphsink::bench
