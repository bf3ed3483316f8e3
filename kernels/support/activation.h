// Activation functions that may follow a matrix product.
#pragma once

#include "kernels/support/elementwise.h"

namespace graphsink {

// gelu(x) = x / 2 * (1 + tanh(u(x))), u(x) = sqrt(2 / pi) * (x + 0.044715 x^3).
constexpr double kGelu = 0.7978845608028654, kCubic = 0.044715;
template <class T>
HD T gelu_tanh(T x) {
  return math::tanh(T(kGelu) * (x + T(kCubic) * x * x * x));
}

UNARY_EXPRESSION(Relu, x < T(0) ? T(0) : x);  // a NaN stays one
UNARY_EXPRESSION(Tanh, math::tanh(x));
UNARY_EXPRESSION(Sigmoid, math::sigmoid(x));
UNARY_EXPRESSION(Silu, x* math::sigmoid(x));
UNARY_EXPRESSION(Gelu, T(0.5) * x * (T(1) + gelu_tanh(x)));

}  // namespace graphsink
