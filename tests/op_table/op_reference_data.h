// References for products and for ops that move data.
#pragma once

#include <array>

#include "graphsink/ops.h"
#include "op_reference.h"

namespace graphsink::testing {

Array batched_product(const Array& a, const Array& b, bool transpose_a, bool transpose_b);
// A tensor of f(coordinates).
Array generate(const Shape& shape, const std::function<double(const Shape&)>& f);
std::int64_t index_of(const Shape& shape, const Shape& at);
int from_front(int axis, int rank);
Array permuted(const Array& x, const std::vector<int>& axes);
using Numbers = std::vector<std::int64_t>;
// The indices of begin:end:step, walked one by one.
Numbers walk(std::int64_t size, std::int64_t begin, std::int64_t end, std::int64_t step);
Array sliced(const Array& x, const Numbers& begins, const Numbers& ends, const Numbers& steps);
Array padded(const Array& x, const Numbers& before, const Numbers& after, double value);
Array joined(const Arrays& parts, int axis);
Arrays parted(const Array& x, const Numbers& sizes, int axis);
// Element `at` of a tensor whose axis is indexed: the index, and where it is in the tensor with the axis.
std::int64_t indexed_position(const Shape& at, const Shape& x, const Array& indices, int axis);
Array gathered(const Array& x, const Array& indices, int axis);
Array scattered(Array base, const Array& indices, const Array& updates, int axis);
struct WindowOptions {
  std::array<std::int64_t, 2> window, stride, padding, dilation{1, 1};
};
Shape windowed(Shape shape, const WindowOptions& o);
Array convolved(const Array& x, const Array& w, const Conv2dOptions& o);
Array pooled(const Array& x, const WindowOptions& o, bool is_max);
}  // namespace graphsink::testing
