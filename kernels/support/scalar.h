// The functions that the expressions of element-wise ops may call, of one element each. Kernel files include this
// header, and the library contains its text, for kernels that are compiled while the program runs
// (kernels/runtime/fused_source.h). Therefore it includes only headers whose text the library contains too, and few of
// the standard library.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/convert.h"
#ifndef __CUDACC_RTC__
#include "kernels/support/host_math.h"
#include "kernels/support/host_pow.h"
#include "kernels/support/host_trigonometry.h"
#endif

#ifdef __CUDACC__
#define HD __host__ __device__ inline
#else
#define HD inline
#endif

namespace graphsink {

// The type in which elements of type T are computed. half and bfloat16 are computed in float and rounded once, when the
// result is stored.
template <class T>
struct ComputedIn {
  using Type = T;
};
template <>
struct ComputedIn<half> {
  using Type = float;
};
template <>
struct ComputedIn<bfloat16> {
  using Type = float;
};
template <class T>
using Wide = typename ComputedIn<T>::Type;

// Returns a / b for non-negative numbers. Small numbers are divided in 32 bits, because 64-bit division is slow on
// GPUs.
HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
  bool is_small = a <= 0xffffffff && b <= 0xffffffff;
  return is_small ? std::int64_t{static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b)} : a / b;
}

// Math functions with the same names for float and double, on host and device. The ops of these names hide those of
// <cmath>.
namespace math {
// The software CUDA device of the tests defines it, and gives kernels other last bits than CPU bodies.
#ifndef GRAPHSINK_DEVICE_RESULT
#define GRAPHSINK_DEVICE_RESULT(y) (y)
#endif
#ifdef __CUDA_ARCH__
HD float exp(float x) { return ::expf(x); }
HD double exp(double x) { return ::exp(x); }
HD float log(float x) { return ::logf(x); }
HD double log(double x) { return ::log(x); }
HD float pow(float x, float y) { return ::powf(x, y); }
HD double pow(double x, double y) { return ::pow(x, y); }
HD float sin(float x) { return ::sinf(x); }
HD double sin(double x) { return ::sin(x); }
HD float cos(float x) { return ::cosf(x); }
HD double cos(double x) { return ::cos(x); }
HD float tanh(float x) { return ::tanhf(x); }
HD double tanh(double x) { return ::tanh(x); }
HD float erf(float x) { return ::erff(x); }
#else
HD float exp(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::exp(x)); }
HD double exp(double x) { return GRAPHSINK_DEVICE_RESULT(host_math::exp(x)); }
HD float log(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::log(x)); }
HD double log(double x) { return GRAPHSINK_DEVICE_RESULT(host_math::log(x)); }
HD float pow(float x, float y) { return GRAPHSINK_DEVICE_RESULT(host_math::pow(x, y)); }
HD double pow(double x, double y) { return GRAPHSINK_DEVICE_RESULT(host_math::pow(x, y)); }
HD float sin(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::sin(x)); }
HD double sin(double x) { return GRAPHSINK_DEVICE_RESULT(host_math::sin(x)); }
HD float cos(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::cos(x)); }
HD double cos(double x) { return GRAPHSINK_DEVICE_RESULT(host_math::cos(x)); }
HD float tanh(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::tanh(x)); }
HD double tanh(double x) { return GRAPHSINK_DEVICE_RESULT(host_math::tanh(x)); }
HD float erf(float x) { return GRAPHSINK_DEVICE_RESULT(host_math::erf(x)); }
#endif
HD float abs(float x) { return ::fabsf(x); }
HD double abs(double x) { return ::fabs(x); }
HD float sqrt(float x) { return ::sqrtf(x); }
HD double sqrt(double x) { return ::sqrt(x); }
HD float floor(float x) { return ::floorf(x); }
HD double floor(double x) { return ::floor(x); }
HD float ceil(float x) { return ::ceilf(x); }
HD double ceil(double x) { return ::ceil(x); }
HD float rint(float x) { return ::rintf(x); }
HD double rint(double x) { return ::rint(x); }
HD double erf(double x) { return ::erf(x); }
template <class T>
HD T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
// For infinities and NaNs, x - x is a NaN.
template <class T>
HD bool is_finite(T x) {
  return x - x == T(0);
}
}  // namespace math

// gelu(x) = x / 2 * (1 + tanh(u(x))), u(x) = sqrt(2 / pi) * (x + 0.044715 x^3).
constexpr double kGelu = 0.7978845608028654, kCubic = 0.044715;
template <class T>
HD T gelu_tanh(T x) {
  return math::tanh(T(kGelu) * (x + T(kCubic) * x * x * x));
}

template <class T>
HD T gelu_slope(T x) {
  T t = gelu_tanh(x), tail = T(1) - t * t;
  if (tail == T(0)) return T(0.5) * (T(1) + t);  // 0 or 1, where x * x may be infinite
  return T(0.5) * (T(1) + t) + T(0.5) * x * tail * T(kGelu) * (T(1) + T(3 * kCubic) * x * x);
}
template <class T>
HD T silu_slope(T x) {
  T s = math::sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

// -(a * b / c), in an order in which nothing overflows that need not.
template <class T>
HD T negative_quotient(T a, T b, T c) {
  T larger = math::abs(a) > math::abs(b) ? a : b, smaller = math::abs(a) > math::abs(b) ? b : a;
  return math::abs(c) < T(1) ? -(smaller / c * larger) : -(larger / c * smaller);
}
// Share of an operand in the gradient: all if the operand is the result, half if the other one is, too; else 0.
template <class T>
HD T share(T gradient, bool is_own, bool is_other) {
  return !is_own ? T(0) : is_other ? T(0.5) * gradient : gradient;
}

}  // namespace graphsink
