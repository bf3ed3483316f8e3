// sum, mean, sum_like; the kernels are in reduction.h.
#include "graphsink/ops.h"
#include "kernels/reduce_ops.h"
#include "kernels/reduction.h"

namespace graphsink {
namespace {

struct SumAttrs {
  std::vector<int> axes;
  bool keep_axes;
  bool is_mean;
};

// u8 would wrap at once.
bool is_number(DType dtype) { return dtype != DType::boolean && dtype != DType::u8; }

// All axes if none are named.
void mark_axes(const std::vector<int>& axes, int rank, bool (&is_reduced)[Shape::kMaxRank]) {
  for (int d = 0; d < rank; ++d) is_reduced[d] = axes.empty();
  for (int axis : axes) is_reduced[axis < 0 ? axis + rank : axis] = true;
}

void infer_sum(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<SumAttrs>();
  const Shape& shape = a.in(0).shape;
  DType dtype = a.in(0).dtype;
  if (!is_number(dtype) || (attrs.is_mean && !is_float(dtype)))
    a.fail(attrs.is_mean ? "takes floats" : "takes numbers", "cast() the operand");
  std::vector<int> seen;
  for (int axis : attrs.axes) {
    int d = axis < 0 ? axis + shape.rank() : axis;
    if (d < 0 || d >= shape.rank())
      a.fail("there is no axis " + std::to_string(axis), "name axes from -rank to rank - 1");
    if (std::find(seen.begin(), seen.end(), d) != seen.end())
      a.fail("axis " + std::to_string(axis) + " is named twice", "name each axis once");
    seen.push_back(d);
  }
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, shape.rank(), is_reduced);
  Shape out;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!is_reduced[d]) out.push_back(shape[d]);
    if (is_reduced[d] && attrs.keep_axes) out.push_back(1);
  }
  a.out(dtype, out);
}

Prepared prepare_sum(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<SumAttrs>();
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, p.in(0).shape.rank(), is_reduced);
  return prepare_reduction(p, is_reduced, attrs.is_mean);
}

std::vector<Value> sum_grad(const GradArgs& a) {
  const auto& attrs = a.attrs.as<SumAttrs>();
  int rank = a.inputs[0].shape().rank();
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, rank, is_reduced);
  LikeAttrs like{{}, attrs.is_mean};
  for (int d = 0; d < rank; ++d)
    if (is_reduced[d] && !attrs.keep_axes) like.axes.push_back(d);
  return emit(broadcast_like_op, {Arg(a.grads[0], a.where), a.inputs[0]}, like);
}

void infer_sum_like(InferArgs& a) {
  a.expect_inputs(2);
  if (!is_number(a.in(0).dtype)) a.fail("takes numbers", "cast() the operand");
  if (!broadcasts_to(with_axes(a.in(1).shape, a.attrs<LikeAttrs>().axes), a.in(0).shape)) {
    a.fail("the shape of the second does not broadcast to the first",
           "sum to a shape that broadcasts to the operand's");
  }
  a.out(a.in(0).dtype, a.in(1).shape);
}

Prepared prepare_sum_like(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<LikeAttrs>();
  const Shape& shape = p.in(0).shape;
  Shape like = with_axes(p.in(1).shape, attrs.axes);
  bool is_reduced[Shape::kMaxRank] = {};
  for (int d = 0; d < shape.rank(); ++d) {
    int own = d - (shape.rank() - like.rank());
    is_reduced[d] = own < 0 || like[own] == 1;
  }
  return prepare_reduction(p, is_reduced, attrs.is_mean);
}

std::vector<Value> sum_like_grad(const GradArgs& a) {
  return {emit(broadcast_like_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs)[0], Value()};
}

constexpr OpDef reduction_op(std::string_view name) {
  return {.name = name,
          .infer = infer_sum,
          .prepare = prepare_sum,
          .cuda = kSumCuda,
          .cpu = sum_cpu_body,
          .grad = sum_grad};
}
const OpDef sum_op = reduction_op("sum");
const OpDef mean_op = reduction_op("mean");

}  // namespace

const OpDef sum_like_op{.name = "sum_like",
                        .infer = infer_sum_like,
                        .access = like_access,
                        .prepare = prepare_sum_like,
                        .cuda = kSumCuda,
                        .cpu = sum_cpu_body,
                        .grad = sum_like_grad};

Value sum(Arg x, std::vector<int> axes, bool keep_axes, Label label) {
  return emit(sum_op, {x}, SumAttrs{std::move(axes), keep_axes, false}, label)[0];
}
Value mean(Arg x, std::vector<int> axes, bool keep_axes, Label label) {
  return emit(mean_op, {x}, SumAttrs{std::move(axes), keep_axes, true}, label)[0];
}
Value sum_like(Arg x, Arg like, Label label) { return emit(sum_like_op, {x, like}, LikeAttrs{}, label)[0]; }

}  // namespace graphsink
