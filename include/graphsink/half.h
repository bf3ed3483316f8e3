// half and bfloat16: 16-bit floats for storage. Arithmetic is that of float; converting back rounds to nearest even.
// Plain bit operations, constexpr, so that the CPU and a GPU give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// A float that rounds to a shorter format just as x does: where x is no float, the neighbour with an odd last bit
// (Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd").
constexpr float round_to_odd(double x) {
  auto f = static_cast<float>(x);
  double seen = double{f};
  if (seen == x || x != x || x - x != 0) return f;
  auto bits = std::bit_cast<std::uint32_t>(f);
  if ((seen < 0 ? -seen : seen) > (x < 0 ? -x : x)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

// Any number as a float that rounds to a shorter format just as the number does.
template <class T>
constexpr float nearly(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    // Doubles hold 53 bits: of longer numbers the lower half becomes one bit.
    bool is_short = static_cast<T>(static_cast<T>(x << 11) >> 11) == x;
    if (is_short) return round_to_odd(static_cast<double>(x));
    return round_to_odd(static_cast<double>((x >> 32 << 1) | ((x & 0xffffffff) != 0 ? 1 : 0)) * 0x1p31);
  } else {
    return round_to_odd(static_cast<double>(x));
  }
}

// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits; the largest is 65504.
struct half {
  std::uint16_t bits;  // sign, exponent and mantissa, from the highest bit on

  half() = default;
  // The nearest half, ties to even; infinite from 65520 on; any NaN becomes 0x7fff.
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr explicit half(T x) : bits(round(nearly(x))) {}

  // The same number, denormal ones too.
  constexpr operator float() const {  // NOLINT: implicit, as it is exact
    std::uint32_t sign = (bits & 0x8000u) << 16, rest = (bits & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return std::bit_cast<float>(sign | 0x70000000u | rest);  // infinite or NaN
    std::uint32_t normal = rest + 0x38000000u;
    // A subnormal as a normal float plus 2^-14, so that processors that take denormal floats for zeros keep it.
    auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest + 0x38800000u) - 0x1p-14f);
    return std::bit_cast<float>(sign | (rest < 0x00800000u ? subnormal : normal));
  }

 private:
  static constexpr std::uint16_t round(float x) {
    auto whole = std::bit_cast<std::uint32_t>(x);
    std::uint32_t sign = whole >> 16 & 0x8000u, rest = whole & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7fff;
    if (rest >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (rest < 0x38800000u) {  // subnormal: the last bit of 0.5f is that of the smallest half
      rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
      return static_cast<std::uint16_t>(sign | rest);
    }
    rest += 0xfffu + (rest >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | (rest - 0x38000000u) >> 13);
  }
};

// The upper half of a float: 1 sign, 8 exponent and 7 mantissa bits.
struct bfloat16 {
  std::uint16_t bits;  // sign, exponent and mantissa, from the highest bit on

  bfloat16() = default;
  // The nearest bfloat16, ties to even; any NaN becomes 0x7fff.
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr explicit bfloat16(T x) : bits(round(nearly(x))) {}

  // The same number; a NaN keeps its bits.
  constexpr operator float() const {  // NOLINT: implicit, as it is exact
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

 private:
  static constexpr std::uint16_t round(float x) {
    auto whole = std::bit_cast<std::uint32_t>(x);
    if ((whole & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<std::uint16_t>((whole + 0x7fffu + (whole >> 16 & 1u)) >> 16);
  }
};

}  // namespace graphsink
