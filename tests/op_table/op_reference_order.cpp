#include "op_reference_order.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graphsink::testing {

Array folded(const Array& x, const std::vector<int>& axes, bool keep_axes,
             const std::function<double(const std::vector<double>&)>& f) {
  Array shaped = reduce(x, axes, keep_axes, false);
  Shape kept = reduce(x, axes, true, false).shape;
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.size()));
  std::vector<std::size_t> group = positions(x.shape, kept);
  for (std::size_t i = 0; i < x.at.size(); ++i) groups[group[i]].push_back(x.at[i]);
  std::transform(groups.begin(), groups.end(), shaped.at.begin(), f);
  return shaped;
}

Array extreme_of(const Array& x, std::vector<int> axes, bool keep_axes, bool is_max) {
  return folded(x, axes, keep_axes, [=](const std::vector<double>& group) {
    auto [least, most] = std::minmax_element(group.begin(), group.end());
    return is_max ? *most : *least;
  });
}

Numbers sorted_places(const Array& x, const Lines& lines, std::int64_t line, bool descends) {
  Numbers places;
  for (std::int64_t k = 0; k < lines.length; ++k) places.push_back(k);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    double first = x[lines.at(line, a)], second = x[lines.at(line, b)];
    return descends ? first > second : first < second;
  });
  return places;
}

Array extreme_place(const Array& x, int axis, bool keep_axis, bool is_max) {
  Array y = reduce(x, {axis}, keep_axis, false);
  Lines lines(x.shape, axis);
  for (std::int64_t line = 0; line < y.shape.size(); ++line)
    y[line] = static_cast<double>(sorted_places(x, lines, line, is_max)[0]);
  return y;
}

namespace {
Array first_of(const Array& x, std::int64_t k, int axis, bool descends, bool are_places) {
  Shape shape = x.shape;
  shape[axis] = k;
  Array y(shape);
  Lines lines(x.shape, axis);
  for (std::int64_t line = 0; line < lines.outer * lines.inner; ++line) {
    Numbers places = sorted_places(x, lines, line, descends);
    for (std::int64_t i = 0; i < k; ++i) {
      std::int64_t place = places[static_cast<std::size_t>(i)];
      y[lines.at(line, i, k)] = are_places ? static_cast<double>(place) : x[lines.at(line, place)];
    }
  }
  return y;
}
}  // namespace

Array top_of(const Array& x, std::int64_t k, int axis, bool are_places) {
  return first_of(x, k, axis, true, are_places);
}

Array sorted_of(const Array& x, int axis, bool descends, bool are_places) {
  return first_of(x, x.shape[axis], axis, descends, are_places);
}

Array sums_along(const Array& x, int axis, bool exclusive, bool reverse) {
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
