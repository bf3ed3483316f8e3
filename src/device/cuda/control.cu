// The two kernels of the runtime: one takes the parameters of a launch, the other decides loops and branches on the
// device.
#include <cuda_runtime.h>

#include "device/cuda/control.h"
#include "device/wait_for_inputs.h"

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

cudaError_t load_control_kernels() {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, take_params);
  return code == cudaSuccess ? cudaFuncGetAttributes(&attributes, decide) : code;
}

}  // namespace graphsink
