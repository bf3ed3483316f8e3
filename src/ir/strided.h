// Where the elements of a tensor lie within the memory of another one.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "graphsink/axis_map.h"
#include "graphsink/error.h"
#include "graphsink/type.h"

namespace graphsink {

struct OpDef;

// Element (i, j, ...) of a tensor of this shape is element first + i * strides[0] + j * strides[1] + ... of another
// tensor, in whose memory it lies.
struct Strided {
  Shape shape;
  std::int64_t first = 0;
  std::array<std::int64_t, Shape::kMaxRank> strides{};  // strides of the axes of `shape`, in elements
  int tensor = 0;                                       // which other tensor: see StridedArgs
  static auto fields(auto& s) {
    return std::tie("shape", s.shape, "first", s.first, "strides", s.strides, "tensor", s.tensor);
  }

  // All elements of a tensor, in its own memory.
  static Strided whole(const Shape& shape, int tensor = 0);
  // Where a part of these elements lies, which is of that shape.
  Strided part(const Shape& part_shape, const AxisMap& map) const;
};

// Calls OpDef::moves. Throws Error if the result is not as promised there.
AxisMap moves_of(const OpDef& op, const MoveArgs& args, int part, const Where& where);

}  // namespace graphsink
