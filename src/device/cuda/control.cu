// The kernels of the runtime: one takes the parameters of a launch, the others decide loops and branches on the device.
#include <cuda_runtime.h>

#include "device/cuda/control.h"
#include "graphsink/device_functions.h"

namespace graphsink {
namespace {

__global__ void take_params(const __grid_constant__ LaunchRing ring) {
  wait_for_inputs();
  begin_launch(ring);
}

__global__ void decide(const bool* predicate, cudaGraphConditionalHandle handle) {
  wait_for_inputs();
  cudaGraphSetConditional(handle, *predicate ? 1u : 0u);
}

__global__ void choose(const std::int32_t* index, cudaGraphConditionalHandle handle) {
  wait_for_inputs();
  cudaGraphSetConditional(handle, static_cast<unsigned>(*index));
}

__global__ void set_count(std::int64_t* left, std::int64_t count) {
  wait_for_inputs();
  *left = count;
}

__global__ void count_down(std::int64_t* left, cudaGraphConditionalHandle handle) {
  wait_for_inputs();
  cudaGraphSetConditional(handle, --*left > 0 ? 1u : 0u);
}

cudaLaunchConfig_t one_thread(cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return config;
}

}  // namespace

cudaError_t launch_begin(cudaStream_t stream, const LaunchRing& ring) {
  cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, take_params, ring);
}

cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle) {
  cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, decide, predicate, handle);
}

cudaError_t launch_decide(cudaStream_t stream, const std::int32_t* index, cudaGraphConditionalHandle handle) {
  cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, choose, index, handle);
}

cudaError_t launch_set_count(cudaStream_t stream, std::int64_t* left, std::int64_t count) {
  cudaLaunchConfig_t config = one_thread(stream);
  return cudaLaunchKernelEx(&config, set_count, left, count);
}

cudaError_t add_count_down(cudaGraph_t graph, cudaGraphNode_t before, std::int64_t* left,
                           cudaGraphConditionalHandle handle) {
  void* arguments[] = {&left, &handle};
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = reinterpret_cast<void*>(count_down);
  params.kernel.gridDim = params.kernel.blockDim = dim3(1);
  params.kernel.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  return cudaGraphAddNode(&node, graph, &before, nullptr, 1, &params);
}

cudaError_t load_control_kernels(int* sm) {
  cudaFuncAttributes attributes = {};
  cudaError_t code = cudaFuncGetAttributes(&attributes, take_params);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, decide);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, choose);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, set_count);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, count_down);
  if (sm) *sm = attributes.ptxVersion;
  return code;
}

}  // namespace graphsink
