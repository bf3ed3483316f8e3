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

// As error messages name them.
inline constexpr DType kAllDTypes[] = {f32, f64, f16, bf16, i32, i64, u8, boolean};

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
