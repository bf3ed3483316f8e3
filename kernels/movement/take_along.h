// The gradient of ops that choose elements of lines by their places.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

struct TakeAlongAttrs {
  int axis;
  static auto fields(auto& s) { return std::tie("axis", s.axis); }
};

// Gradients of the elements that were chosen, their places i32, and the operand they were chosen from (shape only) ->
// the gradient of the operand: zero where nothing was chosen. The places of a line differ, and are in it.
extern const OpDef place_along_op;

}  // namespace graphsink
