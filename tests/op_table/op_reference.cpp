#include "op_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graphsink::testing {

std::vector<std::size_t> positions(const Shape& large, const Shape& small) {
  // From the innermost dimension outwards: what is known of one of its rows holds for each, moved by the dimension's
  // step.
  std::vector<std::size_t> result{0};
  if (large.size() == 0) return {};
  std::size_t stride = 1;
  for (int d = -1; d >= -large.rank(); --d) {
    bool is_repeated = d < -small.rank() || small[d] == 1;
    std::size_t step = is_repeated ? 0 : stride, row = result.size();
    for (std::size_t k = 1; k < static_cast<std::size_t>(large[d]); ++k)
      for (std::size_t i = 0; i < row; ++i) result.push_back(result[i] + k * step);
    if (!is_repeated) stride *= static_cast<std::size_t>(small[d]);
  }
  return result;
}

Array map(const Array& x, const std::function<double(double)>& f) {
  Array y(x.shape);
  for (std::size_t i = 0; i < y.at.size(); ++i) y.at[i] = f(x.at[i]);
  return y;
}

Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  Shape shape = a.shape.rank() >= b.shape.rank() ? a.shape : b.shape;
  const Shape& other = a.shape.rank() >= b.shape.rank() ? b.shape : a.shape;
  for (int d = -1; d >= -other.rank(); --d)
    if (shape[d] == 1) shape[d] = other[d];
  Array y(shape);
  std::vector<std::size_t> in_a = positions(shape, a.shape), in_b = positions(shape, b.shape);
  for (std::size_t i = 0; i < y.at.size(); ++i) y.at[i] = f(a.at[in_a[i]], b.at[in_b[i]]);
  return y;
}

Array mean_where_less(const Array& x, const Array& values) {
  const Array conditions = map(x, values, [](double c, double) { return c; });
  Array mean{Shape()};
  double count = 0;
  for (std::int64_t i = 0; i < values.shape.size(); ++i) {
    if (conditions[i] >= 0.5) continue;
    mean[0] += values[i];
    ++count;
  }
  mean[0] /= std::max(count, 1.0);
  return mean;
}

Array choose(const Array& x, const Array& a, const Array& b) {
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

Array broadcast_to(const Array& x, const Shape& shape) {
  Array y(shape);
  std::vector<std::size_t> in_x = positions(shape, x.shape);
  for (std::size_t i = 0; i < y.at.size(); ++i) y.at[i] = x.at[in_x[i]];
  return y;
}

Array sum_to(const Array& x, const Shape& shape) {
  Array y(shape);
  std::vector<std::size_t> in_y = positions(x.shape, shape);
  for (std::size_t i = 0; i < x.at.size(); ++i) y.at[in_y[i]] += x.at[i];
  return y;
}

Array with_shape(Array x, const Shape& shape) {
  x.shape = shape;
  return x;
}

Array reduce(const Array& x, std::vector<int> axes, bool keep_axes, bool is_mean) {
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

Array swap_last(const Array& x) {
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

Array product(Array a, Array b, bool transpose_a, bool transpose_b) {
  if (transpose_a) a = swap_last(a);
  if (transpose_b) b = swap_last(b);
  Array y({a.shape[0], b.shape[1]});
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t k = 0; k < a.shape[1]; ++k)
      for (std::int64_t j = 0; j < b.shape[1]; ++j)
        y[i * b.shape[1] + j] += a[i * a.shape[1] + k] * b[k * b.shape[1] + j];
  return y;
}

Array rows_of(const Array& table, const Array& indices) {
  Shape shape = indices.shape;
  std::int64_t width = table.shape[1];
  shape.push_back(width);
  Array y(shape);
  for (std::int64_t i = 0; i < shape.size(); ++i)
    y[i] = table[static_cast<std::int64_t>(indices[i / width]) * width + i % width];
  return y;
}

Array row_losses(const Array& logits, const Array& targets, std::optional<std::int64_t> ignored) {
  std::int64_t rows = logits.shape[0], classes = logits.shape[1];
  Array losses({rows});
  for (std::int64_t r = 0; r < rows; ++r) {
    auto target = static_cast<std::int64_t>(targets[r]);
    if (target == ignored) continue;
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(logits[r * classes + c]);
    losses[r] = std::log(total) - logits[r * classes + target];
  }
  return losses;
}

Array mean_of_counted(const Array& losses, const Array& targets, std::optional<std::int64_t> ignored) {
  double sum = 0, count = 0;
  for (std::int64_t r = 0; r < losses.shape.size(); ++r) {
    sum += losses[r];
    count += static_cast<std::int64_t>(targets[r]) == ignored ? 0 : 1;
  }
  Array mean{Shape{}};
  mean[0] = sum / count;
  return mean;
}
}  // namespace graphsink::testing
