// exp and tanh for the host, with the algorithms and constants of Moshier's Cephes library
// (https://www.netlib.org/cephes/, expf.c, tanhf.c and tanh.c). The float functions contain neither calls nor branches,
// so that loops over them become vector code. The error is below 2 units in the last place for float, and below 1 for
// double.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace graphsink::host_math {

inline float power_of_2(std::int32_t n) { return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23); }

// exp(x) = 2^n * exp(r), |r| <= log(2) / 2. Overflows to infinity and underflows through the denormals to 0.
inline float exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;  // their sum is log(2)
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the lowest bits
  float y = x > 89.0f ? 89.0f : x;
  y = y < -104.0f ? -104.0f : y;
  float shifted = y * kLog2E + kRound;
  float n = shifted - kRound;
  float r = y - n * kLog2High - n * kLog2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // Multiplies by two powers of 2, because 2^n alone may be out of range. For a NaN, n is arbitrary, and the result is
  // a NaN.
  auto exponent = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) & 0x1ff);  // 9 bits, two's complement
  exponent = exponent >= 256 ? exponent - 512 : exponent;
  std::int32_t half = exponent / 2;
  return p * power_of_2(half) * power_of_2(exponent - half);
}

inline float tanh(float x) {
  float square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  float magnitude = std::fabs(x);
  float small = p * square * magnitude + magnitude;
  float large = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? small : large, x);
}

inline double tanh(double x) {
  double magnitude = std::fabs(x);
  if (magnitude < 0.625) {
    double square = magnitude * magnitude;
    double p = -9.64399179425052238628e-1;
    p = p * square - 9.92877231001918586564e1;
    p = p * square - 1.61468768441708447952e3;
    double q = square + 1.12811678491632931402e2;
    q = q * square + 2.23548839060100448583e3;
    q = q * square + 4.84406305325125486048e3;
    return std::copysign(magnitude + magnitude * (square * (p / q)), x);
  }
  // Computes 1 - 2 / (e + 1). The rounding errors of the sum, the quotient and the difference are added at the end.
  double e = std::exp(2 * (magnitude > 22 ? 22 : magnitude));
  double sum = e + 1, lost_in_sum = 1 - (sum - e);
  double quotient = 2 / sum, lost_in_quotient = (std::fma(-quotient, sum, 2.0) - quotient * lost_in_sum) / sum;
  double difference = 1 - quotient, lost_in_difference = 1 - difference - quotient;
  return std::copysign(difference + (lost_in_difference - lost_in_quotient), x);
}

}  // namespace graphsink::host_math
