// The ops broadcast_like and sum_like. Each is the gradient of the other, and of sum and mean.
#pragma once

#include <span>
#include <vector>

#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "kernels/support/kernel.h"

namespace graphsink {

// The attributes of a reduction. Negative axes count from the end; no axes means all axes.
struct ReduceAttrs {
  std::vector<int> axes;
  bool keep_axes;
  static auto fields(auto& s) { return std::tie("axes", s.axes, "keep_axes", s.keep_axes); }
};

// Marks the axes of a reduction. Precondition: infer() has checked them.
inline void mark_axes(const std::vector<int>& axes, int rank, bool (&is_reduced)[Shape::kMaxRank]) {
  for (int d = 0; d < rank; ++d) is_reduced[d] = axes.empty();
  for (int axis : axes) is_reduced[from_front(axis, rank)] = true;
}

// Takes a result of a reduction of a.inputs[0], or its gradient, and inserts a 1 for each axis that was reduced.
inline Value with_reduced_axes(const GradArgs& a, const ReduceAttrs& attrs, Value value) {
  int rank = a.inputs[0].shape().rank();
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, rank, is_reduced);
  for (int d = 0; d < rank; ++d)
    if (is_reduced[d] && !attrs.keep_axes) value = unsqueeze(Arg(value, a.where), d);
  return value;
}

struct LikeAttrs {
  // The axes of the larger tensor that the smaller one lacks, ascending and counted from the front. The other axes are
  // aligned at the end, as in NumPy.
  std::vector<int> axes;
  // sum_like divides by the number of elements that it sums into one; broadcast_like, by the number of copies of an
  // element.
  bool is_mean = false;
  static auto fields(auto& s) { return std::tie("axes", s.axes, "is_mean", s.is_mean); }
};

extern const OpDef broadcast_like_op;
extern const OpDef sum_like_op;

inline Access like_access(int operand, int) { return operand == 1 ? Access::shape_only : Access::read; }

// Returns `small` with a 1 inserted at each of the axes. Precondition: the result has at most Shape::kMaxRank axes.
inline Shape with_axes(const Shape& small, const std::vector<int>& axes) {
  Shape result;
  std::size_t next_axis = 0;
  for (int d = 0; d < small.rank() || next_axis < axes.size();) {
    if (next_axis < axes.size() && axes[next_axis] == result.rank()) {
      result.push_back(1);
      ++next_axis;
    } else {
      result.push_back(d < small.rank() ? small[d++] : 1);
    }
  }
  return result;
}

inline bool broadcasts_to(const Shape& small, const Shape& large) {
  if (small.rank() > large.rank()) return false;
  for (int d = -1; d >= -small.rank(); --d)
    if (small[d] != 1 && small[d] != large[d]) return false;
  return true;
}

// Tells whether an operand has the shape of the result to which all operands are broadcast, for all sizes of open
// dimensions. The last `own_axes` axes are not broadcast.
inline bool is_never_broadcast(const Value& operand, const Value& result, std::span<const Value> operands,
                               int own_axes) {
  Shape shape = operand.shape(), of_result = result.shape();
  if (shape.rank() != of_result.rank()) return false;
  for (int d = -1 - own_axes; d >= -shape.rank(); --d) {
    if (!shape.is_open(d)) {
      if (of_result.is_open(d) || of_result[d] != shape[d]) return false;
      continue;
    }
    for (const Value& other : operands) {  // another operand's dimension may be larger unless it is 1
      bool is_itself = other.node() == operand.node() && other.output() == operand.output();
      Shape beside = other.shape();
      if (!is_itself && beside.rank() >= -d && (beside.is_open(d) || beside[d] != 1)) return false;
    }
  }
  return true;
}

// Returns the gradient of an operand. `g` is the gradient of what the operand was broadcast to.
inline Value sum_to(const GradArgs& a, const Value& g, const Value& operand, int own_axes = 0) {
  if (is_never_broadcast(operand, g, a.inputs, own_axes)) return g;
  return emit(sum_like_op, {Arg(g, a.where), Arg(operand, a.where)}, LikeAttrs{})[0];
}

}  // namespace graphsink
