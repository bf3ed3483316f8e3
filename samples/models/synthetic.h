// chain and wide: graphs that measure the machinery. Both carry a Variable from step to step.
#pragma once

#include "samples/models/model.h"

namespace graphsink::models {

// Nodes that the plan adds to every step: its beginning, the commit of assigned values, its end.
inline constexpr int kStepNodes = 3;

// `nodes` dependent operations on one element: kStepNodes of the step's own, all others alternately x * a and x + b.
// Throws Error unless there is at least one of the latter.
Model chain(int nodes);

// `branches` independent branches of `depth` operations on `elements` floats each, joined by additions.
Model wide(int branches, int depth, std::int64_t elements);

}  // namespace graphsink::models
