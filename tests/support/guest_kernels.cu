#include "guest_kernels.h"

#include <cuda_runtime.h>

namespace graphsink::testing {
namespace {

__global__ void affine_kernel(int* sum, int factor, int amount) { *sum = factor * *sum + amount; }
__global__ void take_kernel(GuestStruct) {}
__global__ void empty_kernel() {
#if defined(GRAPHSINK_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  cudaGridDependencySynchronize();
#endif
}
__global__ void append_kernel(const float* x, const int* label, int n, float* xs, int* labels, int* count) {
  for (int i = 0; i < n; ++i) {
    xs[*count + i] = x[i];
    labels[*count + i] = label[i];
  }
  *count += n;
}

cudaLaunchConfig_t one_thread(cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return config;
}

}  // namespace

void guest_affine(cudaStream_t stream, int* sum, int factor, int amount) {
  const cudaLaunchConfig_t config = one_thread(stream);
  (void)cudaLaunchKernelEx(&config, affine_kernel, sum, factor, amount);
}

void guest_take(cudaStream_t stream, const GuestStruct& value) {
  const cudaLaunchConfig_t config = one_thread(stream);
  (void)cudaLaunchKernelEx(&config, take_kernel, value);
}

void guest_launch(cudaStream_t stream, const cudaLaunchAttribute& attribute) {
  cudaLaunchAttribute copy = attribute;
  cudaLaunchConfig_t config = one_thread(stream);
  config.gridDim = dim3(2);
  config.attrs = &copy;
  config.numAttrs = 1;
  (void)cudaLaunchKernelEx(&config, empty_kernel);
}

void guest_append(cudaStream_t stream, const float* x, const int* label, int n, float* xs, int* labels, int* count) {
  const cudaLaunchConfig_t config = one_thread(stream);
  (void)cudaLaunchKernelEx(&config, append_kernel, x, label, n, xs, labels, count);
}

void guest_add(cudaStream_t stream, int* sum, int amount) { guest_affine(stream, sum, 1, amount); }

}  // namespace graphsink::testing
