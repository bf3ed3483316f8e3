// Sums and maxima along rows, always in the same order. On the GPU, a warp or a block shares a row.
#pragma once

#include <limits>

#include "kernels/support/block.h"
#include "kernels/support/dtype.h"

namespace graphsink {

// Rows with more elements get a block instead of a warp.
constexpr std::int64_t kWarpRow = 1024;
constexpr int kBlockWarps = static_cast<int>(kThreads) / kWarp;

// The threads that share a row. kWarps is 1 or kBlockWarps, the number of warps in a block. All threads of the block
// must make the same calls.
template <int kWarps>
struct RowGroup {
  static constexpr std::int64_t kSize = std::int64_t{kWarps} * kWarp;
  static __device__ std::int64_t lane() { return threadIdx.x % kSize; }
  static __device__ std::int64_t first_row() { return thread_index() / kSize; }
  static __device__ std::int64_t stride() { return all_threads() / kSize; }

  // Returns the result to all threads of the group. The barriers also protect `partial` until the next call.
  template <class T, class F>
  static __device__ T combine(T x, const F& f) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) x = f(x, __shfl_xor_sync(kAllLanes, x, offset));
    if constexpr (kWarps > 1) {
      __shared__ T partial[kWarps];
      if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
      __syncthreads();
      x = partial[0];
      for (int w = 1; w < kWarps; ++w) x = f(x, partial[w]);
      __syncthreads();
    }
    return x;
  }
  template <class T>
  static __device__ T sum(T x) {
    return combine(x, [](T a, T b) { return a + b; });
  }
};

// Returns the number of blocks, of kThreads threads each, for `rows` rows of `width` elements.
inline Extent row_blocks(std::int64_t rows, std::int64_t width) {
  std::int64_t per_block = width > kWarpRow ? 1 : kBlockWarps;
  return {static_cast<unsigned>(std::min((rows + per_block - 1) / per_block, kMaxBlocks)), 1, 1};
}
constexpr Extent kRowBlock{static_cast<unsigned>(kThreads), 1, 1};

// Sums value(i) for i in [0, n) on the CPU, in f64. It uses several independent chains of additions, so that one
// addition need not wait for the previous one.
template <class F>
double chained_sum(std::int64_t n, const F& value) {
  constexpr int kChains = 8;
  double chains[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains <= n; i += kChains)
    for (int j = 0; j < kChains; ++j) chains[j] += value(i + j);
  for (; i < n; ++i) chains[0] += value(i);
  double sum = 0;
  for (double chain : chains) sum += chain;
  return sum;
}
template <class X>
Wide<X> chained_max(std::int64_t n, const X* x) {
  using T = Wide<X>;
  constexpr int kChains = 8;
  T chains[kChains];
  for (T& chain : chains) chain = -std::numeric_limits<T>::infinity();
  std::int64_t i = 0;
  for (; i + kChains <= n; i += kChains)
    for (int j = 0; j < kChains; ++j) chains[j] = chains[j] < T(x[i + j]) ? T(x[i + j]) : chains[j];
  for (; i < n; ++i) chains[0] = chains[0] < T(x[i]) ? T(x[i]) : chains[0];
  T largest = chains[0];
  for (T chain : chains) largest = largest < chain ? chain : largest;
  return largest;
}

}  // namespace graphsink
