// grad(): builds reverse-mode gradients as nodes of the graph.
#pragma once

#include <vector>

#include "graphsink/graph.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Returns d loss / d wrt[i] for each i, with the type of wrt[i]; it is zero if the loss does not depend on wrt[i].
// `loss` is a float scalar. A Variable stands for its value at the start of the step. Throws Error, naming the op and
// the user's line, if a gradient would have to pass through an op without one, or through a loop without
// a limit on its iterations (WhileOptions::max_iterations).
//
// The loss may depend on gradients: what grad() adds has gradients itself, for all ops of ops.h. Where these have no
// kernel of their own, they are computed by several ops.
//
// The gradient of a branch (if_) is a branch with the same predicate, whose bodies compute the values of the branch
// again: random ops draw the same numbers, and ops with an effect are not repeated. Throws Error if the values depend
// on what such an op returns. No gradient passes through a predicate.
//
// In the body of a loop, the gradient is that of one iteration; Error is thrown if the loss depends on wrt through the
// state of the loop, too.
std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt);

}  // namespace graphsink
