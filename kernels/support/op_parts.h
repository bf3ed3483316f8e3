// Functions that OpDefs of several files share.
#pragma once

#include <vector>

#include "graphsink/op.h"

namespace graphsink {

// OpDef::access for ops that read only the shapes of their operands.
inline Access only_shape(int, int) { return Access::shape_only; }

// OpDef::grad for ops with one operand through which no gradient flows.
inline std::vector<Value> no_grad(const GradArgs&) { return {Value()}; }

}  // namespace graphsink
