// Maps a DType, which is known only when the program runs, to a C++ type for which a body is instantiated.
#pragma once

#include "kernels/support/kernel.h"

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

// In the order in which error messages list them.
inline constexpr DType kAllDTypes[] = {f32, f64, f16, bf16, i32, i64, u8, boolean};

// Reads a floating-point number of any size.
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
