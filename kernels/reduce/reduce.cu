// sum, mean, sum_like; the kernels are in reduction.h.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/reduce/reduction.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/strided_copy.h"

namespace graphsink {
namespace {

struct SumAttrs {
  std::vector<int> axes;
  bool keep_axes;
  bool is_mean;
  static auto fields(auto& s) { return std::tie("axes", s.axes, "keep_axes", s.keep_axes, "is_mean", s.is_mean); }
};

// Not u8, which would wrap at once.
void expect_number(InferArgs& a) { expect_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t>(a, 0); }

void infer_sum(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<SumAttrs>();
  attrs.is_mean ? expect_dtype<float, double, half, bfloat16>(a, 0) : expect_number(a);
  a.out(a.in(0).dtype, reduced_shape(a, attrs.axes, attrs.keep_axes));
}

// The CPU adds in f64.
template <class T>
using CpuSum = std::conditional_t<std::is_same_v<Wide<T>, float>, double, T>;

template <class Body>
void for_number(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t>(dtype, body);
}

// RowReduction::operation.
std::string sum_operation(DType dtype, const Attrs& attrs) {
  std::string operation;
  for_number(dtype, [&]<class T>() {
    const std::string wide(type_name<Wide<T>>());
    const std::string divisor = attrs.as<SumAttrs>().is_mean ? "static_cast<" + wide + ">(width)" : "1";
    operation = "Sum<" + std::string(type_name<T>()) + ", " + wide + ">{" + divisor + "}";
  });
  return operation;
}

Prepared prepare_sums(const PrepareArgs& p, const bool (&is_reduced)[Shape::kMaxRank], bool is_mean) {
  ReductionPlan plan = plan_reduction(p.in(0).shape, is_reduced);
  if (is_mean) plan.divisor = static_cast<double>(plan.reduction.terms.size);
  for_number(p.in(0).dtype, [&]<class T>() { choose_op<Sum<T, CpuSum<T>>, Sum<T, Wide<T>>>(p, plan); });
  return prepared(plan);
}

Prepared prepare_sum(const PrepareArgs& p) {
  const auto& attrs = p.attrs.as<SumAttrs>();
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, p.in(0).shape.rank(), is_reduced);
  return prepare_sums(p, is_reduced, attrs.is_mean);
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
  expect_number(a);
  if (!broadcasts_to(with_axes(a.in(1).shape, a.attrs<LikeAttrs>().axes), a.in(0).shape)) {
    a.fail("the shape of the second does not broadcast to the first",
           "sum to a shape that broadcasts to the operand's");
  }
  a.out(a.in(0).dtype, a.in(1).shape);
}

// Open dimensions may turn out to be as large as those of the operand: then nothing is summed.
bool is_copy(const TensorType& in, const TensorType& out) { return in == out; }

Prepared prepare_sum_like(const PrepareArgs& p) {
  if (is_copy(p.in(0), p.out(0))) return {std::make_shared<StridedCopy>(make_strided_copy(p, AxisMap()))};
  const auto& attrs = p.attrs.as<LikeAttrs>();
  const Shape& shape = p.in(0).shape;
  Shape like = with_axes(p.in(1).shape, attrs.axes);
  bool is_reduced[Shape::kMaxRank] = {};
  for (int d = 0; d < shape.rank(); ++d) {
    int own = d - (shape.rank() - like.rank());
    is_reduced[d] = own < 0 || like[own] == 1;
  }
  return prepare_sums(p, is_reduced, attrs.is_mean);
}

template <class Args>
void copy_operand(Args& a) {
  bool is_in_place = a.template in<void>(0) == a.template out<void>(0);
  if (!is_in_place) run_copy(a.template local<StridedCopy>(), a);
}
void sum_like_cuda(CudaArgs& a) { is_copy(a.in_type(0), a.out_type(0)) ? copy_operand(a) : reduction_cuda(a); }
std::int64_t count_sum_like_tiles(const BodyArgs& a) {
  return is_copy(a.in_type(0), a.out_type(0)) ? 1 : count_reduction_tiles(a);
}
void run_sum_like_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  is_copy(a.in_type(0), a.out_type(0)) ? copy_operand(a) : run_reduction_tiles(a, first, end);
}
constexpr Tiles kSumLikeTiles{count_sum_like_tiles, run_sum_like_tiles, join_reduction_tiles};
constexpr Alias kSumLikeInPlace[] = {{0, 0}};

std::vector<Value> sum_like_grad(const GradArgs& a) {
  return {emit(broadcast_like_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs)[0], Value()};
}

constexpr OpDef reduction_op(std::string_view name) {
  return {.name = name,
          .infer = infer_sum,
          .traits = {.kernels_wait = true},
          .prepare = prepare_sum,
          .bodies = {kReductionTiles, reduction_cuda},
          .grad = sum_grad};
}
const OpDef sum_op = reduction_op("sum");
const OpDef mean_op = reduction_op("mean");

}  // namespace

const FusionRule sum_rules[] = {{.op = &sum_op, .rows = kRowReduction<SumAttrs, sum_operation>},
                                {.op = &mean_op, .rows = kRowReduction<SumAttrs, sum_operation>}};

const OpDef sum_like_op{.name = "sum_like",
                        .infer = infer_sum_like,
                        .access = like_access,
                        .in_place = kSumLikeInPlace,
                        .traits = {.copies_same_type = true, .kernels_wait = true},
                        .prepare = prepare_sum_like,
                        .bodies = {kSumLikeTiles, sum_like_cuda},
                        .grad = sum_like_grad};

Value sum(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return emit(sum_op, {x}, SumAttrs{std::move(axes.list), options.keep_axes, false}, placement)[0];
}
Value mean(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return emit(mean_op, {x}, SumAttrs{std::move(axes.list), options.keep_axes, true}, placement)[0];
}
Value sum_like(Arg x, Arg like, Placement placement) { return emit(sum_like_op, {x, like}, LikeAttrs{}, placement)[0]; }

std::span<const FileOp> reduce_file_ops() {
  static constexpr FileOp ops[] = {file_op<SumAttrs>(sum_op), file_op<SumAttrs>(mean_op),
                                   file_op<LikeAttrs>(sum_like_op)};
  return ops;
}

}  // namespace graphsink
