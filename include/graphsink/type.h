// DType, Shape, TensorType: what a Value is, without its data.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "graphsink/error.h"
#include "graphsink/half.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

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
// Whether the dtype is a float type, of any size: f16, bf16, f32 or f64.
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
//
// A dimension of the Shape of a Value may be open: its size depends on what is written to an input with open(), and is
// known only when the program runs. Whatever would read its size throws Error, naming the caller's line and what to use
// instead, such as dim() or keep().
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  constexpr Shape() = default;
  // Throw Error above kMaxRank, and for a negative size.
  Shape(std::initializer_list<std::int64_t> dims, Where where = Where::current())
      : Shape(std::span(dims.begin(), dims.size()), where) {}
  explicit Shape(std::span<const std::int64_t> dims, Where where = Where::current());

  // The number of a dimension, from the front or, if negative, from the end; knows the line that asks.
  struct Axis {
    int number;
    Where where;
    Axis(int i, Where line = Where::current()) : number(i), where(line) {}  // NOLINT: implicit
  };

  int rank() const { return rank_; }
  // Throw Error unless -rank() <= i < rank().
  std::int64_t operator[](Axis i) const { return dims_[known(i)]; }
  std::int64_t& operator[](Axis i) { return dims_[known(i)]; }
  bool is_open(Axis i) const { return (open_ >> checked(i) & 1) != 0; }
  bool has_open() const { return open_ != 0; }
  std::span<const std::int64_t> dims(Where where = Where::current()) const;
  void push_back(std::int64_t dim, Where where = Where::current());
  // Number of elements; 1 for a scalar. Throws Error if the product of all dimensions but those of 0 is 2^63 or more.
  std::int64_t size(Where where = Where::current()) const;

  // Open dimensions are equal if their examples are; they may still turn out to be of two sizes.
  friend bool operator==(const Shape&, const Shape&) = default;
  // An order without meaning, for containers.
  friend auto operator<=>(const Shape&, const Shape&) = default;

  // For the library's own layers: marks a dimension, whose size is now the example; the examples as known sizes.
  void mark_open(int i) { open_ = static_cast<std::uint8_t>(open_ | 1u << checked(i)); }
  Shape examples() const {
    Shape result = *this;
    result.open_ = 0;
    return result;
  }

 private:
  // The dimension from the front. known(): whose size may be read.
  std::size_t checked(const Axis& i) const {
    int d = i.number < 0 ? i.number + rank_ : i.number;
    if (d < 0 || d >= rank_) refuse_axis(i);
    return static_cast<std::size_t>(d);
  }
  std::size_t known(const Axis& i) const {
    if (open_ != 0 && is_open(i)) refuse_open(i);
    return checked(i);
  }
  [[noreturn]] void refuse_axis(const Axis& i) const;
  [[noreturn]] void refuse_open(const Axis& i) const;

  std::array<std::int64_t, kMaxRank> dims_{};  // 0 beyond the rank
  int rank_ = 0;
  std::uint8_t open_ = 0;  // bit i: dimension i is open
};

// "[32, 784]"; "[open(32), 784]", an open dimension with its example.
std::string to_string(const Shape& shape);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  // Throws Error if they are 2^56 or more, which no device addresses, or depend on an open dimension.
  std::size_t bytes(Where where = Where::current()) const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// "f32[32, 784]".
std::string to_string(const TensorType& type);

}  // namespace graphsink
