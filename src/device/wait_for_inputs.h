// How every kernel begins, those of the runtime included. Included by code that knows __device__.
#pragma once

namespace graphsink {

// First statement of every kernel: with programmatic launch, waits until what the kernel reads has been written.
__device__ inline void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

}  // namespace graphsink
