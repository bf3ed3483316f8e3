// add, sub, mul, div: element-wise arithmetic with broadcasting.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

BINARY_EXPRESSION(Add, a + b);
BINARY_EXPRESSION(Sub, a - b);
BINARY_EXPRESSION(Mul, a* b);
BINARY_EXPRESSION(Div, a / b);

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

const OpDef add_op = elementwise_op<Add, 2, float, double, std::uint32_t>("add", add_grad);
const OpDef sub_op = elementwise_op<Sub, 2, float, double, std::uint32_t>("sub", sub_grad);
const OpDef mul_op = elementwise_op<Mul, 2, float, double, std::uint32_t>("mul", mul_grad);
const OpDef div_op = elementwise_op<Div, 2, float, double>("div", div_grad);

}  // namespace

Value add(Arg a, Arg b, Label label) { return emit(add_op, {a, b}, {}, label)[0]; }
Value sub(Arg a, Arg b, Label label) { return emit(sub_op, {a, b}, {}, label)[0]; }
Value mul(Arg a, Arg b, Label label) { return emit(mul_op, {a, b}, {}, label)[0]; }
Value div(Arg a, Arg b, Label label) { return emit(div_op, {a, b}, {}, label)[0]; }

}  // namespace graphsink
