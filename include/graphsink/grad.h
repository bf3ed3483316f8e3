// grad(): reverse-mode gradients as graph.
#pragma once

#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

// d loss / d wrt[i], each with the type of wrt[i]; zeros where the loss does not depend on it. `loss` is a float
// scalar. A Variable stands for its value at the start of the step. Throws Error naming the op and the user's line
// where a gradient would have to pass through an op that has none, or through a body of if_ or while_; a predicate
// hands no gradient on. In the body of a loop the gradient is that of one iteration: it is refused where the loss
// depends on wrt through the state of the loop as well.
std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt);

}  // namespace graphsink
