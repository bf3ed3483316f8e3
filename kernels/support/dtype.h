// Maps a DType, which is known only when the program runs, to a C++ type for which a body is instantiated.
#pragma once

#include <string_view>

#include "kernels/support/kernel.h"

namespace graphsink {

// In the order in which error messages list them.
inline constexpr DType kAllDTypes[] = {f32, f64, f16, bf16, i32, i64, u8, boolean};

// Reads a floating-point number of any size.
HD double read_float(const void* address, DType dtype, std::int64_t i = 0) {
  switch (dtype) {
    case DType::f16:
      return double{static_cast<const half*>(address)[i]};
    case DType::bf16:
      return double{static_cast<const bfloat16*>(address)[i]};
    case DType::f64:
      return static_cast<const double*>(address)[i];
    default:
      return double{static_cast<const float*>(address)[i]};
  }
}

// The name of the type of an element, in kernels that are compiled while the program runs.
template <class T>
constexpr std::string_view type_name() {
  if constexpr (std::is_same_v<T, float>) {
    return "float";
  } else if constexpr (std::is_same_v<T, double>) {
    return "double";
  } else if constexpr (std::is_same_v<T, half>) {
    return "half";
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return "bfloat16";
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return "std::int32_t";
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return "std::int64_t";
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return "std::uint32_t";
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return "std::uint64_t";
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return "std::uint8_t";
  } else {
    static_assert(std::is_same_v<T, bool>);
    return "bool";
  }
}

// Calls body.operator()<T>() with the comparable type T of `dtype`.
template <class Body>
void for_comparable(DType dtype, const Body& body) {
  for_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t>(dtype, body);
}
inline void expect_comparable(InferArgs& a, int operand) {
  expect_dtype<float, double, half, bfloat16, std::int32_t, std::int64_t, std::uint8_t>(a, operand);
}

}  // namespace graphsink
