// prod, any, all, logsumexp; the kernels are in reduction.h.
#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/reduce/reduction.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

template <class T>
struct CpuLogSumExp : LogSumExp<T> {
  using typename LogSumExp<T>::S;
  using typename LogSumExp<T>::Value;

  static Value of_row(std::int64_t n, const T* x, std::int64_t) {
    S largest = chained_max(n, x);
    if (math::is_finite(largest)) return {largest, static_cast<S>(exponential_sum(n, x, largest))};
    Value all = LogSumExp<T>::none();
    for (std::int64_t k = 0; k < n; ++k) all = LogSumExp<T>::add(all, x[k], k);
    return all;
  }
};

template <class... Ts>
void infer_fold(InferArgs& a) {
  a.expect_inputs(1);
  const auto& attrs = a.attrs<ReduceAttrs>();
  expect_dtype<Ts...>(a, 0);
  a.out(a.in(0).dtype, reduced_shape(a, attrs.axes, attrs.keep_axes));
}
void infer_flags(InferArgs& a) {
  if (a.inputs() == 1 && a.in(0).dtype != DType::boolean)
    a.fail("takes bool", "compare the operand, for example with not_equal(x, 0)");
  infer_fold<bool>(a);
}

template <template <class> class OnCpu, template <class> class OnCuda, class... Ts>
Prepared prepare_fold(const PrepareArgs& p) {
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(p.attrs.as<ReduceAttrs>().axes, p.in(0).shape.rank(), is_reduced);
  ReductionPlan plan = plan_reduction(p.in(0).shape, is_reduced);
  for_dtype<Ts...>(p.in(0).dtype, [&]<class T>() { choose_op<OnCpu<T>, OnCuda<T>>(p, plan); });
  return prepared(plan);
}

// RowReduction::operation.
template <template <class> class OnCuda>
std::string fold_operation(DType dtype, const Attrs&) {
  std::string operation;
  for_dtype<float, double, half, bfloat16, std::uint32_t, std::uint64_t, bool>(
      dtype, [&]<class T>() { operation = std::string(OnCuda<T>::kName) + "<" + std::string(type_name<T>()) + ">{}"; });
  return operation;
}

// --- the gradient of prod: the product of all other elements, those before and those after. Not that of all over the
// element, which may be zero or, like the product, infinite.

// A block for each product; a thread has neighbouring terms. `before` is as large as x.
template <class T>
__global__ void multiply_others(const T* g, const T* x, T* dx, double* before, ReductionLayouts r) {
  wait_for_inputs();
  __shared__ double of_thread[kThreads];
  std::int64_t own = (r.terms.size + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * own;
  std::int64_t end = begin + own < r.terms.size ? begin + own : r.terms.size;
  for (std::int64_t o = blockIdx.x; o < r.outputs.size; o += gridDim.x) {
    std::int64_t first = r.outputs.find(o);
    double product = 1;
    for (std::int64_t k = begin; k < end; ++k) {
      std::int64_t i = first + r.terms.find(k);
      before[i] = product;
      product *= static_cast<double>(x[i]);
    }
    of_thread[threadIdx.x] = product;
    __syncthreads();
    double others = 1;
    for (unsigned t = 0; t < blockDim.x; ++t)
      if (t != threadIdx.x) others *= of_thread[t];
    double after = 1;
    for (std::int64_t k = end - 1; k >= begin; --k) {
      std::int64_t i = first + r.terms.find(k);
      dx[i] = static_cast<T>(static_cast<double>(g[o]) * (others * (before[i] * after)));
      after *= static_cast<double>(x[i]);
    }
    __syncthreads();  // before of_thread is used again
  }
}

template <class T>
void multiply_others_on(CudaArgs& a, const ReductionLayouts& r) {
  auto blocks = static_cast<unsigned>(std::min(r.outputs.size, kMaxBlocks));
  a.launch(multiply_others<T>, Extent{blocks}, launch_size(r.terms.size).block, 0, a.in<T>(0), a.in<T>(1), a.out<T>(0),
           static_cast<double*>(a.workspace()), r);
}
template <class T>
void multiply_others_on(const CpuArgs& a, const ReductionLayouts& r) {
  const T *g = a.in<T>(0), *x = a.in<T>(1);
  auto* before = static_cast<double*>(a.workspace());
  for (std::int64_t o = 0; o < r.outputs.size; ++o) {
    std::int64_t first = r.outputs.find(o);
    double product = 1, after = 1;
    for (std::int64_t k = 0; k < r.terms.size; ++k) {
      before[k] = product;
      product *= static_cast<double>(x[first + r.terms.find(k)]);
    }
    for (std::int64_t k = r.terms.size - 1; k >= 0; --k) {
      std::int64_t i = first + r.terms.find(k);
      a.out<T>(0)[i] = static_cast<T>(static_cast<double>(g[o]) * (before[k] * after));
      after *= static_cast<double>(x[i]);
    }
  }
}

template <class Args>
void multiply_others_any(Args& a) {
  const auto& reduction = a.template local<ReductionLayouts>();
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype,
                                           [&]<class T>() { multiply_others_on<T>(a, reduction); });
}

// Inputs: the gradient of the products, x. Its attributes are those of prod.
template <class... Ts>
void infer_fold(InferArgs& a);
void infer_prod_grad(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_input(0, a.outputs_of(infer_fold<float, double, half, bfloat16>, {a.in(1)})[0]);
  a.out(a.in(1).dtype, a.in(1).shape);
}

Prepared prepare_prod_grad(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.out(0).dtype, [&]<class T>() { load_kernel(p, multiply_others<T>); });
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(p.attrs.as<ReduceAttrs>().axes, p.in(1).shape.rank(), is_reduced);
  ReductionLayouts reduction = plan_reduction(p.in(1).shape, is_reduced).reduction;
  std::int64_t products = p.cuda ? p.in(1).shape.size() : reduction.terms.size;
  return {std::make_shared<ReductionLayouts>(reduction), static_cast<std::size_t>(products) * sizeof(double)};
}

// For each element along an axis, the product of the others: of a matrix with 1 in place of the element in its row.
Value others_along(int axis, const Value& x) {
  const Value place = arange(x, axis);
  Value is_own = equal(unsqueeze(place, 1), place);
  for (int d = axis + 1; d < x.shape().rank(); ++d) is_own = unsqueeze(is_own, -1);
  return prod(where(is_own, 1.0, unsqueeze(x, axis)), {axis + 1});
}
// Over several axes, an element is a factor of the product over the last of them, which is a factor of that over the
// last two, and so on.
std::vector<Value> prod_formula(std::span<const Value> in, const Attrs& attrs) {
  const auto& [axes, keep_axes] = attrs.as<ReduceAttrs>();
  const Value& x = in[1];
  const int rank = x.shape().rank();
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(axes, rank, is_reduced);
  Value dx = in[0];
  std::vector<int> reduced;
  for (int d = 0; d < rank; ++d) {
    if (!is_reduced[d]) continue;
    if (!keep_axes) dx = unsqueeze(dx, d);
    reduced.push_back(d);
  }
  while (!reduced.empty()) {
    const int axis = reduced.front();
    reduced.erase(reduced.begin());
    dx = dx * others_along(axis, reduced.empty() ? x : prod(x, reduced, {.keep_axes = true}));
  }
  return {dx};
}

const OpDef prod_grad_op{.name = "prod_grad",
                         .infer = infer_prod_grad,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare_prod_grad,
                         .bodies = {multiply_others_any<const CpuArgs>, multiply_others_any<CudaArgs>},
                         .grad = prod_formula};

std::vector<Value> prod_grad(const GradArgs& a) {
  return emit(prod_grad_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs);
}

// --- the gradient of logsumexp

// The gradient of a term b, from the gradient a of the result c, which is -inf where all terms are.
TERNARY_EXPRESSION(LogSumExpGrad, a* math::exp(b - (c == T(-INFINITY) ? T(0) : c)));
Value logsumexp_formula(const Value& a, const Value& x, const Value& y) {
  return a * exp(x - where(equal(y, -INFINITY), 0.0, y));
}
const OpDef logsumexp_grad_op =
    elementwise_op<LogSumExpGrad, 3, float, double>("logsumexp_grad", formula_of<logsumexp_formula>);

// The result of halves is not exact enough: it is computed again, in f32.
std::vector<Value> logsumexp_grad(const GradArgs& a) {
  const auto& attrs = a.attrs.as<ReduceAttrs>();
  DType dtype = a.inputs[0].dtype();
  Value x = a.inputs[0], y = with_reduced_axes(a, attrs, a.outputs[0]), g = with_reduced_axes(a, attrs, a.grads[0]);
  if (!is_half(dtype)) return emit(logsumexp_grad_op, {Arg(g, a.where), x, y});
  x = cast(Arg(x, a.where), DType::f32);
  y = logsumexp(Arg(x, a.where), attrs.axes, {.keep_axes = true});
  Value dx = emit(logsumexp_grad_op, {Arg(cast(Arg(g, a.where), DType::f32), a.where), x, y})[0];
  return {cast(Arg(dx, a.where), dtype)};
}

template <template <class> class OnCpu, template <class> class OnCuda, class... Ts>
constexpr OpDef fold_op(std::string_view name, void (*infer)(InferArgs&),
                        std::vector<Value> (*grad)(const GradArgs&) = nullptr) {
  return {.name = name,
          .infer = infer,
          .traits = {.kernels_wait = true},
          .prepare = prepare_fold<OnCpu, OnCuda, Ts...>,
          .bodies = {kReductionTiles, reduction_cuda},
          .grad = grad};
}
const OpDef any_op = fold_op<Any, Any, bool>("any", infer_flags);
const OpDef all_op = fold_op<All, All, bool>("all", infer_flags);
// Integers wrap.
const OpDef prod_op = fold_op<Product, Product, float, double, half, bfloat16, std::uint32_t, std::uint64_t>(
    "prod", infer_fold<float, double, half, bfloat16, std::uint32_t, std::uint64_t>, prod_grad);
const OpDef logsumexp_op = fold_op<CpuLogSumExp, LogSumExp, float, double, half, bfloat16>(
    "logsumexp", infer_fold<float, double, half, bfloat16>, logsumexp_grad);

Value folded(const OpDef& op, const Arg& x, Axes axes, ReduceOptions options, Placement placement) {
  return emit(op, {x}, ReduceAttrs{std::move(axes.list), options.keep_axes}, placement)[0];
}

}  // namespace

const FusionRule fold_rules[] = {{.op = &any_op, .rows = kRowReduction<ReduceAttrs, fold_operation<Any>>},
                                 {.op = &all_op, .rows = kRowReduction<ReduceAttrs, fold_operation<All>>},
                                 {.op = &prod_op, .rows = kRowReduction<ReduceAttrs, fold_operation<Product>>},
                                 {.op = &logsumexp_op, .rows = kRowReduction<ReduceAttrs, fold_operation<LogSumExp>>}};

Value any(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return folded(any_op, x, std::move(axes), options, placement);
}
Value all(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return folded(all_op, x, std::move(axes), options, placement);
}
Value prod(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return folded(prod_op, x, std::move(axes), options, placement);
}
Value logsumexp(Arg x, Axes axes, ReduceOptions options, Placement placement) {
  return folded(logsumexp_op, x, std::move(axes), options, placement);
}

std::span<const FileOp> fold_file_ops() {
  static constexpr FileOp ops[] = {file_op<ReduceAttrs>(any_op),       file_op<ReduceAttrs>(all_op),
                                   file_op<ReduceAttrs>(prod_op),      file_op<ReduceAttrs>(logsumexp_op),
                                   file_op<ReduceAttrs>(prod_grad_op), file_op(logsumexp_grad_op)};
  return ops;
}

}  // namespace graphsink
