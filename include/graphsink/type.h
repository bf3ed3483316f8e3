// DType, Shape, TensorType: what a Value is, without its data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "graphsink/half.h"

namespace graphsink {

// f16 and bf16 are half and bfloat16 (half.h), i32 and i64 are signed, u8 is not.
enum class DType : std::uint8_t { f32, f64, i32, boolean, f16, bf16, i64, u8 };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType boolean = DType::boolean;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u8 = DType::u8;

// Bytes of one element: 1 to 8.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      break;
  }
  return 8;
}
// f16 or bf16: for storage, computed in f32.
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
// Of any size.
constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f64 || is_half(dtype); }
// "f32", "i64", "bool".
std::string_view to_string(DType dtype);

// The DType of a C++ element type; any other type does not compile.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, half>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else {
    static_assert(std::is_same_v<T, bool>,
                  "element types are half, bfloat16, float, double, std::int32_t, std::int64_t, std::uint8_t and bool");
    return DType::boolean;
  }
}

// Sizes of the dimensions, outermost first; rank 0 is a scalar. A value type that never allocates.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  constexpr Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);  // throws Error above kMaxRank

  int rank() const { return rank_; }
  // Negative indices count from the end. Precondition: -rank() <= i < rank().
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  void push_back(std::int64_t dim);
  // Number of elements; 1 for a scalar.
  std::int64_t size() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// "[32, 784]".
std::string to_string(const Shape& shape);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  std::size_t bytes() const { return size_of(dtype) * static_cast<std::size_t>(shape.size()); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// "f32[32, 784]".
std::string to_string(const TensorType& type);

}  // namespace graphsink
