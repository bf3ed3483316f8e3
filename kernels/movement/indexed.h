// What the ops that read or add elements of an axis at indices share.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

struct IndexedAttrs {
  int axis;
  friend bool operator==(const IndexedAttrs&, const IndexedAttrs&) = default;
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

// The shape of x with that of the indices in place of the axis.
inline Shape indexed_shape(const InferArgs& a, const Shape& x, const TensorType& indices) {
  int d = axis_from_front(a, a.attrs<IndexedAttrs>().axis, x.rank());
  if (indices.dtype != DType::i32) a.fail("the indices are not i32", "cast() them");
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
