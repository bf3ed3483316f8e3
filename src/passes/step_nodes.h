// Nodes that no op of the graph stands for: what the plan adds to a step while the graph is lowered.
#pragma once

#include "ir/system_ops.h"
#include "passes/locations.h"
#include "passes/planner_ir.h"

namespace graphsink {

PlanNode system_node(const OpDef* op, Attrs attrs, const Where& where);
void add_operand(PlanNode& node, int buffer, const TensorType& type);

// Stores what the step assigns to the Variables that live on a device. Without inputs if it assigns none there.
PlanNode store_node(const PlannerIr& ir, const SystemOps& system, int device, Locations& values);

// Tells in the step block whether a condition of stop_when() holds.
PlanNode mark_stop_node(const PlannerIr& ir, const SystemOps& system, Locations& values);

// The end of the step. Adds the records to the plan.
PlanNode end_node(const PlannerIr& ir, const SystemOps& system, Locations& values, Plan& plan);

}  // namespace graphsink
