// Maps the elements of a result to the elements of its N broadcast operands.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

// Dimensions of size 1 are dropped, and neighbouring dimensions are merged if all operands allow it, so most layouts
// have rank 1. Each operand is then either contiguous or a single element. A Layout is small enough to be a kernel
// parameter.
template <int N>
struct Layout {
  std::int64_t size = 1;
  int rank = 0;
  std::int64_t dims[Shape::kMaxRank] = {};
  std::int64_t strides[N][Shape::kMaxRank] = {};  // 0 where an operand is repeated; in elements

  // Returns the number of elements in the innermost dimension.
  HD std::int64_t row() const { return rank == 0 ? size : dims[rank - 1]; }
  // Returns the stride in the innermost dimension, which is 0 or 1 for broadcast operands, because all of them are
  // row-major.
  HD std::int64_t step(int operand) const { return rank == 0 ? 1 : strides[operand][rank - 1]; }

  // Finds the offset of element i of the result in each operand.
  HD void find(std::int64_t i, std::int64_t (&offsets)[N]) const {
    for (int n = 0; n < N; ++n) offsets[n] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      std::int64_t outer = d > 0 ? quotient(i, dims[d]) : 0;  // the outermost coordinate needs no division
      std::int64_t coordinate = i - outer * dims[d];
      for (int n = 0; n < N; ++n) offsets[n] += coordinate * strides[n][d];
      i = outer;
    }
  }
  // The same for a single operand.
  HD std::int64_t find(std::int64_t i) const {
    std::int64_t offset[1];
    find(i, offset);
    return offset[0];
  }
};

// Walks along the rows of the innermost dimension, without the divisions of find(), which take longer than a short row.
class RowWalk {
 public:
  // Begins in the row of element `first` of the result.
  RowWalk(const Layout<1>& layout, std::int64_t first)
      : layout_(layout), place_(layout.rank == 0 ? 0 : first % layout.row()) {
    std::int64_t row = layout.rank == 0 ? 0 : first / layout.row();
    for (int d = layout.rank - 2; d >= 0; --d) {
      at_[d] = row % layout.dims[d];
      row /= layout.dims[d];
      begin_ += at_[d] * layout.strides[0][d];
    }
  }

  // The offset in the operand of the next element: of `first` at the beginning, and then of the first of each row.
  std::int64_t offset() const { return begin_ + place_ * layout_.step(0); }
  // How many elements of the row are left.
  std::int64_t left() const { return layout_.row() - place_; }
  void next_row() { next_rows(1); }

  // How many rows, this one included, follow one another at a distance of row_stride() elements of the operand.
  std::int64_t rows_left() const {
    return layout_.rank < 2 ? 1 : layout_.dims[layout_.rank - 2] - at_[layout_.rank - 2];
  }
  std::int64_t row_stride() const { return layout_.rank < 2 ? 0 : layout_.strides[0][layout_.rank - 2]; }
  // Goes on to the beginning of a later row: `count` is at most rows_left().
  void next_rows(std::int64_t count) {
    place_ = 0;
    for (int d = layout_.rank - 2; d >= 0; --d, count = 1) {
      begin_ += count * layout_.strides[0][d];
      at_[d] += count;
      if (at_[d] < layout_.dims[d]) return;
      begin_ -= layout_.dims[d] * layout_.strides[0][d];
      at_[d] = 0;
    }
  }

 private:
  const Layout<1>& layout_;
  std::int64_t place_;      // in the row
  std::int64_t begin_ = 0;  // the offset of the row
  std::int64_t at_[Shape::kMaxRank] = {};
};

// Sets the strides of a dense tensor, in elements.
inline void dense_strides(const Shape& shape, std::int64_t (&strides)[Shape::kMaxRank]) {
  std::int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape[d];
  }
}

// Returns the shape to which both are broadcast. If they do not fit, throws Error with `problem` and `remedy`.
inline Shape broadcast_shape(const InferArgs& a, const Shape& x, const Shape& y,
                             const char* problem = "the shapes do not broadcast",
                             const char* remedy = "make trailing dimensions equal or 1, for example with reshape()") {
  Shape result = x.rank() >= y.rank() ? x : y;
  const Shape& other = x.rank() >= y.rank() ? y : x;
  for (int d = -1; d >= -other.rank(); --d) {
    if (result[d] != other[d] && result[d] != 1 && other[d] != 1) a.fail(problem, remedy);
    if (result[d] == 1) result[d] = other[d];
  }
  return result;
}

// Sets the strides, in elements, of an operand of shape `in` that broadcasts to a result of shape `out` as in NumPy.
inline void broadcast_strides(const Shape& in, const Shape& out, std::int64_t (&strides)[Shape::kMaxRank]) {
  std::int64_t stride = 1;
  for (int d = out.rank() - 1; d >= 0; --d) {
    int own = d - (out.rank() - in.rank());
    std::int64_t dim = own < 0 ? 1 : in[own];
    strides[d] = dim == 1 ? 0 : stride;
    stride *= dim;
  }
}

// Adds a dimension inside the existing ones.
template <int N>
void append(Layout<N>& layout, std::int64_t dim, const std::int64_t (&strides)[N]) {
  if (dim == 1) return;
  bool merges = layout.rank > 0;
  for (int n = 0; n < N && merges; ++n) merges = layout.strides[n][layout.rank - 1] == strides[n] * dim;
  int to = merges ? layout.rank - 1 : layout.rank++;
  layout.dims[to] = merges ? layout.dims[to] * dim : dim;
  for (int n = 0; n < N; ++n) layout.strides[n][to] = strides[n];
}

template <int N>
Layout<N> make_layout(const Shape& out, const Shape (&in)[N]) {
  std::int64_t strides[N][Shape::kMaxRank] = {};
  for (int n = 0; n < N; ++n) broadcast_strides(in[n], out, strides[n]);
  Layout<N> layout;
  layout.size = out.size();
  for (int d = 0; d < out.rank() && layout.size > 0; ++d) {
    std::int64_t at[N];
    for (int n = 0; n < N; ++n) at[n] = strides[n][d];
    append(layout, out[d], at);
  }
  return layout;
}

}  // namespace graphsink
