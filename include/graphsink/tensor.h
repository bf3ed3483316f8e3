// Tensor: dense row-major data on the host, a plain value (copying copies the data). One that is default-constructed or
// was moved from has no data: all calls but valid() throw Error, and so does what is given one.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Which axis of a weight counts the outputs. By rank, it is the last of two, [in, out], and the first of more,
// [out, in, kernel...]; the last of more is [kernel..., in, out].
enum class OutputAxis : std::uint8_t { by_rank, first, last };

// Dense row-major data on the host. Copying copies the data; a Tensor that was moved from has none. As a std::vector,
// it may be read by several threads at once.
class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. Throws Error for a size that depends on an open dimension.
  explicit Tensor(const TensorType& type, Where where = Where::current());
  // The same for a dtype and a shape.
  Tensor(DType dtype, const Shape& shape, Where where = Where::current()) : Tensor(TensorType{dtype, shape}, where) {}
  // Copies `values` (row-major). Throws Error if their number is not shape.size().
  template <class T, std::size_t N>
  Tensor(const Shape& shape, std::span<T, N> values, Where where = Where::current())
      : Tensor(dtype_of<std::remove_const_t<T>>(), shape, where) {
    check_count(values.size(), where);
    if (!values.empty()) std::memcpy(data(), values.data(), values.size_bytes());
  }
  // The same for a vector of any element type but bool.
  template <class T>
  Tensor(const Shape& shape, const std::vector<T>& values, Where where = Where::current())
      : Tensor(shape, std::span<const T>(values), where) {}
  // The same for std::vector<bool>, which holds no bools.
  template <std::same_as<bool> T>
  Tensor(const Shape& shape, const std::vector<T>& values, Where where = Where::current())
      : Tensor(dtype_of<T>(), shape, where) {
    check_count(values.size(), where);
    for (std::size_t i = 0; i < values.size(); ++i) as<T>()[i] = values[i];
  }
  // A vector: Tensor({1.0f, 2.0f}) has shape [2].
  template <class T>
  explicit Tensor(std::initializer_list<T> values)
      : Tensor(Shape{static_cast<std::int64_t>(values.size())}, std::span<const T>(values.begin(), values.size())) {}

  // One element of rank 0: Tensor::scalar(1.0f) is f32[].
  template <class T>
  static Tensor scalar(T value) {
    return Tensor(Shape{}, std::span<const T>(&value, 1));
  }
  // Every element is `value`, rounded to the dtype. Throws Error if the dtype cannot hold it: a fraction in an integer
  // dtype, or a number outside the range of the dtype.
  static Tensor full(DType dtype, const Shape& shape, double value, Where where = Where::current());
  // f32 samples to begin with; the same seed gives the same bits on every machine. The fans of a weight are the numbers
  // of products in one of its outputs (fan_in), and in the gradient of one of its inputs (fan_out): [in, out] has the
  // fans in and out, [out, in, kernel...] has in * kernel... and out * kernel... . See OutputAxis for other layouts.
  //
  // U(-b, b) with b = sqrt(6 / fan_in): behind relu(), values keep their variance from layer to layer (He et al. 2015,
  // "Delving deep into rectifiers").
  static Tensor kaiming(const Shape& shape, std::uint64_t seed, OutputAxis outputs = OutputAxis::by_rank,
                        Where where = Where::current());
  // U(-b, b) with b = sqrt(6 / (fan_in + fan_out)): for layers behind tanh(), or without an activation (Glorot and
  // Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks").
  static Tensor xavier(const Shape& shape, std::uint64_t seed, OutputAxis outputs = OutputAxis::by_rank,
                       Where where = Where::current());
  // U(low, high). Throws Error if a bound is not finite, or low is above high.
  static Tensor uniform(const Shape& shape, std::uint64_t seed, float low = 0.0f, float high = 1.0f,
                        Where where = Where::current());
  // N(mean, deviation^2), by Marsaglia's polar method. Throws Error if one is not finite, or the deviation is negative.
  static Tensor normal(const Shape& shape, std::uint64_t seed, float mean = 0.0f, float deviation = 1.0f,
                       Where where = Where::current());

  // False if there is no data. A Tensor of no elements, such as one of shape [0], is valid.
  bool valid() const { return bytes_.size() == type_.bytes(); }
  // Throws Error, in the name of `op` and at its line, unless valid(). For what takes a Tensor.
  void require_valid(const std::string& op, const Where& where) const;

  // The dtype and the shape, valid while *this lives.
  const TensorType& type(Where where = Where::current()) const { return checked(where).type_; }
  // Type of the elements.
  DType dtype(Where where = Where::current()) const { return checked(where).type_.dtype; }
  // Sizes of the dimensions, valid while *this lives.
  const Shape& shape(Where where = Where::current()) const { return checked(where).type_.shape; }
  // Bytes that the elements take.
  std::size_t bytes(Where where = Where::current()) const { return checked(where).bytes_.size(); }
  // The elements, row-major. Borrowed: valid while *this lives and is not assigned to.
  std::byte* data(Where where = Where::current()) { return checked(where), bytes_.data(); }
  // The same, to read.
  const std::byte* data(Where where = Where::current()) const { return checked(where).bytes_.data(); }

  // The elements. Throws Error if T is not the dtype. Borrowed: valid while *this lives.
  template <class T>
  std::span<T> as(Where where = Where::current()) {
    check_dtype(dtype_of<T>(), where);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // The same, to read.
  template <class T>
  std::span<const T> as(Where where = Where::current()) const {
    check_dtype(dtype_of<T>(), where);
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Element i (row-major) as a double, whatever the dtype: i64 of more than 53 bits are rounded. Throws Error unless
  // 0 <= i < shape().size().
  double at(std::int64_t i, Where where = Where::current()) const;
  // The only element, as a double. Throws Error if there are none or several.
  double item(Where where = Where::current()) const;
  // The same elements in another dtype, converted as the op cast() does.
  Tensor to(DType dtype, Where where = Where::current()) const;
  // A copy of [begin, end) of the first dimension, such as the samples of a batch. Throws Error for a scalar, and
  // unless 0 <= begin <= end <= shape()[0].
  Tensor slice(std::int64_t begin, std::int64_t end, Where where = Where::current()) const;
  // Copies of the parts, one behind the other along the first dimension. Throws Error if there are none, and unless
  // they have one dtype and, but for the first dimension, one shape.
  static Tensor concat(std::span<const Tensor> parts, Where where = Where::current());
  // The same for parts in braces.
  static Tensor concat(std::initializer_list<Tensor> parts, Where where = Where::current()) {
    return concat(std::span(parts.begin(), parts.size()), where);
  }

 private:
  const Tensor& checked(const Where& where) const {
    if (!valid()) require_valid("Tensor", where);
    return *this;
  }
  void check_count(std::size_t count, const Where& where) const;
  void check_dtype(DType dtype, const Where& where) const;

  TensorType type_;
  std::vector<std::byte> bytes_;
};

// "f32[2] [1, 2]", at most 16 elements and then "...". Integers have all of their digits, other numbers as many as the
// stream says; the same in every locale. "(no tensor)" unless valid().
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace graphsink
