// Values of a loop's iterations, one after the other along a new first axis: the stack [iterations, ...].
#pragma once

#include "graphsink/op.h"

namespace graphsink {

// Inputs: stacks of as many slices each, and an i32 scalar, the place. Outputs: what each stack holds at that place.
// Each iteration of the loop whose body it is made in takes another place, so that the gradients of what they took are
// a stack, too. Graphs have a node for each stack; the planner makes one of several (passes/join_slices.cpp).
extern const OpDef slice_at_op;

}  // namespace graphsink
