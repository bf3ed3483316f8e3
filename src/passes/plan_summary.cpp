#include <algorithm>

#include "passes/explain.h"
#include "passes/plan_queries.h"

namespace graphsink {

PlanSummary summary(const Plan& plan, const PlanFacts& facts) {
  const TaskCounts counts = count_tasks(plan);
  PlanSummary result;
  result.sinks_whole = sinks_whole(plan) && facts.op_by_op.empty();
  result.loop_over_steps = plan.loop_over_steps && !facts.is_step_by_step;
  result.unrolled_steps = unrolled_steps(plan, facts);
  result.has_collectives = std::any_of(plan.nodes.begin(), plan.nodes.end(),
                                       [](const PlanNode& node) { return node.op->traits.agree != nullptr; });
  result.launches_per_step = launches_per_step(plan.islands);
  result.islands = plan.islands.size();
  result.nodes = counts.nodes;
  result.host_nodes = counts.host_nodes;
  result.streams = plan.streams;
  result.arena_bytes = plan.devices[0].arena_bytes;
  result.live_bytes = live_bytes(plan);
  result.reasons = plan.reasons;
  result.reasons.insert(result.reasons.end(), facts.reasons.begin(), facts.reasons.end());
  return result;
}

}  // namespace graphsink
