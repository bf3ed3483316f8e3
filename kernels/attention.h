// What the bodies of attention share.
#pragma once

#include "kernels/block.h"

namespace graphsink {

constexpr std::int64_t kMaxHeadWidth = 128;

// Sizes of q [heads, queries, width] and of k and v [heads, keys, width], all heads of all batches together.
struct AttentionSizes {
  std::int64_t heads = 0, queries = 0, keys = 0, width = 0;
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

}  // namespace graphsink
