// Functions that OpDefs of several files share.
#pragma once

#include <vector>

#include "graphsink/op.h"

namespace graphsink {

// OpDef::access of ops that look at shapes alone.
inline Access only_shape(int, int) { return Access::shape_only; }

// OpDef::grad of ops of one operand through which no gradient flows.
inline std::vector<Value> no_grad(const GradArgs&) { return {Value()}; }

}  // namespace graphsink
