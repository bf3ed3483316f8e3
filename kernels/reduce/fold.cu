// prod, any, all, logsumexp; the kernels are in reduction.h.
#include "graphsink/ops.h"
#include "kernels/reduce/reduction.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

// Floats are multiplied in f64 on every device: products of some of them overflow long before that of all.
template <class T>
struct Product {
  using Term = T;
  using Value = std::conditional_t<std::is_integral_v<T>, T, double>;
  using Result = T;

  HD static Value none() { return Value(1); }
  HD static Value add(Value product, T x, std::int64_t) { return product * static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a * b; }
  HD static T result(Value product) { return static_cast<T>(product); }
};

struct Any {
  using Term = bool;
  using Value = std::int32_t;
  using Result = bool;

  HD static Value none() { return 0; }
  HD static Value add(Value any, bool x, std::int64_t) { return any | static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a | b; }
  HD static bool result(Value any) { return any != 0; }
};

struct All {
  using Term = bool;
  using Value = std::int32_t;
  using Result = bool;

  HD static Value none() { return 1; }
  HD static Value add(Value all, bool x, std::int64_t) { return all & static_cast<Value>(x); }
  HD static Value join(Value a, Value b) { return a & b; }
  HD static bool result(Value all) { return all != 0; }
};

// The largest term so far, and the sum of exp(term - largest). No constructor: blocks share arrays of them.
template <class S>
struct ScaledSum {
  S largest, sum;
};
template <class S>
__device__ inline ScaledSum<S> from_lane_xor(ScaledSum<S> x, int lanes) {
  return {__shfl_xor_sync(kAllLanes, x.largest, lanes), __shfl_xor_sync(kAllLanes, x.sum, lanes)};
}

template <class T>
struct LogSumExp {
  using S = Wide<T>;
  using Term = T;
  using Value = ScaledSum<S>;
  using Result = T;

  HD static Value none() { return {S(-INFINITY), S(0)}; }
  // A NaN is not the larger of two, but makes the sum one. Infinities are not their own difference.
  HD static Value join(Value a, Value b) {
    S largest = b.largest > a.largest ? b.largest : a.largest;
    return {largest, scaled(a, largest) + scaled(b, largest)};
  }
  HD static Value add(Value all, T x, std::int64_t) { return join(all, {static_cast<S>(x), S(1)}); }
  HD static T result(Value all) { return static_cast<T>(all.largest + math::log(all.sum)); }
  static Value of_row(std::int64_t n, const T* x) {
    S largest = chained_max(n, x);
    if (math::is_finite(largest)) return {largest, static_cast<S>(exponential_sum(n, x, largest))};
    Value all = none();
    for (std::int64_t k = 0; k < n; ++k) all = add(all, x[k], k);
    return all;
  }

 private:
  HD static S scaled(Value x, S largest) {
    return x.largest == largest ? x.sum : x.sum * math::exp(x.largest - largest);
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

template <class OpOf, class... Ts>
Prepared prepare_fold(const PrepareArgs& p) {
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(p.attrs.as<ReduceAttrs>().axes, p.in(0).shape.rank(), is_reduced);
  ReductionPlan plan = plan_reduction(p.in(0).shape, is_reduced);
  for_dtype<Ts...>(p.in(0).dtype, [&]<class T>() {
    using Op = typename OpOf::template Of<T>;
    choose_op<Op, Op>(p, plan);
  });
  return prepared(p, plan);
}

// --- the gradient of prod: the product of all other elements, those before and those after. Not that of all over the
// element, which may be zero or, like the product, infinite.

// A block for each product; a thread has neighbouring terms. `before` is as large as x.
template <class T>
__global__ void multiply_others(const T* g, const T* x, T* dx, double* before, Reduction r) {
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
void multiply_others_on(CudaArgs& a, const Reduction& r) {
  auto blocks = static_cast<unsigned>(std::min(r.outputs.size, kMaxBlocks));
  a.launch(multiply_others<T>, Extent{blocks}, launch_size(r.terms.size).block, 0, a.in<T>(0), a.in<T>(1), a.out<T>(0),
           static_cast<double*>(a.workspace()), r);
}
template <class T>
void multiply_others_on(const CpuArgs& a, const Reduction& r) {
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
  const auto& reduction = a.template local<Reduction>();
  for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype,
                                           [&]<class T>() { multiply_others_on<T>(a, reduction); });
}

// Inputs: the gradient of the products, x. Its attributes are those of prod.
void infer_prod_grad(InferArgs& a) { a.out(a.in(1).dtype, a.in(1).shape); }

Prepared prepare_prod_grad(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.out(0).dtype, [&]<class T>() { load_kernel(p, multiply_others<T>); });
  bool is_reduced[Shape::kMaxRank] = {};
  mark_axes(p.attrs.as<ReduceAttrs>().axes, p.in(1).shape.rank(), is_reduced);
  Reduction reduction = plan_reduction(p.in(1).shape, is_reduced).reduction;
  std::int64_t products = p.cuda ? p.in(1).shape.size() : reduction.terms.size;
  return {std::make_shared<Reduction>(reduction), static_cast<std::size_t>(products) * sizeof(double)};
}

const OpDef prod_grad_op{.name = "prod_grad",
                         .infer = infer_prod_grad,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare_prod_grad,
                         .bodies = {multiply_others_any<const CpuArgs>, multiply_others_any<CudaArgs>}};

std::vector<Value> prod_grad(const GradArgs& a) {
  return emit(prod_grad_op, {Arg(a.grads[0], a.where), a.inputs[0]}, a.attrs);
}

// --- the gradient of logsumexp

// Of the gradient a, a term b and the result c, -inf where there was no other term.
TERNARY_EXPRESSION(LogSumExpGrad, a* math::exp(b - (c == T(-INFINITY) ? T(0) : c)));
const OpDef logsumexp_grad_op = elementwise_op<LogSumExpGrad, 3, float, double>("logsumexp_grad");

// The result of halves is not exact enough: it is computed again, in f32.
std::vector<Value> logsumexp_grad(const GradArgs& a) {
  const auto& attrs = a.attrs.as<ReduceAttrs>();
  DType dtype = a.inputs[0].dtype();
  Value x = a.inputs[0], y = with_reduced_axes(a, attrs, a.outputs[0]), g = with_reduced_axes(a, attrs, a.grads[0]);
  if (!is_half(dtype)) return emit(logsumexp_grad_op, {Arg(g, a.where), x, y});
  x = cast(Arg(x, a.where), DType::f32);
  y = logsumexp(Arg(x, a.where), attrs.axes, true);
  Value dx = emit(logsumexp_grad_op, {Arg(cast(Arg(g, a.where), DType::f32), a.where), x, y})[0];
  return {cast(Arg(dx, a.where), dtype)};
}

template <class Op>
struct Always {
  template <class>
  using Of = Op;
};
struct ProductOf {
  template <class T>
  using Of = Product<T>;
};
struct LogSumExpOf {
  template <class T>
  using Of = LogSumExp<T>;
};

constexpr OpDef fold_op(std::string_view name, void (*infer)(InferArgs&), Prepared (*prepare)(const PrepareArgs&),
                        std::vector<Value> (*grad)(const GradArgs&) = nullptr) {
  return {.name = name,
          .infer = infer,
          .traits = {.kernels_wait = true},
          .prepare = prepare,
          .bodies = {reduction_cpu, reduction_cuda},
          .row_reduction = kRowReduction<ReduceAttrs>,
          .grad = grad};
}
const OpDef any_op = fold_op("any", infer_flags, prepare_fold<Always<Any>, bool>);
const OpDef all_op = fold_op("all", infer_flags, prepare_fold<Always<All>, bool>);
// Integers wrap.
const OpDef prod_op =
    fold_op("prod", infer_fold<float, double, half, bfloat16, std::uint32_t, std::uint64_t>,
            prepare_fold<ProductOf, float, double, half, bfloat16, std::uint32_t, std::uint64_t>, prod_grad);
const OpDef logsumexp_op = fold_op("logsumexp", infer_fold<float, double, half, bfloat16>,
                                   prepare_fold<LogSumExpOf, float, double, half, bfloat16>, logsumexp_grad);

Value folded(const OpDef& op, const Arg& x, std::vector<int> axes, bool keep_axes, Placement placement) {
  return emit(op, {x}, ReduceAttrs{std::move(axes), keep_axes}, placement)[0];
}

}  // namespace

Value any(Arg x, std::vector<int> axes, bool keep_axes, Placement placement) {
  return folded(any_op, x, std::move(axes), keep_axes, placement);
}
Value all(Arg x, std::vector<int> axes, bool keep_axes, Placement placement) {
  return folded(all_op, x, std::move(axes), keep_axes, placement);
}
Value prod(Arg x, std::vector<int> axes, bool keep_axes, Placement placement) {
  return folded(prod_op, x, std::move(axes), keep_axes, placement);
}
Value logsumexp(Arg x, std::vector<int> axes, bool keep_axes, Placement placement) {
  return folded(logsumexp_op, x, std::move(axes), keep_axes, placement);
}

}  // namespace graphsink
