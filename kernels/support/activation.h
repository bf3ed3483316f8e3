// Activation functions that may follow a matrix product.
#pragma once

#include "kernels/support/elementwise.h"

namespace graphsink {

UNARY_SCALAR(Relu, relu, x < T(0) ? T(0) : x);  // a NaN stays one
UNARY_SCALAR(Tanh, tanh, math::tanh(x));
UNARY_SCALAR(Sigmoid, sigmoid, math::sigmoid(x));
UNARY_SCALAR(Silu, silu, x* math::sigmoid(x));
UNARY_SCALAR(Gelu, gelu, T(0.5) * x * (T(1) + gelu_tanh(x)));

}  // namespace graphsink
