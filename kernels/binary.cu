// Element-wise arithmetic of two operands, with broadcasting.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

BINARY_EXPRESSION(Add, a + b);
BINARY_EXPRESSION(Sub, a - b);
BINARY_EXPRESSION(Mul, a* b);
BINARY_EXPRESSION(Div, a / b);

BINARY_EXPRESSION(Pow, math::pow(a, b));
BINARY_EXPRESSION(Minimum, a < b || a != a ? a : b);  // a NaN in either operand is the result
BINARY_EXPRESSION(Maximum, a > b || a != a ? a : b);
// Of the base a and the exponent b.
BINARY_EXPRESSION(PowSlope, b == T(0) ? T(0) : b * math::pow(a, b - T(1)));
// Of the base a and the power b: the slope along the exponent, 0 where the base is 0.
BINARY_EXPRESSION(PowLog, a == T(0) ? T(0) : b * math::log(a));
// The operands' shares of the gradient: a's if it is the result, half if both are.
BINARY_EXPRESSION(MinimumShare, a < b ? T(1) : a == b ? T(0.5) : T(0));

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

// d(a/b)/da = 1/b; d(a/b)/db = -(a/b)/b.
std::vector<Value> div_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  Value g_over_b = div(Arg(a.grads[0], a.where), a.inputs[1]);
  if (a.needed[0]) result[0] = sum_to(a, g_over_b, a.inputs[0]);
  if (a.needed[1]) {
    Value g = mul(Arg(mul(Arg(g_over_b, a.where), a.outputs[0]), a.where), -1.0);
    result[1] = sum_to(a, g, a.inputs[1]);
  }
  return result;
}

const OpDef pow_slope_op = elementwise_op<PowSlope, 2, float, double>("pow_slope");
const OpDef pow_log_op = elementwise_op<PowLog, 2, float, double>("pow_log");
const OpDef minimum_share_op = elementwise_op<MinimumShare, 2, float, double>("minimum_share");

std::vector<Value> pow_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  Arg g(a.grads[0], a.where);
  if (a.needed[0]) result[0] = sum_to(a, mul(g, emit(pow_slope_op, {a.inputs[0], a.inputs[1]})[0]), a.inputs[0]);
  if (a.needed[1]) result[1] = sum_to(a, mul(g, emit(pow_log_op, {a.inputs[0], a.outputs[0]})[0]), a.inputs[1]);
  return result;
}

// The operand that is first in the comparison is the smaller one: for maximum they change places.
template <bool is_minimum>
std::vector<Value> extremum_grad(const GradArgs& a) {
  std::vector<Value> result(2);
  for (std::size_t i = 0; i < 2; ++i) {
    if (!a.needed[i]) continue;
    const Value &own = a.inputs[i], &other = a.inputs[1 - i];
    Value share = emit(minimum_share_op, {is_minimum ? own : other, is_minimum ? other : own})[0];
    result[i] = sum_to(a, mul(Arg(a.grads[0], a.where), share), own);
  }
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

Value add(Arg a, Arg b, Label label) { return emit(add_op, {a, b}, {}, label)[0]; }
Value sub(Arg a, Arg b, Label label) { return emit(sub_op, {a, b}, {}, label)[0]; }
Value mul(Arg a, Arg b, Label label) { return emit(mul_op, {a, b}, {}, label)[0]; }
Value div(Arg a, Arg b, Label label) { return emit(div_op, {a, b}, {}, label)[0]; }
Value pow(Arg a, Arg b, Label label) { return emit(pow_op, {a, b}, {}, label)[0]; }
Value minimum(Arg a, Arg b, Label label) { return emit(minimum_op, {a, b}, {}, label)[0]; }
Value maximum(Arg a, Arg b, Label label) { return emit(maximum_op, {a, b}, {}, label)[0]; }

}  // namespace graphsink
