// The whole plan of a program, for the tests of this library.
#pragma once

#include "graphsink/program.h"
#include "ir/plan.h"

namespace graphsink {

// The plan for the input shapes written last. Valid until the next write(), or run() of a graph with results whose size
// the steps find (select.h).
const Plan& plan_of(const Program& program);

}  // namespace graphsink
