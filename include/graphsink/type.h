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

inline constexpr DType f32 = DType::f32;          // float
inline constexpr DType f64 = DType::f64;          // double
inline constexpr DType i32 = DType::i32;          // std::int32_t
inline constexpr DType boolean = DType::boolean;  // bool, one byte
inline constexpr DType f16 = DType::f16;          // half: 5 bits of exponent, 10 of fraction
inline constexpr DType bf16 = DType::bf16;        // bfloat16: 8 bits of exponent, 7 of fraction
inline constexpr DType i64 = DType::i64;          // std::int64_t
inline constexpr DType u8 = DType::u8;            // std::uint8_t

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
  static constexpr int kMaxRank = 8;  // most dimensions of a Shape

  constexpr Shape() = default;
  // Throws Error for more than kMaxRank sizes, and for a negative one.
  Shape(std::initializer_list<std::int64_t> dims, Where where = Where::current())
      : Shape(std::span(dims.begin(), dims.size()), where) {}
  // The same for sizes that are computed.
  explicit Shape(std::span<const std::int64_t> dims, Where where = Where::current());

  // The number of a dimension, from the front or, if negative, from the end; knows the line that asks.
  struct Axis {
    int number;   // as it was given
    Where where;  // the line that asks, for the Error
    // Takes the line of the caller.
    Axis(int i, Where line = Where::current()) : number(i), where(line) {}  // NOLINT: implicit
  };

  int rank() const { return rank_; }  // number of dimensions, at most kMaxRank
  // The size of a dimension. Throws Error unless -rank() <= i < rank(), and for an open dimension.
  std::int64_t operator[](Axis i) const { return dims_[known(i)]; }
  // The same, to change it. The new size is not checked.
  std::int64_t& operator[](Axis i) { return dims_[known(i)]; }
  // Whether a dimension is open. Throws Error unless -rank() <= i < rank().
  bool is_open(Axis i) const { return (open_ >> checked(i) & 1) != 0; }
  bool has_open() const { return open_ != 0; }  // whether one or more are
  // All sizes, outermost first; valid while *this lives. Throws Error if one is open.
  std::span<const std::int64_t> dims(Where where = Where::current()) const;
  // Adds an innermost dimension. Throws Error above kMaxRank, and for a negative size.
  void push_back(std::int64_t dim, Where where = Where::current());
  // Number of elements; 1 for a scalar. Throws Error if the product of all dimensions but those of 0 is 2^63 or more.
  std::int64_t size(Where where = Where::current()) const;

  // Open dimensions are equal if their examples are; they may still turn out to be of two sizes.
  friend bool operator==(const Shape&, const Shape&) = default;
  // An order without meaning, for containers.
  friend auto operator<=>(const Shape&, const Shape&) = default;

  // For the library's own layers: marks a dimension as open, whose size is now the example.
  void mark_open(int i) { open_ = static_cast<std::uint8_t>(open_ | 1u << checked(i)); }
  // For the library's own layers: the examples of open dimensions as known sizes.
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

// The dtype and the shape of a Value or a Tensor.
struct TensorType {
  DType dtype = DType::f32;  // type of an element
  Shape shape;               // by default that of a scalar

  // Bytes that the elements take. Throws Error if they are 2^56 or more, which no device addresses, or depend on an
  // open dimension.
  std::size_t bytes(Where where = Where::current()) const;
  friend bool operator==(const TensorType&, const TensorType&) = default;  // compares open dimensions as Shape does
};

// "f32[32, 784]".
std::string to_string(const TensorType& type);

}  // namespace graphsink
