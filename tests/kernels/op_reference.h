// The ops in plain C++ and f64: what every body is compared with.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
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

// Where element i of a tensor of shape `large` is in one of shape `small`, which broadcasts to it.
inline std::int64_t position(std::int64_t i, const Shape& large, const Shape& small) {
  std::int64_t result = 0, stride = 1;
  for (int d = -1; d >= -large.rank(); --d) {
    std::int64_t coordinate = i % large[d];
    i /= large[d];
    if (d < -small.rank()) continue;
    if (small[d] != 1) result += coordinate * stride;
    stride *= small[d];
  }
  return result;
}

inline Array map(const Array& x, const std::function<double(double)>& f) {
  Array y(x.shape);
  for (std::int64_t i = 0; i < y.shape.size(); ++i) y[i] = f(x[i]);
  return y;
}

inline Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  Shape shape = a.shape.rank() >= b.shape.rank() ? a.shape : b.shape;
  const Shape& other = a.shape.rank() >= b.shape.rank() ? b.shape : a.shape;
  for (int d = -1; d >= -other.rank(); --d)
    if (shape[d] == 1) shape[d] = other[d];
  Array y(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i)
    y[i] = f(a[position(i, shape, a.shape)], b[position(i, shape, b.shape)]);
  return y;
}

// Elements of a where x < 1/2, of b elsewhere.
inline Array choose(const Array& x, const Array& a, const Array& b) {
  auto shaped = [&](const Array& y) {
    return map(map(map(x, a, [](double, double v) { return v; }), b, [](double v, double) { return v; }), y,
               [](double, double v) { return v; });
  };
  Array conditions = map(map(x, a, [](double c, double) { return c; }), b, [](double c, double) { return c; });
  Array first = shaped(a), second = shaped(b);
  for (std::int64_t i = 0; i < conditions.shape.size(); ++i)
    if (conditions[i] < 0.5) second[i] = first[i];
  return second;
}

inline Array broadcast_to(const Array& x, const Shape& shape) {
  Array y(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i) y[i] = x[position(i, shape, x.shape)];
  return y;
}

// Sums x to a shape that broadcasts to its own.
inline Array sum_to(const Array& x, const Shape& shape) {
  Array y(shape);
  for (std::int64_t i = 0; i < x.shape.size(); ++i) y[position(i, x.shape, shape)] += x[i];
  return y;
}

inline Array with_shape(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

inline Array reduce(const Array& x, std::vector<int> axes, bool keep_axes, bool is_mean) {
  Shape kept = x.shape, dropped;
  for (int& axis : axes) axis = axis < 0 ? axis + x.shape.rank() : axis;
  double terms = 1;
  for (int d = 0; d < x.shape.rank(); ++d) {
    bool is_reduced = axes.empty() || std::find(axes.begin(), axes.end(), d) != axes.end();
    if (!is_reduced) dropped.push_back(x.shape[d]);
    if (!is_reduced) continue;
    terms *= static_cast<double>(x.shape[d]);
    kept[d] = 1;
  }
  Array y = sum_to(x, kept);
  if (is_mean) y = map(y, [=](double v) { return v / terms; });
  return keep_axes ? y : with_shape(y, dropped);
}

inline Array swap_last(const Array& x) {
  Shape shape = x.shape;
  std::swap(shape[-1], shape[-2]);
  Array y(shape);
  std::int64_t rows = x.shape[-2], columns = x.shape[-1];
  for (std::int64_t i = 0; i < y.shape.size(); ++i) {
    std::int64_t matrix = i / (rows * columns) * rows * columns, c = i % (rows * columns) / rows, r = i % rows;
    y[i] = x[matrix + r * columns + c];
  }
  return y;
}

inline Array product(Array a, Array b, bool transpose_a, bool transpose_b) {
  if (transpose_a) a = swap_last(a);
  if (transpose_b) b = swap_last(b);
  Array y({a.shape[0], b.shape[1]});
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t k = 0; k < a.shape[1]; ++k)
      for (std::int64_t j = 0; j < b.shape[1]; ++j)
        y[i * b.shape[1] + j] += a[i * a.shape[1] + k] * b[k * b.shape[1] + j];
  return y;
}

inline Array rows_of(const Array& table, const Array& indices) {
  Shape shape = indices.shape;
  std::int64_t width = table.shape[1];
  shape.push_back(width);
  Array y(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i)
    y[i] = table[static_cast<std::int64_t>(indices[i / width]) * width + i % width];
  return y;
}

inline Array mean_cross_entropy(const Array& logits, const Array& targets) {
  std::int64_t rows = logits.shape[0], classes = logits.shape[1];
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(logits[r * classes + c]);
    sum += std::log(total) - logits[r * classes + static_cast<std::int64_t>(targets[r])];
  }
  Array y{Shape{}};
  y[0] = sum / static_cast<double>(rows);
  return y;
}

}  // namespace graphsink::testing
