// One-thread kernels for the cases.
#include <cuda_runtime.h>

#include "conformance/scene.h"

namespace conformance {
namespace {

__global__ void set(int* target, int value) { *target = value; }
__global__ void increase(int* target, int value) { *target += value; }
__global__ void increase_behind(int* target, int value) {
#if defined(GRAPHSINK_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  cudaGridDependencySynchronize();
#endif
  *target += value;
}

__global__ void tell_cluster([[maybe_unused]] int* target) {
#if defined(GRAPHSINK_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  if (blockIdx.x == 0) *target = static_cast<int>(__clusterSizeInBlocks());
#endif
}

__global__ void step(int* counter, int limit, cudaGraphConditionalHandle handle) {
  const int n = ++*counter;
  cudaGraphSetConditional(handle, n < limit ? 1u : 0u);
}

__global__ void decide(const int* value, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, static_cast<unsigned>(*value));
}

__global__ void trap() { __trap(); }

template <class... P, class... A>
cudaError_t launch_with(cudaStream_t stream, cudaLaunchAttribute* attribute, void (*kernel)(P...), A... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = attribute == nullptr ? 0 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// The software device has to hear of a kernel, too, before its address is used.
template <class... P>
cudaError_t load(void (*kernel)(P...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

}  // namespace

cudaError_t load_kernels() {
  for (const cudaError_t code :
       {load(set), load(increase), load(increase_behind), load(tell_cluster), load(step), load(decide), load(trap)}) {
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t launch_set(cudaStream_t stream, int* target, int value) {
  return launch_with(stream, nullptr, set, target, value);
}
cudaError_t launch_add(cudaStream_t stream, int* target, int value) {
  return launch_with(stream, nullptr, increase, target, value);
}
cudaError_t launch_with_threads(cudaStream_t stream, int* target, unsigned threads) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, set, target, 1);
}
cudaError_t launch_cluster(cudaStream_t stream, int* target, unsigned cluster) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(1);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = cluster == 0 ? 0 : 1;
  return cudaLaunchKernelEx(&config, tell_cluster, target);
}
cudaError_t launch_add_programmatic(cudaStream_t stream, int* target, int value) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return launch_with(stream, &attribute, increase_behind, target, value);
}
cudaError_t launch_cooperative(cudaStream_t stream, int* target, int value) {
  void* arguments[] = {&target, &value};
  return cudaLaunchCooperativeKernel(set_address(), dim3(1), dim3(1), arguments, 0, stream);
}
cudaError_t launch_step(cudaStream_t stream, int* counter, int limit, cudaGraphConditionalHandle handle) {
  return launch_with(stream, nullptr, step, counter, limit, handle);
}
cudaError_t launch_decide(cudaStream_t stream, const int* value, cudaGraphConditionalHandle handle) {
  return launch_with(stream, nullptr, decide, value, handle);
}
cudaError_t launch_trap(cudaStream_t stream) { return launch_with(stream, nullptr, trap); }

void* set_address() { return reinterpret_cast<void*>(set); }
void* add_address() { return reinterpret_cast<void*>(increase); }

}  // namespace conformance
