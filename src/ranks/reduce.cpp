#include "ranks/reduce.h"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "graphsink/half.h"

namespace graphsink {
namespace {

template <class T>
constexpr bool kIs16 = std::same_as<T, half> || std::same_as<T, bfloat16>;
template <class T>
using Wide = std::conditional_t<kIs16<T>, float, T>;

// NaN if one of them is.
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    return b > a || std::isnan(b) ? b : a;
  } else {
    return b > a ? b : a;
  }
}

// Integers wrap around.
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

template <class T, Reduction reduction>
void reduce_as(T* rows, std::int64_t size, int ranks) {
  for (std::int64_t i = 0; i < size; ++i) {
    auto result = static_cast<Wide<T>>(rows[i]);
    for (int rank = 1; rank < ranks; ++rank) {
      const auto next = static_cast<Wide<T>>(rows[rank * size + i]);
      if constexpr (reduction == Reduction::max) {
        result = larger(result, next);
      } else {
        result = sum_of(result, next);
      }
    }
    if constexpr (reduction == Reduction::mean) result = result / static_cast<Wide<T>>(ranks);
    rows[i] = static_cast<T>(result);
  }
}

// Calls body.operator()<T>() for the type of an element. infer() refuses booleans.
template <class Body>
void for_element(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<half>();
    case DType::bf16:
      return body.template operator()<bfloat16>();
    case DType::i32:
      return body.template operator()<std::int32_t>();
    case DType::i64:
      return body.template operator()<std::int64_t>();
    case DType::u8:
      return body.template operator()<std::uint8_t>();
    case DType::boolean:
      break;
  }
}

}  // namespace

void reduce_rows(void* rows, DType dtype, std::int64_t size, int ranks, Reduction reduction) {
  for_element(dtype, [&]<class T>() {
    auto* elements = static_cast<T*>(rows);
    if (reduction == Reduction::max) return reduce_as<T, Reduction::max>(elements, size, ranks);
    if (reduction == Reduction::mean) return reduce_as<T, Reduction::mean>(elements, size, ranks);
    reduce_as<T, Reduction::sum>(elements, size, ranks);
  });
}

}  // namespace graphsink
