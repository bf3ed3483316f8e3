// Sums and maxima along rows, always in the same order. On the GPU, a warp or a block shares a row.
#pragma once

#include <limits>

#include "kernels/support/dtype.h"
#include "kernels/support/threads.h"

namespace graphsink {

static_assert(kBlock == kThreads);

// Rows with more elements get a block instead of a warp.
constexpr std::int64_t kWarpRow = 1024;

// Returns the number of blocks, of kThreads threads each, for `rows` rows of `width` elements.
inline Extent row_blocks(std::int64_t rows, std::int64_t width) {
  std::int64_t per_block = width > kWarpRow ? 1 : kThreads / kWarp;
  return {static_cast<unsigned>(std::min((rows + per_block - 1) / per_block, kMaxBlocks)), 1, 1};
}
constexpr Extent kRowBlock{static_cast<unsigned>(kThreads), 1, 1};

// The number of elements from which a row is worth kLanes lanes.
constexpr std::int64_t kLongRow = kLanes;

// Sums value(i) for i in [0, n) on the CPU, in f64. It uses several independent chains of additions, so that one
// addition need not wait for the previous one.
template <class F>
double sum_in_few_chains(std::int64_t n, const F& value) {
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
template <class F>
double chained_sum(std::int64_t n, const F& value) {
  if (n < kLongRow) return sum_in_few_chains(n, value);
  return reduce_in_lanes(
      n, 0.0, [=](double sum, std::int64_t i) { return sum + value(i); }, [](double a, double b) { return a + b; });
}
// The sum of exp(x[i] - largest) on the CPU. Blocks of exponentials are computed in their own type first, because
// vectors hold more of those than of f64.
template <class X>
double exponential_sum(std::int64_t n, const X* x, Wide<X> largest) {
  constexpr std::int64_t kBlock = 512;
  Wide<X> exponentials[kBlock];
  Wide<X>* terms = exponentials;
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    std::int64_t count = std::min(kBlock, n - first);
    const X* from = x + first;
    for_each_index(count, [=](std::int64_t i) { terms[i] = math::exp(Wide<X>(from[i]) - largest); });
    sum += chained_sum(count, [=](std::int64_t i) { return double{terms[i]}; });
  }
  return sum;
}
// The largest element that is not a NaN, or -inf.
template <class X>
Wide<X> chained_max(std::int64_t n, const X* x) {
  using T = Wide<X>;
  auto larger = [](T a, T b) { return a < b ? b : a; };
  T largest = -std::numeric_limits<T>::infinity();
  if (n >= kLongRow) {
    return reduce_in_lanes(
        n, largest, [=](T most, std::int64_t i) { return larger(most, T(x[i])); }, larger);
  }
  for (std::int64_t i = 0; i < n; ++i) largest = larger(largest, T(x[i]));
  return largest;
}

}  // namespace graphsink
