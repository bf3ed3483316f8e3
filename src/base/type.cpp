#include "graphsink/type.h"

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

Shape::Shape(std::span<const std::int64_t> dims) {
  for (std::int64_t dim : dims) push_back(dim);
}

void Shape::push_back(std::int64_t dim) {
  if (rank_ == kMaxRank) {
    throw Error("Shape", Where(), "more than " + std::to_string(kMaxRank) + " dimensions", "reshape to fewer");
  }
  dims_[static_cast<std::size_t>(rank_++)] = dim;
}

std::int64_t Shape::size() const {
  std::int64_t size = 1;
  for (std::int64_t dim : dims()) size *= dim;
  return size;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string to_string(const TensorType& type) { return std::string(to_string(type.dtype)) + to_string(type.shape); }

}  // namespace graphsink
