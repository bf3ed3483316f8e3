// Sums and maxima over a warp or block, always in the same order. Kernels that are compiled while the program runs
// include this, too: see scalar.h.
#pragma once

#include "kernels/support/scalar.h"

namespace graphsink {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the sum to all lanes. Each addition uses the same two numbers in both lanes of a pair, so all lanes hold the
// same bits.
template <class T>
__device__ inline T warp_sum(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}
template <class T>
__device__ inline T warp_max(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    T other = __shfl_xor_sync(kAllLanes, x, offset);
    x = x < other ? other : x;
  }
  return x;
}

// Returns the sum to the first warp. The block must be one-dimensional and consist of whole warps, and all its threads
// must make the call. The caller must put a barrier between two calls.
template <class T>
__device__ inline T block_sum(T x) {
  __shared__ T partial[kWarp];
  unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = warp_sum(x);
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  if (warp == 0) x = warp_sum(lane < blockDim.x / kWarp ? partial[lane] : T(0));
  return x;
}

}  // namespace graphsink
