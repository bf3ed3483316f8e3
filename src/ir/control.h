// Nodes with bodies.
#pragma once

#include <functional>
#include <vector>

#include "graphsink/control.h"
#include "ir/graph_data.h"

namespace graphsink {

// Adds a node of `op`, if_ or switch_, in the region under construction, and returns its results. `decision` is the
// bool of an if_, whose bodies are those of true and of false, or the i32 of a switch_, which must be below the number
// of bodies in every step. Throws Error where the bodies do not return the same types.
Values branch_values(GraphData& graph, const OpDef& op, ValueRef decision,
                     const std::vector<std::function<Values()>>& bodies, const Where& where);

}  // namespace graphsink
