// Orders elements for maxima and minima: a NaN precedes all other elements, and equal elements keep their order.
// Kernels that are compiled while the program runs include this, too: see scalar.h.
#pragma once

#include <limits>

#include "kernels/support/block.h"

namespace graphsink {

// The type in which elements are compared.
template <class T>
using Compared = std::conditional_t<std::is_same_v<T, std::uint8_t>, std::int32_t, Wide<T>>;

template <class V>
HD bool is_nan(V x) {
  return x != x;
}

// The order of a maximum. precedes_number() is precedes() of elements that are no NaN. replaces() tells whether `next`
// replaces the extreme found so far. It is precedes() except that a NaN replaces a NaN, which needs no branch and so
// allows vector code.
struct Larger {
  template <class V>
  HD static bool precedes_number(V x, V y) {
    return x > y;
  }
  template <class V>
  HD static bool precedes(V x, V y) {
    return x > y || (is_nan(x) && !is_nan(y));
  }
  template <class V>
  HD static bool replaces(V next, V most) {
    return (next > most) | is_nan(next);
  }
  // A value that precedes no other element.
  template <class V>
  HD static V last() {
    return std::numeric_limits<V>::has_infinity ? -std::numeric_limits<V>::infinity()
                                                : std::numeric_limits<V>::lowest();
  }
};
struct Smaller {
  template <class V>
  HD static bool precedes_number(V x, V y) {
    return x < y;
  }
  template <class V>
  HD static bool precedes(V x, V y) {
    return x < y || (is_nan(x) && !is_nan(y));
  }
  template <class V>
  HD static bool replaces(V next, V most) {
    return (next < most) | is_nan(next);
  }
  template <class V>
  HD static V last() {
    return std::numeric_limits<V>::has_infinity ? std::numeric_limits<V>::infinity() : std::numeric_limits<V>::max();
  }
};

// An element and its index. It has no constructor, because blocks keep arrays of it in shared memory.
template <class V>
struct Placed {
  V value;
  std::int32_t place;
};

// All places differ, so this is a total order.
template <class Order, class V>
HD bool precedes(const Placed<V>& a, const Placed<V>& b) {
  return Order::precedes(a.value, b.value) || (!Order::precedes(b.value, a.value) && a.place < b.place);
}
// Comes after every element.
template <class Order, class V>
HD Placed<V> no_place() {
  return {Order::template last<V>(), std::numeric_limits<std::int32_t>::max()};
}
// Reads `x` from the lane whose number differs from this one's by the bits of `lanes`.
template <class V>
__device__ inline Placed<V> from_lane_xor(Placed<V> x, int lanes) {
  return {__shfl_xor_sync(kAllLanes, x.value, lanes), __shfl_xor_sync(kAllLanes, x.place, lanes)};
}

}  // namespace graphsink
