// pow for the host; see host_math.h. A few exponents have short formulas. pow() selects them element by element, so
// that a result does not depend on whether the exponent is an operand of one element.
#pragma once

#include "kernels/support/host_math.h"

namespace graphsink::host_math {

// condition ? a : b. The compiler might make branches of many conditional expressions in a row.
inline float select(bool condition, float a, float b) {
  std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) | (std::bit_cast<std::uint32_t>(b) & ~mask));
}

// log2(x) for finite x > 0, with a relative error below 2^-37.
inline double log2_of_float(float x) {
  auto bits = std::bit_cast<std::uint64_t>(double{x});
  std::uint64_t steps = bits - 0x3fe6a09e667f3bcdu;
  std::uint64_t biased = ((steps + (std::uint64_t{1024} << 52)) >> 52) | 0x4330000000000000u;
  double e = std::bit_cast<double>(biased) - (0x1p52 + 1024.0);
  double m = std::bit_cast<double>(bits - (steps & 0xfff0000000000000u));
  double s = (m - 1.0) / (m + 1.0);
  return e + s * polynomial(s * s, 0.34073299324245587063, 0.41167268734376856428, 0.57708358300700863921,
                            0.96179667336823092987, 2.8853900817900482418);
}

// 2^x with a relative error below 2^-27. Overflows and underflows as a float.
inline float power_of_2_of(double x) {
  double y = x > 130.0 ? 130.0 : x;
  y = y < -160.0 ? -160.0 : y;
  double shifted = y + kRound64;
  double f = y - (shifted - kRound64);
  double p = 1.0 + f * polynomial(f, 0.0001545316294531951856, 0.0013390863364900885592, 0.0096180825572774787295,
                                  0.055503571142186472824, 0.24022650760568127721, 0.69314718802622887073);
  std::uint64_t bits = std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(shifted) << 52);
  return static_cast<float>(std::bit_cast<double>(bits));
}

// a^b without the short formulas.
inline float pow_in_general(float a, float b) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float magnitude = std::fabs(a);
  float result = power_of_2_of(b * log2_of_float(magnitude));
  bool is_infinite = magnitude == kInfinity;
  bool is_end = (magnitude == 0.0f) | is_infinite;
  bool grows = (magnitude > 1.0f) == (b > 0.0f);
  result = select(is_end, select(grows, kInfinity, 0.0f), result);
  result = select(magnitude == 1.0f, 1.0f, result);  // b may be infinite
  // From 2^24 on, all floats are even.
  float limited = select(std::fabs(b) < 0x1p24f, std::fabs(b), 0x1p24f);
  auto whole = static_cast<std::int32_t>(limited);
  bool is_whole = static_cast<float>(whole) == limited;
  bool is_nan = (a < 0.0f) & !is_whole & !is_infinite;
  result = select(is_nan, std::numeric_limits<float>::quiet_NaN(), result);
  std::uint32_t odd = (static_cast<std::uint32_t>(whole) & static_cast<std::uint32_t>(is_whole)) << 31;
  result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) ^ (std::bit_cast<std::uint32_t>(a) & odd));
  result = select((a != a) | (b != b), a + b, result);
  return select((b == 0.0f) | (a == 1.0f), 1.0f, result);
}
inline double pow_in_general(double a, double b) { return std::pow(a, b); }

// The exponents with a short formula.
enum class ShortPower : std::uint8_t { none, reciprocal, root, self, square, cube };
template <class T>
inline ShortPower short_power(T b) {
  return b == T(2)     ? ShortPower::square
         : b == T(0.5) ? ShortPower::root
         : b == T(3)   ? ShortPower::cube
         : b == T(-1)  ? ShortPower::reciprocal
         : b == T(1)   ? ShortPower::self
                       : ShortPower::none;
}
template <class T>
inline T reciprocal(T a) {
  return T(1) / a;
}
template <class T>
inline T square(T a) {
  return a * a;
}
template <class T>
inline T cube(T a) {
  return a * a * a;
}
// pow(a, 0.5), which differs from the root of -0 and of -infinity.
template <class T>
inline T root_power(T a) {
  T magnitude = std::fabs(a);
  T root = std::sqrt(magnitude);
  bool is_nan = (a < T(0)) & (magnitude != std::numeric_limits<T>::infinity());
  return is_nan ? std::numeric_limits<T>::quiet_NaN() : root;
}

inline float pow(float a, float b) {
  float result = pow_in_general(a, b);
  result = select(b == 1.0f, a, result);
  result = select(b == -1.0f, reciprocal(a), result);
  result = select(b == 0.5f, root_power(a), result);
  result = select(b == 2.0f, square(a), result);
  return select(b == 3.0f, cube(a), result);
}
inline double pow(double a, double b) {
  switch (short_power(b)) {
    case ShortPower::reciprocal:
      return reciprocal(a);
    case ShortPower::root:
      return root_power(a);
    case ShortPower::self:
      return a;
    case ShortPower::square:
      return square(a);
    case ShortPower::cube:
      return cube(a);
    case ShortPower::none:
      break;
  }
  return pow_in_general(a, b);
}

}  // namespace graphsink::host_math
