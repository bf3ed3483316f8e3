// References for ops that compare elements, or go along an axis, in plain C++ and f64.
#pragma once

#include <algorithm>

#include "op_reference_data.h"

namespace graphsink::testing {

// Place k of a line along an axis, in a tensor with `count` or all places in it.
struct Lines {
  std::int64_t outer = 1, length = 1, inner = 1;
  Lines(const Shape& shape, int axis) {
    axis = from_front(axis, shape.rank());
    for (int d = 0; d < shape.rank(); ++d) (d < axis ? outer : d > axis ? inner : length) *= shape[d];
  }
  std::int64_t at(std::int64_t line, std::int64_t k, std::int64_t count) const {
    return (line / inner * count + k) * inner + line % inner;
  }
  std::int64_t at(std::int64_t line, std::int64_t k) const { return at(line, k, length); }
};
// f of the elements that become one, in their order.
Array folded(const Array& x, const std::vector<int>& axes, bool keep_axes,
             const std::function<double(const std::vector<double>&)>& f);
// Of each element of the result, the elements it is chosen from.
Array extreme_of(const Array& x, std::vector<int> axes, bool keep_axes, bool is_max);
// The places of a line in the order of their elements, the largest first; equals as they are.
Numbers sorted_places(const Array& x, const Lines& lines, std::int64_t line, bool descends);
Array extreme_place(const Array& x, int axis, bool keep_axis, bool is_max);
Array sorted_of(const Array& x, int axis, bool descends, bool are_places);
// The largest k of each line and their places, in f64.
Array top_of(const Array& x, std::int64_t k, int axis, bool are_places);
Array sums_along(const Array& x, int axis, bool exclusive, bool reverse);
}  // namespace graphsink::testing
