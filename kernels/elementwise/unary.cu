// Element-wise functions of one operand, and their gradients, each one kernel.
#include "kernels/file_ops.h"
#include "kernels/support/activation.h"
#include "kernels/support/op_parts.h"

namespace graphsink {
namespace {

UNARY_EXPRESSION(Neg, -x);
UNARY_EXPRESSION(Abs, math::abs(x));
UNARY_EXPRESSION(Exp, math::exp(x));
UNARY_EXPRESSION(Log, math::log(x));
UNARY_EXPRESSION(Sqrt, math::sqrt(x));
UNARY_EXPRESSION(Rsqrt, T(1) / math::sqrt(x));
UNARY_EXPRESSION(Sign, x > T(0) ? T(1) : x < T(0) ? T(-1) : x);
UNARY_EXPRESSION(Floor, math::floor(x));
UNARY_EXPRESSION(Ceil, math::ceil(x));
UNARY_EXPRESSION(Round, math::rint(x));
UNARY_EXPRESSION(Erf, math::erf(x));
UNARY_EXPRESSION(LogicalNot, !x);

// Sets out[i] = anywhere(x[i]); near(x[i]) is the same where host_math::is_near(x[i]). Fast path per block: if all x
// are near, a loop without calls; else each element by itself.
template <class In, class Out, class Near, class Anywhere>
void trigonometric_row(std::int64_t size, const In* x, Out* out, const Near& near, const Anywhere& anywhere) {
  constexpr std::int64_t kBlock = 1024;
  for (std::int64_t first = 0; first < size; first += kBlock) {
    std::int64_t n = std::min(kBlock, size - first);
    const In* from = x + first;
    Out* to = out + first;
    if (!any_of_indices(n, [=](std::int64_t i) { return !host_math::is_near(Wide<In>(from[i])); })) {
      for_each_index(n, [=](std::int64_t i) { to[i] = static_cast<Out>(near(Wide<In>(from[i]))); });
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(anywhere(Wide<In>(from[i])));
    }
  }
}

UNARY_EXPRESSION(SinExpression, math::sin(x));
UNARY_EXPRESSION(CosExpression, math::cos(x));
struct Sin : SinExpression {
  template <class In, class Out>
  static void row(std::int64_t size, const In* x, Out* out) {
    using T = Wide<In>;
    trigonometric_row(
        size, x, out, [](T y) { return host_math::sin_near(y); }, [](T y) { return apply(y); });
  }
};
struct Cos : CosExpression {
  template <class In, class Out>
  static void row(std::int64_t size, const In* x, Out* out) {
    using T = Wide<In>;
    trigonometric_row(
        size, x, out, [](T y) { return host_math::cos_near(y); }, [](T y) { return apply(y); });
  }
};

// Gradients, from the gradient a of the output and the output b.
BINARY_EXPRESSION(ReluGrad, b <= T(0) ? T(0) : a);  // a where b is NaN
BINARY_EXPRESSION(SqrtGrad, a* T(0.5) / b);
BINARY_EXPRESSION(RsqrtGrad, a* T(-0.5) * b * b * b);
BINARY_EXPRESSION(TanhGrad, a*(T(1) - b * b));
BINARY_EXPRESSION(SigmoidGrad, a* b*(T(1) - b));
// Gradients, from the gradient a of the output and the input b.
BINARY_EXPRESSION(AbsGrad, b > T(0) ? a : b < T(0) ? -a : b == T(0) ? T(0) : b);
BINARY_EXPRESSION(SinGrad, a* math::cos(b));
BINARY_EXPRESSION(CosGrad, -(a* math::sin(b)));
BINARY_EXPRESSION(ErfGrad, a* T(1.1283791670955126) * math::exp(-b * b));  // 2 / sqrt(pi)
BINARY_EXPRESSION(SiluGrad, a* silu_slope(b));
BINARY_EXPRESSION(GeluGrad, a* gelu_slope(b));

// The same of values, for second derivatives.
Value relu_formula(const Value& a, const Value& y) { return where(y <= 0.0, 0.0, a); }
Value sqrt_formula(const Value& a, const Value& y) { return a * 0.5 / y; }
Value rsqrt_formula(const Value& a, const Value& y) { return a * -0.5 * y * y * y; }
Value tanh_formula(const Value& a, const Value& y) { return a * (1.0 - y * y); }
Value sigmoid_formula(const Value& a, const Value& y) { return a * y * (1.0 - y); }
Value abs_formula(const Value& a, const Value& x) { return a * sign(x); }
Value sin_formula(const Value& a, const Value& x) { return a * cos(x); }
Value cos_formula(const Value& a, const Value& x) { return -(a * sin(x)); }
Value silu_formula(const Value& a, const Value& x) {
  const Value s = sigmoid(x);
  return a * (s * (1.0 + x * (1.0 - s)));
}
// Beyond these bounds the slopes of erf and gelu do not change, but their terms may overflow.
Value in_range(const Value& x) { return clamp(x, -100, 100); }
Value erf_formula(const Value& a, const Value& x) {
  const Value z = in_range(x);
  return a * M_2_SQRTPI * exp(-(z * z));
}
Value gelu_formula(const Value& a, const Value& x) {
  const Value z = in_range(x), squared = z * z, t = tanh(kGelu * (z + kCubic * squared * z));
  return a * (0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * kGelu * (1.0 + 3 * kCubic * squared));
}

template <class F>
constexpr OpDef float_op(std::string_view name, std::vector<Value> (*grad)(const GradArgs&)) {
  return elementwise_op<F, 1, float, double>(name, grad);
}
template <class F, Value (*formula)(const Value&, const Value&)>
constexpr OpDef grad_op(std::string_view name) {
  return elementwise_op<F, 2, float, double>(name, formula_of<formula>);
}
const OpDef relu_grad_op = grad_op<ReluGrad, relu_formula>("relu_grad");
const OpDef sqrt_grad_op = grad_op<SqrtGrad, sqrt_formula>("sqrt_grad");
const OpDef rsqrt_grad_op = grad_op<RsqrtGrad, rsqrt_formula>("rsqrt_grad");
const OpDef tanh_grad_op = grad_op<TanhGrad, tanh_formula>("tanh_grad");
const OpDef sigmoid_grad_op = grad_op<SigmoidGrad, sigmoid_formula>("sigmoid_grad");
const OpDef abs_grad_op = grad_op<AbsGrad, abs_formula>("abs_grad");
const OpDef sin_grad_op = grad_op<SinGrad, sin_formula>("sin_grad");
const OpDef cos_grad_op = grad_op<CosGrad, cos_formula>("cos_grad");
const OpDef erf_grad_op = grad_op<ErfGrad, erf_formula>("erf_grad");
const OpDef silu_grad_op = grad_op<SiluGrad, silu_formula>("silu_grad");
const OpDef gelu_grad_op = grad_op<GeluGrad, gelu_formula>("gelu_grad");

template <const OpDef& op>
std::vector<Value> from_output(const GradArgs& a) {
  return emit(op, {Arg(a.grads[0], a.where), a.outputs[0]});
}
template <const OpDef& op>
std::vector<Value> from_input(const GradArgs& a) {
  return emit(op, {Arg(a.grads[0], a.where), a.inputs[0]});
}
std::vector<Value> neg_grad(const GradArgs& a) { return {neg(Arg(a.grads[0], a.where))}; }
std::vector<Value> exp_grad(const GradArgs& a) { return {mul(Arg(a.grads[0], a.where), a.outputs[0])}; }
std::vector<Value> log_grad(const GradArgs& a) { return {div(Arg(a.grads[0], a.where), a.inputs[0])}; }
const OpDef neg_op = elementwise_op<Neg, 1, float, double, std::uint32_t, std::uint64_t>("neg", neg_grad);
const OpDef abs_op = elementwise_op<Abs, 1, float, double>("abs", from_input<abs_grad_op>);
const OpDef relu_op = float_op<Relu>("relu", from_output<relu_grad_op>);
const OpDef exp_op = float_op<Exp>("exp", exp_grad);
const OpDef log_op = float_op<Log>("log", log_grad);
const OpDef sqrt_op = float_op<Sqrt>("sqrt", from_output<sqrt_grad_op>);
const OpDef rsqrt_op = float_op<Rsqrt>("rsqrt", from_output<rsqrt_grad_op>);
const OpDef sin_op = float_op<Sin>("sin", from_input<sin_grad_op>);
const OpDef cos_op = float_op<Cos>("cos", from_input<cos_grad_op>);
const OpDef tanh_op = float_op<Tanh>("tanh", from_output<tanh_grad_op>);
const OpDef sigmoid_op = float_op<Sigmoid>("sigmoid", from_output<sigmoid_grad_op>);
const OpDef silu_op = float_op<Silu>("silu", from_input<silu_grad_op>);
const OpDef gelu_op = float_op<Gelu>("gelu", from_input<gelu_grad_op>);
const OpDef erf_op = float_op<Erf>("erf", from_input<erf_grad_op>);
const OpDef sign_op = elementwise_op<Sign, 1, float, double, std::int32_t, std::int64_t>("sign", no_grad);
const OpDef floor_op = float_op<Floor>("floor", no_grad);
const OpDef ceil_op = float_op<Ceil>("ceil", no_grad);
const OpDef round_op = float_op<Round>("round", no_grad);
const OpDef logical_not_op = elementwise_op<LogicalNot, 1, bool>("logical_not");

}  // namespace

Value neg(Arg x, Placement placement) { return emit(neg_op, {x}, {}, placement)[0]; }
Value abs(Arg x, Placement placement) { return emit(abs_op, {x}, {}, placement)[0]; }
Value relu(Arg x, Placement placement) { return emit(relu_op, {x}, {}, placement)[0]; }
Value exp(Arg x, Placement placement) { return emit(exp_op, {x}, {}, placement)[0]; }
Value log(Arg x, Placement placement) { return emit(log_op, {x}, {}, placement)[0]; }
Value sqrt(Arg x, Placement placement) { return emit(sqrt_op, {x}, {}, placement)[0]; }
Value rsqrt(Arg x, Placement placement) { return emit(rsqrt_op, {x}, {}, placement)[0]; }
Value sin(Arg x, Placement placement) { return emit(sin_op, {x}, {}, placement)[0]; }
Value cos(Arg x, Placement placement) { return emit(cos_op, {x}, {}, placement)[0]; }
Value tanh(Arg x, Placement placement) { return emit(tanh_op, {x}, {}, placement)[0]; }
Value sigmoid(Arg x, Placement placement) { return emit(sigmoid_op, {x}, {}, placement)[0]; }
Value silu(Arg x, Placement placement) { return emit(silu_op, {x}, {}, placement)[0]; }
Value gelu(Arg x, Placement placement) { return emit(gelu_op, {x}, {}, placement)[0]; }
Value erf(Arg x, Placement placement) { return emit(erf_op, {x}, {}, placement)[0]; }
Value sign(Arg x, Placement placement) { return emit(sign_op, {x}, {}, placement)[0]; }
Value floor(Arg x, Placement placement) { return emit(floor_op, {x}, {}, placement)[0]; }
Value ceil(Arg x, Placement placement) { return emit(ceil_op, {x}, {}, placement)[0]; }
Value round(Arg x, Placement placement) { return emit(round_op, {x}, {}, placement)[0]; }
Value logical_not(Arg x, Placement placement) { return emit(logical_not_op, {x}, {}, placement)[0]; }

std::span<const FileOp> unary_file_ops() {
  static constexpr FileOp ops[] = {
      file_op(neg_op),       file_op(abs_op),        file_op(relu_op),        file_op(exp_op),
      file_op(log_op),       file_op(sqrt_op),       file_op(rsqrt_op),       file_op(sin_op),
      file_op(cos_op),       file_op(tanh_op),       file_op(sigmoid_op),     file_op(silu_op),
      file_op(gelu_op),      file_op(erf_op),        file_op(sign_op),        file_op(floor_op),
      file_op(ceil_op),      file_op(round_op),      file_op(logical_not_op), file_op(relu_grad_op),
      file_op(sqrt_grad_op), file_op(rsqrt_grad_op), file_op(tanh_grad_op),   file_op(sigmoid_grad_op),
      file_op(abs_grad_op),  file_op(sin_grad_op),   file_op(cos_grad_op),    file_op(erf_grad_op),
      file_op(silu_grad_op), file_op(gelu_grad_op)};
  return ops;
}

}  // namespace graphsink
