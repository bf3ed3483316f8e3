// The lines of a tensor along an axis: all elements that differ only in this axis.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

// Element k of a line is element first(line) + k * inner of the tensor.
struct Lines {
  std::int64_t outer = 1, length = 1, inner = 1;
  HD std::int64_t count() const { return outer * inner; }
  HD std::int64_t first(std::int64_t line) const {
    std::int64_t block = quotient(line, inner);
    return block * length * inner + (line - block * inner);
  }
};
// Fewer lines than this leave multiprocessors of a GPU idle if each line has one block.
constexpr std::int64_t kFewLines = 128;

inline Lines lines_of(const Shape& shape, int axis) {
  axis = from_front(axis, shape.rank());
  Lines lines;
  for (int d = 0; d < shape.rank(); ++d) (d < axis ? lines.outer : d > axis ? lines.inner : lines.length) *= shape[d];
  return lines;
}

}  // namespace graphsink
