// When an iteration of a loop stores what the loop keeps of it (IrStacked).
#pragma once

#include <vector>

#include "passes/planner_ir.h"

namespace graphsink {

// One node that stores values at the same place of several stacks.
struct StackStore {
  ValueRef place;
  std::vector<ValueRef> values;
  std::vector<ValueRef> stacks;  // outputs of the loop
  int position = -1;             // index, in the body, of the node behind which it runs; -1: it runs first
};

// The stores of a loop, two for each place at most: at the beginning of an iteration one of the state, and of what
// comes from outside, so that the next state may be computed where the state is; and one of everything else, as soon as
// all of that is computed.
std::vector<StackStore> stores_of(const PlannerIr& ir, int loop);

}  // namespace graphsink
