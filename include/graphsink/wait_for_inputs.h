// How a kernel begins that may be launched programmatically. Kernels that are compiled while the program runs include
// this alone; others get it with graphsink/kernel.h.
#pragma once

#include "graphsink/version.h"

#if defined(__CUDACC__) || defined(GRAPHSINK_EMULATED) || defined(GRAPHSINK_HOST_KERNELS)

namespace GRAPHSINK_PUBLIC graphsink {

// The first statement of a kernel of an op with OpTraits::kernels_wait, before any thread can return: waits until the
// kernels in front have ended and what they wrote can be read. Costs nothing in a kernel that is launched as usual.
__device__ inline void wait_for_inputs() {
#if defined(GRAPHSINK_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
  cudaGridDependencySynchronize();
#endif
}

}  // namespace graphsink

#endif
