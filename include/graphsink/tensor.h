// Tensor: dense row-major data on the host, a plain value (copying copies the data).
#pragma once

#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <vector>

#include "graphsink/type.h"

namespace graphsink {

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled.
  explicit Tensor(const TensorType& type);
  Tensor(DType dtype, const Shape& shape) : Tensor(TensorType{dtype, shape}) {}
  // Copies `values` (row-major). Throws Error if their number is not shape.size().
  template <class T>
  Tensor(const Shape& shape, std::span<const T> values) : Tensor(dtype_of<T>(), shape) {
    check_count(values.size());
    if (!values.empty()) std::memcpy(data(), values.data(), values.size_bytes());
  }
  template <class T>
  Tensor(const Shape& shape, const std::vector<T>& values) : Tensor(shape, std::span<const T>(values)) {}
  // A vector: Tensor({1.0f, 2.0f}) has shape [2].
  template <class T>
  explicit Tensor(std::initializer_list<T> values)
      : Tensor(Shape{static_cast<std::int64_t>(values.size())}, std::span<const T>(values.begin(), values.size())) {}

  template <class T>
  static Tensor scalar(T value) {
    return Tensor(Shape{}, std::span<const T>(&value, 1));
  }
  // Every element is `value`, rounded to the dtype. Throws Error if the dtype cannot hold it: a fraction in an integer
  // dtype, or a number outside the range of the dtype.
  static Tensor full(DType dtype, const Shape& shape, double value);
  // f32 samples from U(-1/sqrt(fan_in), 1/sqrt(fan_in)) * sqrt(6), fan_in = product of all dimensions but the last
  // (He et al. 2015, "Delving deep into rectifiers"). The same seed gives the same bits on every machine.
  static Tensor kaiming(const Shape& shape, std::uint64_t seed);
  // f32 samples from U(low, high); the same seed gives the same bits on every machine.
  static Tensor uniform(const Shape& shape, std::uint64_t seed, float low = 0.0f, float high = 1.0f);

  const TensorType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  std::size_t bytes() const { return bytes_.size(); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }

  // The elements. Throws Error if T is not the dtype. Borrowed: valid while *this lives.
  template <class T>
  std::span<T> as() {
    check_dtype(dtype_of<T>());
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    check_dtype(dtype_of<T>());
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  // Element i (row-major) as a double, whatever the dtype: i64 of more than 53 bits are rounded.
  double at(std::int64_t i) const;
  // The same elements in another dtype, converted as the op cast() does.
  Tensor to(DType dtype) const;

 private:
  void check_count(std::size_t count) const;
  void check_dtype(DType dtype) const;

  TensorType type_;
  std::vector<std::byte> bytes_;
};

// "f32[2] [1, 2]", at most 16 elements and then "...".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace graphsink
