// Functions that kernels call. Kernels that are compiled while the program runs include this header alone; others get
// it with graphsink/kernel.h.
#pragma once

#include <cstdint>

#include "graphsink/version.h"

#if defined(__CUDACC__) || defined(GRAPHSINK_EMULATED_KERNELS) || defined(GRAPHSINK_HOST_KERNELS)

namespace GRAPHSINK_PUBLIC graphsink {

// The first statement of a kernel of an op with OpTraits::kernels_wait, before any thread can return: waits until the
// kernels in front have ended and what they wrote can be read. Costs nothing in a kernel that is launched as usual.
__device__ inline void wait_for_inputs() {
#if defined(GRAPHSINK_EMULATED_KERNELS) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  cudaGridDependencySynchronize();
#endif
}

// The number of this thread in a grid of one dimension, and of all its threads.
__device__ inline std::int64_t thread_index() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

}  // namespace graphsink

#endif
