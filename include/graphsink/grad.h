// grad(): reverse-mode gradients as graph.
#pragma once

#include <vector>

#include "graphsink/graph.h"

namespace graphsink {

// d loss / d wrt[i], each with the type of wrt[i]; zeros where the loss does not depend on it. `loss` is a float
// scalar. A Variable stands for its value at the start of the step. Throws Error naming the op and the user's line
// where a gradient would have to pass through an op that has none.
std::vector<Value> grad(const Arg& loss, const std::vector<Arg>& wrt);

}  // namespace graphsink
