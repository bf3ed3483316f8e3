// Sorting by swaps that do not depend on the elements (Batcher 1968, "Sorting networks and their applications"), for as
// many elements as one block can sort. For run = 2, 4, ... pairs of sorted runs are merged, alternately upwards and
// downwards, in steps that compare elements run / 2, run / 4, ..., 1 apart. Elements differ, so there is one result.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

constexpr int kBlockSort = 2048;  // elements that a block sorts at once

// Pair number `pair` of a step.
template <class T, class Before>
__device__ inline void sort_pair(T* items, int pair, int run, int apart, const Before& before) {
  int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
  T a = items[i], b = items[j];
  bool ascends = (i & run) == 0;
  if (before(b, a) != ascends) return;
  items[i] = b;
  items[j] = a;
}

// Sorts `size` elements, a power of 2. All threads of the block make the call; there is a barrier at its beginning and
// at its end.
template <class T, class Before>
__device__ inline void sort_in_block(T* items, int size, const Before& before) {
  __syncthreads();
  for (int run = 2; run <= size; run *= 2) {
    for (int apart = run / 2; apart > 0; apart /= 2) {
      for (int pair = static_cast<int>(threadIdx.x); pair < size / 2; pair += static_cast<int>(blockDim.x))
        sort_pair(items, pair, run, apart, before);
      __syncthreads();
    }
  }
}

}  // namespace graphsink
