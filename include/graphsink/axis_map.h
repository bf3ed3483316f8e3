// How the elements of a tensor lie within another one. Ops that only move elements say so of themselves: OpDef::moves.
#pragma once

#include <cstdint>
#include <span>

#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

class Attrs;

// How a part of a tensor lies in it: element q of axis d of the part is element begin + q * step of an axis of the
// tensor. The part has as many axes as the tensor, each along another one.
struct AxisMap {
  // Where the elements of one axis of the part lie.
  struct Axis {
    int of_whole = 0;        // the axis of the tensor
    std::int64_t begin = 0;  // index of the first of them in this axis
    std::int64_t step = 1;   // distance of each from the one before; negative if the part has them in reverse order
  };
  Axis axes[Shape::kMaxRank];  // by axis of the part

  // Axis d of the part is axis d of the tensor, from its first element on.
  AxisMap() {
    for (int d = 0; d < Shape::kMaxRank; ++d) axes[d].of_whole = d;
  }
};

// The argument of OpDef::moves: the node of the op that moves elements.
struct MoveArgs {
  const Attrs& attrs;                 // attributes of the node
  std::span<const TensorType> types;  // inputs, then outputs
  int inputs = 0;                     // number of inputs

  const TensorType& in(int i) const { return types[static_cast<std::size_t>(i)]; }            // type of input i
  const TensorType& out(int i) const { return types[static_cast<std::size_t>(inputs + i)]; }  // type of output i
};

}  // namespace graphsink
