// Plans that the tests of explain() look at, and how they read them as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/at.h"
#include "golden.h"
#include "passes/passes.h"

extern template class nlohmann::basic_json<>;  // compiled once, in explain_plans.cpp

namespace graphsink::testing {

using nlohmann::json;

Plan plan_for(const Graph& graph, const Target& target);
Plan host_op_plan();
Plan host_loop_plan();
// A table that is never assigned and an input, both read on the host, one of them in a branch.
Plan invariant_copies_plan();
// A branch between two values in a loop; the input is read in both.
Plan branch_in_loop_plan();
// Results whose sizes depend on data, with a bound and without one.
Plan found_size_plan();
// Two layers that one function makes in scopes of their own, and an op on the host in the scope around them.
Plan scopes_plan();
// A choice among three bodies, of which one does nothing.
Plan choice_plan();
// A scan around an op on the host and around a loop that is a WHILE node, unrolled.
Plan unrolled_plan();
// Four branches of eight ops each.
Plan wide_plan();
// Two devices that reach each other's memory, and the host.
Plan further_device_plan();
// All of them, and a small model on both devices.
std::vector<Plan> plans();

json explain_json_of(const Plan& plan);
json schedule_json_of(const Plan& plan);  // its tasks
// All tasks, bodies included, in the order of their ids.
std::vector<json> flat(const json& tasks);
std::vector<json> tasks_of(const Plan& plan);
// The id of the first task with this op; -1 without one.
int id_of(const Plan& plan, std::string_view op);

}  // namespace graphsink::testing
