// broadcast_like and sum_like as ops: each is the other's gradient, and that of sum and mean.
#pragma once

#include <vector>

#include "graphsink/op.h"

namespace graphsink {

struct LikeAttrs {
  // Axes of the larger tensor that the smaller one lacks (ascending, from the front); its other axes are aligned at the
  // end as in NumPy.
  std::vector<int> axes;
  // Divide by the number of elements that become one, or that one becomes.
  bool is_mean = false;
};

extern const OpDef broadcast_like_op;
extern const OpDef sum_like_op;

inline Access like_access(int operand, int) { return operand == 1 ? Access::shape_only : Access::read; }

// `small` with a 1 at each of the axes. Precondition: there is room for them.
inline Shape with_axes(const Shape& small, const std::vector<int>& axes) {
  Shape result;
  std::size_t next_axis = 0;
  for (int d = 0; d < small.rank() || next_axis < axes.size();) {
    if (next_axis < axes.size() && axes[next_axis] == result.rank()) {
      result.push_back(1);
      ++next_axis;
    } else {
      result.push_back(d < small.rank() ? small[d++] : 1);
    }
  }
  return result;
}

inline bool broadcasts_to(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  for (int d = -1; d >= -small.rank(); --d)
    if (small[d] != 1 && small[d] != large[d]) return false;
  return true;
}

}  // namespace graphsink
