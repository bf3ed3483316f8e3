// Ops that the body of a conditional node cannot hold.
#pragma once

#include <string>

#include "ir/plan.h"

namespace graphsink {

// An op that the body of a conditional node cannot hold, and the rule that says so. If `op` is null, there is none.
struct Obstacle {
  const OpDef* op = nullptr;
  Where where;  // source location of the node
  bool is_on_host = false;
  std::string why;
  std::string remedy;
};
// Returns the obstacle that one node is. `on_host` tells whether its CPU body runs although the target is a device with
// separate memory.
Obstacle obstacle_of(const Target& target, const OpDef& op, const Where& where, bool on_host);

// Returns the first obstacle that the task is, or that stands in its bodies.
Obstacle obstacle_in_body(const Plan& plan, const Task& task);

// Returns the traits that limit which launches can hold the node. A CPU body becomes a host node in a launch, so the
// traits of its op do not matter.
inline OpTraits launch_traits(const Target& target, const OpDef& op, bool on_host) {
  return on_host || target.runs_cpu_bodies() ? OpTraits() : op.traits;
}

// "cpu_plus_one in its body runs on the host, and a conditional node may not hold host nodes (train.cpp:12)".
std::string rule_text(const Obstacle& obstacle);

}  // namespace graphsink
