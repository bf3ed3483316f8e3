// Code that the bodies of attention share.
#pragma once

#include "kernels/support/block.h"

namespace graphsink {

constexpr std::int64_t kMaxHeadWidth = 128;

// Sizes of q [batches, heads_of_batch, queries, width] and of k and v [batches, heads_of_batch, keys, width].
struct AttentionSizes {
  std::int64_t heads = 0;  // heads of all batches together
  std::int64_t heads_of_batch = 1;
  std::int64_t queries = 0, keys = 0, width = 0;
  bool is_causal = false;
  double scale = 1;

  // Query i sees keys [0, visible(i)): the last query sees all of them.
  HD std::int64_t visible(std::int64_t i) const {
    std::int64_t end = is_causal ? i + keys - queries + 1 : keys;
    return end < 0 ? 0 : end;
  }
  // The first query that sees key j.
  HD std::int64_t first_query(std::int64_t j) const {
    std::int64_t first = is_causal ? j - (keys - queries) : 0;
    return first < 0 ? 0 : first;
  }
};

// The vectors of one head: row i is that of query or key i, or of its gradient.
template <class T>
struct HeadRows {
  T* first;
  std::int64_t pitch;  // elements from row to row

  HD T* operator[](std::int64_t i) const { return first + i * pitch; }
  HD HeadRows from(std::int64_t i) const { return {first + i * pitch, pitch}; }
};

// Where the rows of all heads lie in a tensor: so many elements after the first are the next batch, head and row.
struct HeadStrides {
  int tensor = 0;  // the number of the tensor among the inputs, or the outputs, of the op
  std::int64_t first = 0, batch = 0, head = 0, row = 0;
};
template <class T>
struct Heads {
  T* data;
  HeadStrides strides;

  // Those of head h, counted over all batches.
  HD HeadRows<T> rows(const AttentionSizes& s, std::int64_t h) const {
    return {data + strides.first + h / s.heads_of_batch * strides.batch + h % s.heads_of_batch * strides.head,
            strides.row};
  }
};

// Two numbers of each query, for the gradient: the largest score, and the logarithm of the sum of exp(score - largest).
// They are kept apart, because added up, scores far from 0 would lose the digits of the logarithm.
template <class T>
struct AttentionNorms {
  T *largest, *log_sum;

  HD AttentionNorms from(std::int64_t query) const { return {largest + query, log_sum + query}; }
  HD std::remove_const_t<T> weight(T score, std::int64_t query) const {
    return math::exp(score - largest[query] - log_sum[query]);
  }
};

// The number to subtract from scores before exp(); `largest` is their maximum. If that is -inf, it is 0, so that all
// exponentials are 0.
template <class T>
HD T subtrahend(T largest) {
  return largest == T(-INFINITY) ? T(0) : largest;
}

}  // namespace graphsink
