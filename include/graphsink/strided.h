// Where the elements of a tensor lie within another one. Ops that only move elements say so of themselves
// (OpDef::moves), and ops that can read and write such parts of tensors do without the copies (OpDef::strided).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>

#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class Attrs;

// How a part of a tensor lies in it: element q of axis d of the part is element begin + q * step of an axis of the
// tensor. The part has as many axes as the tensor, each along another one.
struct AxisMap {
  struct Axis {
    int of_whole = 0;  // the axis of the tensor
    std::int64_t begin = 0, step = 1;
  };
  Axis axes[Shape::kMaxRank];  // by axis of the part

  // Axis d of the part is axis d of the tensor, from its first element on.
  AxisMap() {
    for (int d = 0; d < Shape::kMaxRank; ++d) axes[d].of_whole = d;
  }
};

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

// The argument of OpDef::moves: the node of the op that moves elements.
struct MoveArgs {
  const Attrs& attrs;
  std::span<const TensorType> types;  // inputs, then outputs
  int inputs = 0;

  const TensorType& in(int i) const { return types[static_cast<std::size_t>(i)]; }
  const TensorType& out(int i) const { return types[static_cast<std::size_t>(inputs + i)]; }
};

// The argument of OpDef::strided: a node, and where its operands lie.
struct StridedArgs {
  const Attrs& attrs;
  // Places of the inputs, then of the outputs. `tensor` is a number among the inputs of the op that strided() returns,
  // and for an output among its outputs. Strides are from 0 to 2^31 - 1; that of the last axis is 1, unless the axis
  // has one element.
  std::span<const Strided> operands;
};

}  // namespace graphsink
