// Code that the ops share which read or add elements of an axis at indices.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

struct IndexedAttrs {
  int axis;
  static auto fields(auto& s) { return std::tie("axis", s.axis); }
};

// The tensor with the axis is [outer, rows, width], the one with an element for each index [outer, count, width].
struct IndexedPlan {
  std::int64_t outer = 1, rows = 0, count = 0, width = 1;
  int word = 1;  // bytes; of width, for gather
};

inline IndexedPlan plan_of(const Shape& x, const Shape& indices, int axis) {
  IndexedPlan p;
  int d = from_front(axis, x.rank());
  for (int i = 0; i < d; ++i) p.outer *= x[i];
  p.rows = x[d];
  p.count = indices.size();
  for (int i = d + 1; i < x.rank(); ++i) p.width *= x[i];
  return p;
}

// Throws Error unless the operand, which is called "the indices", is i32.
inline void expect_indices(const InferArgs& a, int operand) {
  const DType dtype = a.in(operand).dtype;
  if (dtype == DType::i32) return;
  a.fail("the indices are not i32", dtype == DType::i64
                                        ? "write cast(clamp(indices, -1, 2147483647), i32); cast() alone keeps the low "
                                          "32 bits, and 2^32 would become index 0"
                                        : "cast() them");
}

// The shape of x with that of the indices, an operand of the op, in place of the axis.
inline Shape indexed_shape(const InferArgs& a, const Shape& x, int operand) {
  int d = axis_from_front(a, a.attrs<IndexedAttrs>().axis, x.rank());
  expect_indices(a, operand);
  const TensorType& indices = a.in(operand);
  if (x.rank() - 1 + indices.shape.rank() > Shape::kMaxRank) a.fail("too many axes", "reshape() the indices");
  Shape out;
  for (int i = 0; i < d; ++i) out.push_back(x[i]);
  for (std::int64_t dim : indices.shape.dims()) out.push_back(dim);
  for (int i = d + 1; i < x.rank(); ++i) out.push_back(x[i]);
  return out;
}

// Gradient, indices, shape of the operand of gather -> gradient of the operand. Its attributes are those of gather.
extern const OpDef gather_grad_op;

}  // namespace graphsink
