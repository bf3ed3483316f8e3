// max, min, argmax, argmin; the kernels are in reduction.h.
#include "kernels/support/extremes.h"

#include <bit>

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/reduce/reduction.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

template <class T, class Order>
struct ArgExtreme {
  using Term = T;
  using Value = Placed<Compared<T>>;
  using Result = std::int32_t;

  HD static Value none() { return no_place<Order, Compared<T>>(); }
  HD static Value join(Value a, Value b) { return precedes<Order>(b, a) ? b : a; }
  HD static Value add(Value most, T x, std::int64_t k) {
    return join(most, {static_cast<Compared<T>>(x), static_cast<std::int32_t>(k)});
  }
  HD static std::int32_t result(Value most) { return most.place; }
};

// Long rows of floats are compared as if there were no NaN, in one instruction for each vector, and once more if there
// is one. The magnitudes of numbers are in the order of their bits, and those of NaNs come after them.
template <class T, class Order>
struct CpuExtreme : Extreme<T, Order> {
  using typename Extreme<T, Order>::Value;

  static Value of_row(std::int64_t n, const T* x, std::int64_t) requires std::is_floating_point_v<T> {
    if (n < kLongRow) return reduce_few_terms<Extreme<T, Order>>(x, Layout<1>{.size = n});
    using Bits = std::conditional_t<sizeof(T) == sizeof(float), std::int32_t, std::int64_t>;
    const Bits largest = reduce_in_lanes(
        n, Bits{0},
        [=](Bits most, std::int64_t k) {
          return std::max(most, std::bit_cast<Bits>(x[k]) & std::numeric_limits<Bits>::max());
        },
        [](Bits a, Bits b) { return std::max(a, b); });
    if (largest > std::bit_cast<Bits>(std::numeric_limits<T>::infinity()))
      return reduce_row<Extreme<T, Order>>(n, x, 0);
    auto join = [](T a, T b) { return Order::precedes_number(b, a) ? b : a; };
    return reduce_in_lanes(
        n, Extreme<T, Order>::none(), [=](T most, std::int64_t k) { return join(most, x[k]); }, join);
  }
};

// Finds the extreme of a row first, and then where it is: the first of equal elements, or the first NaN.
template <class T, class Order>
struct CpuArgExtreme : ArgExtreme<T, Order> {
  using typename ArgExtreme<T, Order>::Value;
  using V = Compared<T>;

  static Value of_row(std::int64_t n, const T* x, std::int64_t number) {
    const V most = reduce_terms<CpuExtreme<T, Order>>(x, Layout<1>{.size = n});
    auto is_most = [=](std::int64_t k) {
      const V value = static_cast<V>(x[k]);
      return (value == most) | (is_nan(value) & is_nan(most));
    };
    constexpr std::int64_t kBlock = 256;
    std::int64_t k = 0;
    for (; k + kBlock < n; k += kBlock) {
      if (any_of_indices(kBlock, [=](std::int64_t i) { return is_most(k + i); })) break;
    }
    while (!is_most(k)) ++k;
    return {most, static_cast<std::int32_t>(number + k)};
  }
};

void infer_extreme(InferArgs& a, bool is_place) {
  a.expect_inputs(1);
  expect_comparable(a, 0);
  const auto& attrs = a.attrs<ReduceAttrs>();
  const Shape& shape = a.in(0).shape;
  Shape out = reduced_shape(a, attrs.axes, attrs.keep_axes);
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(attrs.axes, shape.rank(), is_reduced);
  for (int d = 0; d < shape.rank(); ++d) {
    if (is_reduced[d] && shape[d] == 0) a.fail("there is nothing to choose from", "reduce axes that have elements");
    if (is_reduced[d] && is_place && shape[d] > std::numeric_limits<std::int32_t>::max())
      a.fail("the axis is too long for indices of i32", "split() it");
  }
  a.out(is_place ? DType::i32 : a.in(0).dtype, out);
}
template <bool is_place>
void infer(InferArgs& a) {
  infer_extreme(a, is_place);
}

template <template <class, class> class OnCpu, template <class, class> class OnCuda, class Order>
Prepared prepare(const PrepareArgs& p) {
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(p.attrs.as<ReduceAttrs>().axes, p.in(0).shape.rank(), is_reduced);
  ReductionPlan plan = plan_reduction(p.in(0).shape, is_reduced);
  for_comparable(p.in(0).dtype, [&]<class T>() { choose_op<OnCpu<T, Order>, OnCuda<T, Order>>(p, plan); });
  return prepared(plan);
}

// RowReduction::operation.
template <class Order>
std::string extreme_operation(DType dtype, const Attrs&) {
  std::string operation;
  for_comparable(dtype, [&]<class T>() {
    const char* order = std::is_same_v<Order, Larger> ? "Larger" : "Smaller";
    operation = "Extreme<" + std::string(type_name<T>()) + ", " + order + ">{}";
  });
  return operation;
}

// Whether element a is the extreme b, or is NaN: then the extreme is, too.
BINARY_EXPRESSION(IsExtreme, a == b || a != a);
const OpDef is_extreme_op = elementwise_op<IsExtreme, 2, float, double>("is_extreme");

// x and its extreme with the same axes: equal elements share the gradient. Halves could not count them.
std::vector<Value> extreme_grad(const GradArgs& a) {
  const auto& attrs = a.attrs.as<ReduceAttrs>();
  auto arg = [&](const Value& value) { return Arg(value, a.where); };
  auto as = [&](DType dtype, const Value& value) { return value.dtype() == dtype ? value : cast(arg(value), dtype); };
  DType dtype = a.grads[0].dtype();
  DType wide = is_half(dtype) ? DType::f32 : dtype;
  Value is_most = emit(is_extreme_op, {arg(a.inputs[0]), arg(with_reduced_axes(a, attrs, a.outputs[0]))})[0];
  Value count = sum(arg(as(wide, is_most)), attrs.axes, {.keep_axes = true});
  Value share = div(arg(as(wide, with_reduced_axes(a, attrs, a.grads[0]))), arg(count));
  return {where(arg(is_most), arg(as(dtype, share)), 0.0)};
}

template <class Order>
constexpr OpDef extreme_op(std::string_view name) {
  return {.name = name,
          .infer = infer<false>,
          .traits = {.kernels_wait = true},
          .prepare = prepare<CpuExtreme, Extreme, Order>,
          .bodies = {kReductionTiles, reduction_cuda},
          .grad = extreme_grad};
}
template <class Order>
constexpr OpDef place_op(std::string_view name) {
  return {.name = name,
          .infer = infer<true>,
          .traits = {.kernels_wait = true},
          .prepare = prepare<CpuArgExtreme, ArgExtreme, Order>,
          .bodies = {kReductionTiles, reduction_cuda}};
}
const OpDef max_op = extreme_op<Larger>("max");
const OpDef min_op = extreme_op<Smaller>("min");
const OpDef argmax_op = place_op<Larger>("argmax");
const OpDef argmin_op = place_op<Smaller>("argmin");

}  // namespace

const FusionRule extreme_rules[] = {{.op = &max_op, .rows = kRowReduction<ReduceAttrs, extreme_operation<Larger>>},
                                    {.op = &min_op, .rows = kRowReduction<ReduceAttrs, extreme_operation<Smaller>>}};

Value max(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return emit(max_op, {x}, ReduceAttrs{std::move(axes.list), options.keep_axes}, placement)[0];
}
Value min(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return emit(min_op, {x}, ReduceAttrs{std::move(axes.list), options.keep_axes}, placement)[0];
}
Value argmax(Arg x, int axis, ReduceOptions options, Placement placement) {
  return emit(argmax_op, {x}, ReduceAttrs{{axis}, options.keep_axes}, placement)[0];
}
Value argmin(Arg x, int axis, ReduceOptions options, Placement placement) {
  return emit(argmin_op, {x}, ReduceAttrs{{axis}, options.keep_axes}, placement)[0];
}

std::span<const FileOp> extremes_file_ops() {
  static constexpr FileOp ops[] = {file_op<ReduceAttrs>(max_op), file_op<ReduceAttrs>(min_op),
                                   file_op<ReduceAttrs>(argmax_op), file_op<ReduceAttrs>(argmin_op),
                                   file_op(is_extreme_op)};
  return ops;
}

}  // namespace graphsink
