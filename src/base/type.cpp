#include "graphsink/type.h"

#include "base/at.h"
#include "graphsink/error.h"

namespace graphsink {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::boolean:
      return "bool";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

Shape::Shape(std::span<const std::int64_t> dims, Where where) {
  for (std::int64_t dim : dims) push_back(dim, where);
}

void Shape::push_back(std::int64_t dim, Where where) {
  if (rank_ == kMaxRank)
    throw Error("Shape", where, "more than " + std::to_string(kMaxRank) + " dimensions", "reshape to fewer");
  if (dim < 0) throw Error("Shape", where, "a dimension is " + std::to_string(dim), "give sizes of at least 0");
  dims_[at(rank_++)] = dim;
}

void Shape::refuse_axis(const Axis& i) const {
  throw Error("shape", i.where, "there is no dimension " + std::to_string(i.number) + " of " + to_string(*this),
              "name one from -rank() to rank() - 1");
}

void Shape::refuse_open(const Axis& i) const {
  std::string axis = std::to_string(i.number);
  throw Error(
      "shape", i.where,
      "dimension " + axis + " of " + to_string(*this) + " is open: its size is known only when the program runs",
      "use dim(x, " + axis + ") for the size as a Value, reshape() with keep(" + axis +
          ") or -1, slice() with to_end, mean(), or a _like op");
}

std::span<const std::int64_t> Shape::dims(Where where) const {
  for (int i = 0; i < rank_; ++i) (void)known({i, where});
  return {dims_.data(), static_cast<std::size_t>(rank_)};
}

std::int64_t Shape::size(Where where) const {
  std::int64_t of_others = 1;  // without dimensions of 0: strides are products of these, too
  bool is_empty = false;
  for (std::int64_t dim : dims(where)) {
    is_empty = is_empty || dim == 0;
    if (dim < 0)
      throw Error("Shape", where, "a dimension of " + to_string(*this) + " is negative", "give sizes of at least 0");
    if (dim > 0 && __builtin_mul_overflow(of_others, dim, &of_others))
      throw Error("Shape", where, to_string(*this) + " has 2^63 elements or more", "use smaller sizes");
  }
  return is_empty ? 0 : of_others;
}

std::size_t TensorType::bytes(Where where) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // no device addresses as much
  std::int64_t elements = shape.size(where), element = static_cast<std::int64_t>(size_of(dtype));
  if (elements > (kMost - 1) / element)
    throw Error("Shape", where, to_string(*this) + " has 2^56 bytes or more", "use smaller sizes");
  return static_cast<std::size_t>(elements * element);
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    std::string size = std::to_string(shape.examples()[i]);
    text += (i ? ", " : "") + (shape.is_open(i) ? "open(" + size + ")" : size);
  }
  return text + "]";
}

std::string to_string(const TensorType& type) { return std::string(to_string(type.dtype)) + to_string(type.shape); }

}  // namespace graphsink
