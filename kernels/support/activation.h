// Activation functions that may follow a matrix product.
#pragma once

#include "kernels/support/elementwise.h"

namespace graphsink {

UNARY_EXPRESSION(Relu, x < T(0) ? T(0) : x);  // a NaN stays one
UNARY_EXPRESSION(Tanh, math::tanh(x));
UNARY_EXPRESSION(Sigmoid, math::sigmoid(x));
UNARY_EXPRESSION(Silu, x* math::sigmoid(x));
UNARY_EXPRESSION(Gelu, T(0.5) * x * (T(1) + gelu_tanh(x)));

}  // namespace graphsink
