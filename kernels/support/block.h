// Sums and maxima over a warp or block, always in the same order.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// In all lanes. Each step adds the same two numbers in both lanes of a pair, so all lanes hold the same bits.
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

// In the first warp. The block is one-dimensional and made of whole warps; all its threads make the call. Between two
// calls there is a barrier.
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
