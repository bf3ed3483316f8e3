// Where the elements of a tensor lie within another one. Ops that only move elements say so of themselves, and ops that
// can read and write such parts of tensors do without the copies: see OpDef::strided.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class Attrs;

// Element (i, j, ...) of a tensor of this shape is element first + i * strides[0] + j * strides[1] + ... of another
// tensor, in whose memory it lies.
struct Strided {
  Shape shape;
  std::int64_t first = 0;
  std::array<std::int64_t, Shape::kMaxRank> strides{};  // strides of the axes of `shape`, in elements
  int tensor = 0;                                       // which other tensor: see StridedArgs

  // All elements of a tensor, in its own memory.
  static Strided whole(const Shape& shape, int tensor = 0);
};

// The argument of OpDef::output_within and OpDef::operand_within: the node of the op that moves elements.
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
