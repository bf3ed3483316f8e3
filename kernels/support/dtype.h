// From a DType, known when the program runs, to the C++ type of a body.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

// What elements of type T are computed in: half and bfloat16 in float, with one rounding when the result is stored.
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

// Integers are added and multiplied in their unsigned counterparts: they wrap.
template <class T>
constexpr DType element_dtype() {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    return DType::i32;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return DType::i64;
  } else {
    return dtype_of<T>();
  }
}

// As error messages name them.
inline constexpr DType kAllDTypes[] = {f32, f64, f16, bf16, i32, i64, u8, boolean};

// body.operator()<T>() for the T among Ts that is `dtype`:
//   for_dtype<float, double, half, bfloat16>(dtype, [&]<class T>() { launch<T>(a); });
// Precondition: there is one; infer() refuses others with expect_dtype().
template <class... Ts, class Body>
void for_dtype(DType dtype, const Body& body) {
  bool is_found = ((dtype == element_dtype<Ts>() && (body.template operator()<Ts>(), true)) || ...);
  if (!is_found) throw std::logic_error("no body for " + std::string(to_string(dtype)));
}

// Refuses operands of any other dtype than those of Ts.
template <class... Ts>
void expect_dtype(InferArgs& a, int operand) {
  DType dtype = a.in(operand).dtype;
  bool is_taken = ((dtype == element_dtype<Ts>()) || ...);
  if (is_taken) return;
  std::string taken;
  ((taken += (taken.empty() ? "" : ", ") + std::string(to_string(element_dtype<Ts>()))), ...);
  a.fail("takes " + taken, "cast() the operands");
}

// A float of any size.
HD double read_float(const void* address, DType dtype) {
  switch (dtype) {
    case DType::f16:
      return double{*static_cast<const half*>(address)};
    case DType::bf16:
      return double{*static_cast<const bfloat16*>(address)};
    case DType::f64:
      return *static_cast<const double*>(address);
    default:
      return double{*static_cast<const float*>(address)};
  }
}

}  // namespace graphsink
