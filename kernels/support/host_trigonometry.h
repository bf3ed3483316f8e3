// sin and cos for the host; see host_math.h. Loops over sin_near() and cos_near() become vector code. They are right
// where is_near(): there x - q * pi / 2 can be computed with pi in few parts. Elsewhere the C library knows how.
#pragma once

#include "kernels/support/host_math.h"

namespace graphsink::host_math {

// Whether sin_near() and cos_near() are right for x. True for a NaN, too.
template <class T>
inline bool is_near(T x) {
  return !(std::fabs(x) > T(1e5));
}

// x = q * pi / 2 + r, |r| <= pi / 4 (1 + 2^-8).
struct Quarter {
  float r;
  std::uint32_t q;  // modulo 2^23
};
// pi / 2 is in three parts. Subtracting the first one is exact: all multiples of 2^-23 below 1 are floats.
inline Quarter quarter_of(float x) {
  constexpr float kFirst = 1.57079637f, kSecond = -4.37113883e-8f, kThird = -1.71512451e-15f;
  float shifted = std::fma(x, 0.636619772f, kRound);
  float q = shifted - kRound;
  float r = std::fma(q, -kThird, std::fma(q, -kSecond, std::fma(q, -kFirst, x)));
  return {r, std::bit_cast<std::uint32_t>(shifted)};
}
// sin(r + q * pi / 2).
inline float sine_of(Quarter x) {
  float square = x.r * x.r;
  float p = polynomial(square, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  float sine = std::fma(p * square, x.r, x.r);
  float cosine = polynomial(square, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f, -0.5f, 1.0f);
  float result = (x.q & 1) != 0 ? cosine : sine;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) ^ ((x.q & 2) << 30));
}

inline float sin_near(float x) {
  float result = sine_of(quarter_of(x));
  return x == 0.0f ? x : result;  // keeps the sign
}
inline float cos_near(float x) {
  Quarter quarter = quarter_of(x);
  return sine_of({quarter.r, quarter.q + 1});
}

// x = q * pi / 2 + r + rest, where `rest` is what r loses by rounding.
struct Quarter64 {
  double r, rest;
  std::uint64_t q;  // modulo 2^51
};
// pi / 2 is in three parts. Subtracting the first one is exact: all multiples of 2^-52 below 1 are doubles.
inline Quarter64 quarter_of(double x) {
  constexpr double kFirst = 0x1.921fb54442d18p+0, kSecond = 0x1.1a62633145c07p-54, kThird = -0x1.f1976b7ed8fbcp-110;
  double shifted = std::fma(x, 0.63661977236758134308, kRound64);
  double q = shifted - kRound64;
  double exact = std::fma(q, -kFirst, x), second = q * kSecond;
  double r = exact - second;
  // Rounding errors: that of the difference, by Knuth's algorithm, which needs no order of the operands, and that of
  // the product.
  double back = r - exact, lost = exact - (r - back) - (second + back);
  double lost_in_product = std::fma(q, kSecond, -second);
  return {r, std::fma(q, -kThird, lost - lost_in_product), std::bit_cast<std::uint64_t>(shifted)};
}
inline double sine_of(Quarter64 x) {
  double z = x.r * x.r, cube = z * x.r;
  double p = polynomial(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                        -1.98412698298579493134e-04, 8.33333333332248946124e-03);
  double correction = std::fma(z, std::fma(-cube, p, 0.5 * x.rest), -x.rest);
  double sine = x.r - std::fma(cube, 1.66666666666666324348e-01, correction);
  double c = z * polynomial(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                            2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02);
  double half_square = 0.5 * z, most = 1.0 - half_square;
  double cosine = most + (1.0 - most - half_square + std::fma(z, c, -x.r * x.rest));
  double result = (x.q & 1) != 0 ? cosine : sine;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(result) ^ ((x.q & 2) << 62));
}

inline double sin_near(double x) {
  double result = sine_of(quarter_of(x));
  return x == 0.0 ? x : result;  // keeps the sign
}
inline double cos_near(double x) {
  Quarter64 quarter = quarter_of(x);
  return sine_of({quarter.r, quarter.rest, quarter.q + 1});
}

template <class T>
inline T sin(T x) {
  return is_near(x) ? sin_near(x) : static_cast<T>(std::sin(double{x}));
}
template <class T>
inline T cos(T x) {
  return is_near(x) ? cos_near(x) : static_cast<T>(std::cos(double{x}));
}

}  // namespace graphsink::host_math
