// Nodes with bodies.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graphsink/control.h"
#include "ir/graph_data.h"

namespace graphsink {

// Adds a body of `region.op`, within the region under construction, and returns its number. Throws Error, in the name
// of `op`, if it would lie in more bodies than kMaxNestedBodies allows.
int add_body(GraphData& graph, Region region, std::string_view op);

// An operand of a control node. A number is an f32.
Value as_value(GraphData& graph, const Arg& arg, const char* op);
// The graph of the operands. Throws Error, in the name of `op`, if none is a Value of a graph.
std::shared_ptr<GraphData> control_graph(std::span<const Arg> args, const char* op, const Where& where);

// Returns the Value that `op` goes by. Throws Error, in the name of `op`, unless it is one bool that is known here.
ValueRef check_predicate(const GraphData& graph, const Value& predicate, const char* op, const Where& where);
// Throws Error, in the name of `op`, unless a body has returned as many Values as its state has.
void check_state_size(const char* op, std::size_t returned, std::size_t expected, const Where& where);
// Returns what a body has returned as a part of the next state. Throws Error, in the name of `op`, if it has another
// type than the state began with.
ValueRef check_state(const char* op, const GraphData& graph, std::size_t number, const Value& returned,
                     const TensorType& expected, const Where& where);

// Builds the loop of a while_() without a limit; errors name `op`.
Values loop_values(const char* op, std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                   const std::function<Values(const Values&)>& body);

// Adds a node of `op`, if_ or switch_, in the region under construction, and returns its results. `decision` is the
// bool of an if_, whose bodies are those of true and of false, or the i32 of a switch_, which must be below the number
// of bodies in every step. Throws Error where the bodies do not return the same types.
Values branch_values(GraphData& graph, const OpDef& op, ValueRef decision,
                     const std::vector<std::function<Values()>>& bodies, const Where& where);

// Returns the output of the loop, a node of while_ with a limit, that stacks a value of its body; adds it if there is
// none yet. Throws Error where the stack is too large for a tensor.
ValueRef stacked_output(GraphData& graph, int loop, const Stacked& stacked);

}  // namespace graphsink
