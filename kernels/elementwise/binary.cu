// Element-wise arithmetic of two operands, with broadcasting.
#include "kernels/file_ops.h"
#include "kernels/support/elementwise.h"

namespace graphsink {
namespace {

BINARY_SCALAR(Add, add, a + b);
BINARY_SCALAR(Sub, subtract, a - b);
BINARY_SCALAR(Mul, multiply, a* b);
BINARY_EXPRESSION(Div, a / b);

BINARY_EXPRESSION(PowExpression, math::pow(a, b));
struct Pow : PowExpression {
  // Exponents with a short formula have a loop of their own.
  template <class In, class Out>
  static void repeated_row(std::int64_t size, const In* a, Wide<In> b, Out* out) {
    using T = Wide<In>;
    auto fill = [=](const auto& f) {
      for_each_index(size, [=](std::int64_t i) { out[i] = static_cast<Out>(f(T(a[i]))); });
    };
    switch (host_math::short_power(b)) {
      case host_math::ShortPower::reciprocal:
        return fill([](T x) { return host_math::reciprocal(x); });
      case host_math::ShortPower::root:
        return fill([](T x) { return host_math::root_power(x); });
      case host_math::ShortPower::self:
        return fill([](T x) { return x; });
      case host_math::ShortPower::square:
        return fill([](T x) { return host_math::square(x); });
      case host_math::ShortPower::cube:
        return fill([](T x) { return host_math::cube(x); });
      case host_math::ShortPower::none:
        return fill([=](T x) { return host_math::pow_in_general(x, b); });
    }
  }
};
BINARY_EXPRESSION(Minimum, a < b || a != a ? a : b);  // a NaN in either operand is the result
BINARY_EXPRESSION(Maximum, a > b || a != a ? a : b);
// The slope along the base, from the base a and the exponent b.
BINARY_EXPRESSION(PowSlope, b == T(0) ? T(0) : b * math::pow(a, b - T(1)));
// The slope along the exponent, from the base a and the power b; 0 where the base is 0 and the exponent is not
// negative.
BINARY_EXPRESSION(PowLog, a == T(0) && b <= T(1) ? T(0) : b * math::log(a));
TERNARY_EXPRESSION(DivSlope, negative_quotient(a, b, c));

TERNARY_EXPRESSION(MinimumShare, share(a, b <= c || b != b, c <= b || c != c));
TERNARY_EXPRESSION(MaximumShare, share(a, b >= c || b != b, c >= b || c != c));

std::vector<Value> add_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  for (std::size_t i = 0; i < 2; ++i)
    if (a.needed[i]) result[i] = sum_to(a, a.grads[0], a.inputs[i]);
  return result;
}

std::vector<Value> sub_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  if (a.needed[0]) result[0] = sum_to(a, a.grads[0], a.inputs[0]);
  if (a.needed[1]) result[1] = sum_to(a, mul(Arg(a.grads[0], a.where), -1.0), a.inputs[1]);
  return result;
}

std::vector<Value> mul_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  for (std::size_t i = 0; i < 2; ++i)
    if (a.needed[i]) result[i] = sum_to(a, mul(Arg(a.grads[0], a.where), a.inputs[1 - i]), a.inputs[i]);
  return result;
}

std::vector<Value> div_slope_grad(const GradArgs& a);
const OpDef div_slope_op = elementwise_op<DivSlope, 3, float, double>("div_slope", div_slope_grad);

Value div_slope(const GradArgs& a, const Value& factor, const Value& divisor) {
  return emit(div_slope_op, {Arg(a.grads[0], a.where), factor, divisor})[0];
}

// d(a/b)/da = 1/b; d(a/b)/db = -(a/b)/b.
std::vector<Value> div_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  if (a.needed[0]) result[0] = sum_to(a, div(Arg(a.grads[0], a.where), a.inputs[1]), a.inputs[0]);
  if (a.needed[1]) result[1] = sum_to(a, div_slope(a, a.outputs[0], a.inputs[1]), a.inputs[1]);
  return result;
}

// Slopes of y = -(a * b / c) along a, b and c: -b/c, -a/c and -y/c.
std::vector<Value> div_slope_grad(const GradArgs& a) {
  const Value factors[] = {a.inputs[1], a.inputs[0], a.outputs[0]};
  std::vector<Value> result(3);
  for (std::size_t i = 0; i < 3; ++i)
    if (a.needed[i]) result[i] = sum_to(a, div_slope(a, factors[i], a.inputs[2]), a.inputs[i]);
  return result;
}

// Where the exponent is 0, the slope along the base is 0 for every base; that along the exponent is not.
Value pow_slope_formula(const Value& base, const Value& exponent) {
  const Value varied = where(equal(exponent, 0.0), stop_gradient(base), base);
  return exponent * pow(varied, exponent - 1.0);
}
Value pow_log_formula(const Value& base, const Value& power) {
  const Value is_zero = logical_and(equal(base, 0.0), power <= 1.0);
  return power * log(where(is_zero, 1.0, base));
}
const OpDef pow_slope_op = elementwise_op<PowSlope, 2, float, double>("pow_slope", formula_of<pow_slope_formula>);
const OpDef pow_log_op = elementwise_op<PowLog, 2, float, double>("pow_log", formula_of<pow_log_formula>);

std::vector<Value> pow_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  Arg g(a.grads[0], a.where);
  if (a.needed[0]) result[0] = sum_to(a, mul(g, emit(pow_slope_op, {a.inputs[0], a.inputs[1]})[0]), a.inputs[0]);
  if (a.needed[1]) result[1] = sum_to(a, mul(g, emit(pow_log_op, {a.inputs[0], a.outputs[0]})[0]), a.inputs[1]);
  return result;
}

template <bool is_minimum>
std::vector<Value> share_grad(const GradArgs& a);
template <bool is_minimum>
const OpDef share_op = elementwise_op<std::conditional_t<is_minimum, MinimumShare, MaximumShare>, 3, float, double>(
    is_minimum ? "minimum_share" : "maximum_share", share_grad<is_minimum>);

template <bool is_minimum>
Value share_of(const GradArgs& a, const Value& own, const Value& other) {
  return emit(share_op<is_minimum>, {Arg(a.grads[0], a.where), own, other})[0];
}
// Operands decide on the share, but small changes of them do not change it.
template <bool is_minimum>
std::vector<Value> share_grad(const GradArgs& a) {
  return {share_of<is_minimum>(a, a.inputs[1], a.inputs[2]), Value(), Value()};
}

template <bool is_minimum>
std::vector<Value> extremum_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  for (std::size_t i = 0; i < 2; ++i)
    if (a.needed[i]) result[i] = sum_to(a, share_of<is_minimum>(a, a.inputs[i], a.inputs[1 - i]), a.inputs[i]);
  return result;
}

const OpDef add_op = elementwise_op<Add, 2, float, double, std::uint32_t, std::uint64_t>("add", add_grad);
const OpDef sub_op = elementwise_op<Sub, 2, float, double, std::uint32_t, std::uint64_t>("sub", sub_grad);
const OpDef mul_op = elementwise_op<Mul, 2, float, double, std::uint32_t, std::uint64_t>("mul", mul_grad);
const OpDef div_op = elementwise_op<Div, 2, float, double>("div", div_grad);
const OpDef pow_op = elementwise_op<Pow, 2, float, double>("pow", pow_grad);
const OpDef minimum_op =
    elementwise_op<Minimum, 2, float, double, std::int32_t, std::int64_t>("minimum", extremum_grad<true>);
const OpDef maximum_op =
    elementwise_op<Maximum, 2, float, double, std::int32_t, std::int64_t>("maximum", extremum_grad<false>);

}  // namespace

Value add(Arg a, Arg b, Placement placement) { return emit(add_op, {a, b}, {}, placement)[0]; }
Value sub(Arg a, Arg b, Placement placement) { return emit(sub_op, {a, b}, {}, placement)[0]; }
Value mul(Arg a, Arg b, Placement placement) { return emit(mul_op, {a, b}, {}, placement)[0]; }
Value div(Arg a, Arg b, Placement placement) { return emit(div_op, {a, b}, {}, placement)[0]; }
Value pow(Arg a, Arg b, Placement placement) { return emit(pow_op, {a, b}, {}, placement)[0]; }
Value minimum(Arg a, Arg b, Placement placement) { return emit(minimum_op, {a, b}, {}, placement)[0]; }
Value maximum(Arg a, Arg b, Placement placement) { return emit(maximum_op, {a, b}, {}, placement)[0]; }

std::span<const FileOp> binary_file_ops() {
  static constexpr FileOp ops[] = {file_op(add_op),     file_op(sub_op),         file_op(mul_op),
                                   file_op(div_op),     file_op(pow_op),         file_op(minimum_op),
                                   file_op(maximum_op), file_op(div_slope_op),   file_op(pow_slope_op),
                                   file_op(pow_log_op), file_op(share_op<true>), file_op(share_op<false>)};
  return ops;
}

}  // namespace graphsink
