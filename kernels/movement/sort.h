// Sorting by swaps that do not depend on the elements (Batcher 1968, "Sorting networks and their applications"). For
// run = 2, 4, ... pairs of sorted runs are merged, alternately upwards and downwards, in steps that compare elements
// run / 2, run / 4, ..., 1 apart. Elements differ, so there is one result.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

constexpr int kBlockSort = 2048;  // elements that a block sorts at once

// Pair number `pair` of a step; the first of `items` is element `begin` of the whole.
template <class T, class Before>
__device__ inline void sort_pair(T* items, std::int64_t pair, std::int64_t begin, std::int64_t run, std::int64_t apart,
                                 const Before& before) {
  std::int64_t i = 2 * pair - (pair & (apart - 1)), j = i + apart;
  T a = items[i], b = items[j];
  bool ascends = ((begin + i) & run) == 0;
  if (before(b, a) != ascends) return;
  items[i] = b;
  items[j] = a;
}

// The steps of a run from `apart` on. All threads of the block make the call, with all elements written.
template <class T, class Before>
__device__ inline void merge_in_block(T* items, int size, std::int64_t begin, std::int64_t run, int apart,
                                      const Before& before) {
  for (; apart > 0; apart /= 2) {
    __syncthreads();
    for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += static_cast<int>(blockDim.x))
      sort_pair(items, pair, begin, run, apart, before);
  }
  __syncthreads();
}

// All steps of the runs up to `size`, a power of 2.
template <class T, class Before>
__device__ inline void sort_in_block(T* items, int size, std::int64_t begin, const Before& before) {
  for (int run = 2; run <= size; run *= 2) merge_in_block(items, size, begin, run, run / 2, before);
}

}  // namespace graphsink
