// Functions of <cmath> for CPU bodies. Most contain neither calls nor branches, so that loops over them become vector
// code. They consist of IEEE operations that round once, fused multiply-adds among them, so that a result depends on
// the operands alone: not on the width of vectors, nor on the place of an element in a row, nor on whether the
// processor has an instruction for std::fma(). Errors are below these limits in units of the last place (ulp), of float
// for each operand there is, of double and of pow for the tens of millions that were tried; overflow, infinities, NaNs,
// zeros and denormals are those of C.
//
//             float   double  from
//   exp       0.92    0.9     a minimax polynomial; double: another polynomial
//   log       0.83    0.9     Moshier's Cephes library (https://www.netlib.org/cephes/), logf.c;
//                             double: FreeBSD's msun, e_log.c
//   tanh      1.4     1       Cephes, tanhf.c and tanh.c
//   sin, cos  1.6     0.8     Cephes, sinf.c; double: msun, k_sin.c and k_cos.c; host_trigonometry.h
//   pow       1       1       float: logarithm and power in double; double: the C library; host_pow.h
//   erf       1.2     1       float: polynomials of erf(x) / x and log(1 - erf(x)); double: the C library
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace graphsink::host_math {

// p(x) = (...(c0 * x + c1) * x + ...) * x + cn, each step rounded once.
template <class T, class... C>
inline T polynomial(T x, T c0, C... c) {
  T p = c0;
  ((p = std::fma(p, x, c)), ...);
  return p;
}

// Adding one of these rounds a number to the nearest integer, which is then in the lowest bits of the sum.
constexpr float kRound = 0x1.8p23f;
constexpr double kRound64 = 0x1.8p52;

// x = n * log(2) + r, |r| <= log(2) / 2, and q = exp(r) - 1. The lowest bits of `shifted` are n.
struct ExpParts {
  float q, shifted;
};
inline ExpParts exp_parts(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;  // their sum is log(2)
  float shifted = std::fma(x, kLog2E, kRound);
  float n = shifted - kRound;
  float high = std::fma(n, -kLog2High, x), low = n * kLog2Low;
  float r = high - low;
  float p = polynomial(r, 1.39465548617e-3f, 8.36664393278e-3f, 4.1666280625e-2f, 1.66665425458e-1f, 5.00000006227e-1f);
  return {high + std::fma(p, r * r, -low), shifted};
}
// p * 2^n, where n is the lowest bits of `shifted`. Precondition: p and the result are normal.
inline float scaled(float p, float shifted) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}
inline double scaled(double p, double shifted) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52));
}

// Overflows to infinity and underflows through the denormals to 0.
inline float exp(float x) {
  constexpr float kMost = 88.72283f;  // largest x with a finite exp()
  float y = x < -104.0f ? -104.0f : x;
  auto [q, shifted] = exp_parts(y);
  // A result that may be denormal is made 2^64 times as large, and then scaled down.
  std::uint32_t lift = y < -87.0f ? 64u << 23 : 0;
  float lifted = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled(1.0f + q, shifted)) + lift);
  float result = lifted * std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0f) - lift);
  return x <= kMost ? result : std::fabs(x) + std::numeric_limits<float>::infinity();  // a NaN stays one
}
// The same for -87 <= x <= 88. Anything for a NaN.
inline float exp_of_moderate(float x) {
  auto [q, shifted] = exp_parts(x);
  return scaled(1.0f + q, shifted);
}

inline double exp(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLog2High = 6.93147180369123816490e-01, kLog2Low = 1.90821492927058770002e-10;
  constexpr double kMost = 709.78271289338397;  // largest x with a finite exp()
  double y = x < -746.0 ? -746.0 : x;
  double shifted = std::fma(y, kLog2E, kRound64);
  double n = shifted - kRound64;
  double high = std::fma(n, -kLog2High, y), low = n * kLog2Low;
  double r = high - low;
  double p =
      polynomial(r, 2.091467945249519375e-9, 2.510520648025936543e-8, 2.755727366116627992e-7, 2.755725542549107216e-6,
                 2.480158735155335076e-5, 1.984126987480069326e-4, 1.388888888888375238e-3, 8.333333333326140826e-3,
                 4.166666666666666975e-2, 1.666666666666666710e-1, 0.5);
  p = 1.0 + (high + std::fma(p, r * r, -low));
  std::uint64_t lift = y < -708.0 ? std::uint64_t{128} << 52 : 0;
  double lifted = std::bit_cast<double>(std::bit_cast<std::uint64_t>(scaled(p, shifted)) + lift);
  double result = lifted * std::bit_cast<double>(std::bit_cast<std::uint64_t>(1.0) - lift);
  return x <= kMost ? result : std::fabs(x) + std::numeric_limits<double>::infinity();  // a NaN stays one
}

// log(x) = e * log(2) + log(m), sqrt(1/2) <= m < sqrt(2).
inline float log(float x) {
  constexpr float kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;  // their sum is log(2)
  bool is_denormal = x < std::numeric_limits<float>::min();
  float scaled = is_denormal ? x * 0x1p23f : x;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled), steps = bits - 0x3f3504f3u;
  auto e = static_cast<float>(static_cast<std::int32_t>(steps) >> 23);
  e = is_denormal ? e - 23.0f : e;
  float f = std::bit_cast<float>(bits - (steps & 0xff800000u)) - 1.0f;
  float square = f * f;
  float p = polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                       -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  float rest = std::fma(square, -0.5f, std::fma(p, f * square, e * kLog2Low));
  float result = std::fma(e, kLog2High, f + rest);
  result = x < std::numeric_limits<float>::infinity() ? result : x;  // infinite or a NaN
  result = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : result;
  return x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
}

inline double log(double x) {
  constexpr double kLog2High = 6.93147180369123816490e-01, kLog2Low = 1.90821492927058770002e-10;
  bool is_denormal = x < std::numeric_limits<double>::min();
  double scaled = is_denormal ? x * 0x1p54 : x;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(scaled), steps = bits - 0x3fe6a09e667f3bcdu;
  // The exponent plus 1024 becomes the lowest bits of 2^52, which then is subtracted.
  std::uint64_t biased = ((steps + (std::uint64_t{1024} << 52)) >> 52) | 0x4330000000000000u;
  double e = std::bit_cast<double>(biased) - (0x1p52 + 1024.0);
  e = is_denormal ? e - 54.0 : e;
  double f = std::bit_cast<double>(bits - (steps & 0xfff0000000000000u)) - 1.0;
  double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  double p = z * polynomial(z, 1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                            2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                            6.666666666666735130e-01);
  double rest = half_square - std::fma(s, half_square + p, e * kLog2Low);
  double result = std::fma(e, kLog2High, f - rest);
  result = x < std::numeric_limits<double>::infinity() ? result : x;  // infinite or a NaN
  result = x < 0.0 ? std::numeric_limits<double>::quiet_NaN() : result;
  return x == 0.0 ? -std::numeric_limits<double>::infinity() : result;
}

inline float tanh(float x) {
  float square = x * x;
  float p = polynomial(square, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                       -3.33332819422e-1f);
  float magnitude = std::fabs(x);
  float small = std::fma(p * square, magnitude, magnitude);
  float limited = magnitude > 10.0f ? 10.0f : magnitude;  // where the result is 1
  float large = 1.0f - 2.0f / (exp_of_moderate(2.0f * limited) + 1.0f);
  float result = std::copysign(magnitude < 0.625f ? small : large, x);
  return x != x ? x : result;
}

inline double tanh(double x) {
  double magnitude = std::fabs(x);
  double square = magnitude * magnitude;
  double p = polynomial(square, -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3);
  double q = polynomial(square, 1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3);
  double small = magnitude + magnitude * (square * (p / q));
  // Computes 1 - 2 / (e + 1). The rounding errors of the sum, the quotient and the difference are added at the end.
  double e = exp(2 * (magnitude > 22 ? 22 : magnitude));
  double sum = e + 1, lost_in_sum = 1 - (sum - e);
  double quotient = 2 / sum, lost_in_quotient = (std::fma(-quotient, sum, 2.0) - quotient * lost_in_sum) / sum;
  double difference = 1 - quotient, lost_in_difference = 1 - difference - quotient;
  double large = difference + (lost_in_difference - lost_in_quotient);
  return std::copysign(magnitude < 0.625 ? small : large, x);
}

// For large |x|, erf(x) = 1 - exp(q(|x|)).
inline float erf(float x) {
  float square = x * x;
  float p = polynomial(square, 8.20416967616e-5f, -8.10291556098e-4f, 5.19748722663e-3f, -2.68579590627e-2f,
                       1.12836694686e-1f, -3.76126320471e-1f, 1.2837916646e-1f);
  float small = std::fma(x, p, x);
  float magnitude = std::fabs(x) > 4.0f ? 4.0f : std::fabs(x);
  float q = polynomial(magnitude, 1.64273629172e-6f, -4.61658083162e-5f, 5.97684783366e-4f, -4.76353857457e-3f,
                       2.64317042329e-2f, -1.10097305704e-1f, -6.31809537840e-1f, -1.13024184751f, 3.21848417549e-4f);
  float large = std::copysign(1.0f - exp_of_moderate(q), x);
  float result = std::fabs(x) < 0.95f ? small : large;
  return x != x ? x : result;
}

}  // namespace graphsink::host_math
