// relu, tanh, exp, and the gradients of the first two, each one kernel.
#include "kernels/elementwise.h"

namespace graphsink {
namespace {

UNARY_EXPRESSION(Relu, x < T(0) ? T(0) : x);  // a NaN stays one
UNARY_EXPRESSION(Tanh, math::tanh(x));
UNARY_EXPRESSION(Exp, math::exp(x));
// Of the gradient a and the forward output b.
BINARY_EXPRESSION(ReluGrad, b > T(0) ? a : T(0));
BINARY_EXPRESSION(TanhGrad, a*(T(1) - b * b));

const OpDef relu_grad_op = elementwise_op<ReluGrad, 2, float, double>("relu_grad");
const OpDef tanh_grad_op = elementwise_op<TanhGrad, 2, float, double>("tanh_grad");

std::vector<Value> relu_grad(const GradArgs& a) { return emit(relu_grad_op, {Arg(a.grads[0], a.where), a.outputs[0]}); }
std::vector<Value> tanh_grad(const GradArgs& a) { return emit(tanh_grad_op, {Arg(a.grads[0], a.where), a.outputs[0]}); }
std::vector<Value> exp_grad(const GradArgs& a) { return {mul(Arg(a.grads[0], a.where), a.outputs[0])}; }

const OpDef relu_op = elementwise_op<Relu, 1, float, double>("relu", relu_grad);
const OpDef tanh_op = elementwise_op<Tanh, 1, float, double>("tanh", tanh_grad);
const OpDef exp_op = elementwise_op<Exp, 1, float, double>("exp", exp_grad);

}  // namespace

Value relu(Arg x, Label label) { return emit(relu_op, {x}, {}, label)[0]; }
Value tanh(Arg x, Label label) { return emit(tanh_op, {x}, {}, label)[0]; }
Value exp(Arg x, Label label) { return emit(exp_op, {x}, {}, label)[0]; }

}  // namespace graphsink
