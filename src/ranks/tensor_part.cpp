#include "ranks/tensor_part.h"

#include <cstdint>
#include <cstring>

namespace graphsink {
namespace {

// The bytes of a part lie in the whole as `rows` pieces of `bytes`, of which each begins `step` behind the one before.
struct Pieces {
  std::size_t rows = 1, bytes = 0, first = 0, step = 0;

  Pieces(const TensorType& of_part, const TensorPart& part) : bytes(size_of(of_part.dtype)) {
    for (int axis = 0; axis < of_part.shape.rank(); ++axis)
      (axis < part.axis ? rows : bytes) *= static_cast<std::size_t>(of_part.shape[axis]);
    first = static_cast<std::size_t>(part.number) * bytes;
    step = static_cast<std::size_t>(part.count) * bytes;
  }
};

}  // namespace

std::string part_name(const std::string& whole, std::size_t number) { return whole + kPart + std::to_string(number); }

Tensor cut_part(const Tensor& whole, const TensorPart& part) {
  TensorType type = whole.type();
  type.shape[part.axis] /= part.count;
  Tensor result(type);
  const Pieces pieces(type, part);
  for (std::size_t row = 0; row < pieces.rows; ++row)
    std::memcpy(result.data() + row * pieces.bytes, whole.data() + pieces.first + row * pieces.step, pieces.bytes);
  return result;
}

void paste_part(const Tensor& tensor, const TensorPart& part, Tensor& whole) {
  const Pieces pieces(tensor.type(), part);
  for (std::size_t row = 0; row < pieces.rows; ++row)
    std::memcpy(whole.data() + pieces.first + row * pieces.step, tensor.data() + row * pieces.bytes, pieces.bytes);
}

}  // namespace graphsink
