// What the host tells the device at the beginning of a launch, and how the device decides loops and branches.
#include <cuda_runtime.h>

#include "device/cuda/control.h"
#include "device/step_times.h"

namespace graphsink {
namespace {

constexpr unsigned kThreads = 64;
static_assert(kMaxFeeds <= kThreads);

__global__ void begin_launch(const __grid_constant__ LaunchParams params) {
  int i = static_cast<int>(threadIdx.x);
  if (i < params.feeds) {
    params.rings[i] = params.ring[i];
    params.strides[i] = params.stride[i];
  }
  if (i == 0) {
    params.block->slice = params.first_slice;
    params.block->end_slice = params.end_slice;
    params.block->seed = params.seed;
    params.block->more = params.first_slice < params.end_slice;
    params.block->times = params.times;
    params.block->tag = params.tag;
    if (params.times) params.block->began = device_now();
  }
}

__global__ void decide(const bool* predicate, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, *predicate ? 1u : 0u);
}

cudaLaunchConfig_t one_block(cudaStream_t stream, unsigned threads) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(threads);
  config.stream = stream;
  return config;
}

}  // namespace

cudaError_t launch_begin(cudaStream_t stream, const LaunchParams& params) {
  cudaLaunchConfig_t config = one_block(stream, kThreads);
  return cudaLaunchKernelEx(&config, begin_launch, params);
}

cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle) {
  cudaLaunchConfig_t config = one_block(stream, 1);
  return cudaLaunchKernelEx(&config, decide, predicate, handle);
}

cudaError_t load_control_kernels() {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, begin_launch);
  return code == cudaSuccess ? cudaFuncGetAttributes(&attributes, decide) : code;
}

}  // namespace graphsink
