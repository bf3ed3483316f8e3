// The ops in plain C++ and f64: what every body is compared with.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "graphsink/type.h"

namespace graphsink::testing {

struct Array {
  Shape shape;
  std::vector<double> at;

  Array() = default;
  explicit Array(const Shape& s) : shape(s), at(static_cast<std::size_t>(s.size())) {}
  double& operator[](std::int64_t i) { return at[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return at[static_cast<std::size_t>(i)]; }
};
using Arrays = std::vector<Array>;
// Where each element of a tensor of shape `large` is in one of shape `small`, which broadcasts to it.
std::vector<std::size_t> positions(const Shape& large, const Shape& small);
Array map(const Array& x, const std::function<double(double)>& f);
Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f);
// Elements of a where x < 1/2, of b elsewhere.
Array choose(const Array& x, const Array& a, const Array& b);
// The mean of the elements of `values` where x < 1/2, 0 if there are none.
Array mean_where_less(const Array& x, const Array& values);
Array broadcast_to(const Array& x, const Shape& shape);
// Sums x to a shape that broadcasts to its own.
Array sum_to(const Array& x, const Shape& shape);
Array with_shape(Array x, const Shape& shape);
Array reduce(const Array& x, std::vector<int> axes, bool keep_axes, bool is_mean);
Array swap_last(const Array& x);
Array product(Array a, Array b, bool transpose_a, bool transpose_b);
Array rows_of(const Array& table, const Array& indices);
// -log softmax(logits)[target] of each row, 0 where the target is `ignored`.
Array row_losses(const Array& logits, const Array& targets, std::optional<std::int64_t> ignored);
// Of the others.
Array mean_of_counted(const Array& losses, const Array& targets, std::optional<std::int64_t> ignored);
}  // namespace graphsink::testing
