// One element from one C++ element type to another, as Tensor::to() and the op cast() do it on every device.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "graphsink/half.h"

namespace graphsink {

enum class DType : std::uint8_t;  // graphsink/type.h

// Floats round to nearest even. Floats to integers are truncated, at the ends of the range where they are outside it,
// and 0 for a NaN: C++ leaves these undefined, and processors differ. Integers to shorter ones keep the low bits. To
// bool: x != 0.
template <class To, class From>
constexpr To convert(From x) {
  if constexpr (std::is_same_v<From, half> || std::is_same_v<From, bfloat16>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr auto kLowest = static_cast<From>(std::numeric_limits<To>::lowest());
    constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
    constexpr From kEnd = static_cast<From>(kHalf) * 2;  // a power of 2: exact
    if (x != x) return 0;
    if (x <= kLowest) return std::numeric_limits<To>::lowest();
    if (x >= kEnd) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// Whether a number can stand for itself in To: as a whole number within the range of an integer type, as 0 or 1 in
// bool, and in a float type up to rounding, which must not make it infinite or 0.
template <class To>
constexpr bool holds(double x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x == 0 || x == 1;
  } else if constexpr (std::is_integral_v<To>) {
    constexpr auto kLowest = static_cast<double>(std::numeric_limits<To>::lowest());
    constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
    constexpr double kEnd = static_cast<double>(kHalf) * 2;
    if (!(x >= kLowest && x < kEnd)) return false;
    return static_cast<double>(static_cast<To>(x)) == x;
  } else {
    double rounded = static_cast<To>(x);
    bool is_finite = x - x == 0, stays_finite = rounded - rounded == 0;
    return is_finite == stays_finite && (x == 0) == (rounded == 0);
  }
}
bool holds(DType dtype, double x);

}  // namespace graphsink
