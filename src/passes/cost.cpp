// Describes in words what each op on the host costs.
#include <map>

#include "base/at.h"
#include "graphsink/memory.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// Bytes copied into a buffer and out of it, per step. `in_if_new` counts invariant copies, which are made only after
// their source was written.
struct Traffic {
  std::size_t in = 0, in_if_new = 0, out = 0;
};

std::string cost_of(const PlanNode& node, const std::map<int, Traffic>& traffic) {
  Traffic sum;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    auto found = traffic.find(node.operands[i]);
    if (found == traffic.end()) continue;
    bool is_input = i < at(node.inputs);
    sum.in += is_input ? found->second.in : 0;
    sum.in_if_new += is_input ? found->second.in_if_new : 0;
    sum.out += is_input ? 0 : found->second.out;
  }
  std::string text = "a host node in every launch";
  if (sum.in) text += ", " + bytes_text(sum.in) + " to the host";
  if (sum.in_if_new) text += ", " + bytes_text(sum.in_if_new) + " to the host if new";
  if (sum.out) text += ", " + bytes_text(sum.out) + " back";
  return text;
}

}  // namespace

void add_costs(Plan& plan) {
  std::map<int, Traffic> traffic;  // by buffer
  for (const Task& task : plan.tasks) {
    if (task.kind != TaskKind::copy) continue;
    std::size_t bytes = plan.buffers[at(task.source)].bytes;
    traffic[task.destination].in += bytes;
    traffic[task.source].out += bytes;
  }
  for (const InvariantCopy& copy : plan.invariant_copies)
    traffic[copy.destination].in_if_new += plan.buffers[at(copy.source)].bytes;
  std::map<int, std::string> costs;  // by node of the graph
  for (const PlanNode& node : plan.nodes)
    if (node.on_host && node.id >= 0) costs[node.id] = cost_of(node, traffic);
  for (Reason& reason : plan.reasons) {
    if (reason.node < 0) continue;
    auto found = costs.find(reason.node);
    reason.cost = found != costs.end() ? found->second : "none of its own, it is computed together with the next op";
  }
}

}  // namespace graphsink
