#include "passes/obstacle.h"

#include "base/at.h"

namespace graphsink {

Obstacle obstacle_of(const Target& target, const OpDef& op, const Where& where, bool on_host) {
  if (on_host && !target.host_nodes_in_bodies)
    return {&op, where, true, "runs on the host, and a conditional node may not hold host nodes",
            "give its OpDef a CUDA body"};
  const OpTraits traits = launch_traits(target, op, on_host);
  if (traits.capturable && traits.allowed_in_bodies) return {};
  if (traits.agree != nullptr && traits.capturable)
    return {&op, where, on_host, "exchanges values on the device, by a library that conditional nodes may not hold",
            "move it out of the loop or branch"};
  return {&op, where, on_host,
          traits.capturable ? "is declared as not allowed in the body of a conditional node"
                            : "is declared as not capturable",
          "give it a CUDA body that only launches kernels, or move it out of the loop or branch"};
}

Obstacle obstacle_in_body(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) {
    const PlanNode& node = plan.nodes[at(task.node)];
    return obstacle_of(plan.target(), *node.op, node.where, node.on_host);
  }
  for (int sequence : task.bodies)
    for (const Task& inner : plan.tasks_of(sequence))
      if (Obstacle obstacle = obstacle_in_body(plan, inner); obstacle.op) return obstacle;
  return {};
}

std::string rule_text(const Obstacle& obstacle) {
  const std::string place = to_string(obstacle.where);
  return std::string(obstacle.op->name) + " in its body " + obstacle.why + (place.empty() ? "" : " (" + place + ")");
}

}  // namespace graphsink
