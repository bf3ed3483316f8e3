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

// Of each element of the result, the elements it is chosen from.
inline Array extreme_of(const Array& x, std::vector<int> axes, bool keep_axes, bool is_max) {
  Array shaped = reduce(x, axes, keep_axes, false);
  Shape kept = reduce(x, axes, true, false).shape;
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.size()));
  for (std::int64_t i = 0; i < x.shape.size(); ++i)
    groups[static_cast<std::size_t>(position(i, x.shape, kept))].push_back(x[i]);
  for (std::size_t o = 0; o < groups.size(); ++o) {
    auto [least, most] = std::minmax_element(groups[o].begin(), groups[o].end());
    shaped.at[o] = is_max ? *most : *least;
  }
  return shaped;
}

// The places of a line in the order of their elements, the largest first; equals as they are.
inline Numbers sorted_places(const Array& x, const Lines& lines, std::int64_t line, bool descends) {
  Numbers places;
  for (std::int64_t k = 0; k < lines.length; ++k) places.push_back(k);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    double first = x[lines.at(line, a)], second = x[lines.at(line, b)];
    return descends ? first > second : first < second;
  });
  return places;
}

inline Array extreme_place(const Array& x, int axis, bool keep_axis, bool is_max) {
  Array y = reduce(x, {axis}, keep_axis, false);
  Lines lines(x.shape, axis);
  for (std::int64_t line = 0; line < y.shape.size(); ++line)
    y[line] = static_cast<double>(sorted_places(x, lines, line, is_max)[0]);
  return y;
}
// The largest k of each line and their places, in f64.
inline Array top_of(const Array& x, std::int64_t k, int axis, bool are_places) {
  Shape shape = x.shape;
  shape[axis] = k;
  Array y(shape);
  Lines lines(x.shape, axis);
  for (std::int64_t line = 0; line < lines.outer * lines.inner; ++line) {
    Numbers places = sorted_places(x, lines, line, true);
    for (std::int64_t i = 0; i < k; ++i) {
      std::int64_t place = places[static_cast<std::size_t>(i)];
      y[lines.at(line, i, k)] = are_places ? static_cast<double>(place) : x[lines.at(line, place)];
    }
  }
  return y;
}

inline Array sums_along(const Array& x, int axis, bool exclusive, bool reverse) {
  Array y(x.shape);
  Lines lines(x.shape, axis);
  for (std::int64_t line = 0; line < lines.outer * lines.inner; ++line) {
    double sum = 0;
    for (std::int64_t k = 0; k < lines.length; ++k) {
      std::int64_t i = lines.at(line, reverse ? lines.length - 1 - k : k);
      sum += x[i];
      y[i] = exclusive ? sum - x[i] : sum;
    }
  }
  return y;
}

}  // namespace graphsink::testing
