// Describes in words what each op on the host costs.
#include <map>
#include <set>
#include <string_view>

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

// Cost of the calls of one node of the graph. There are several calls if a loop was unrolled.
struct HostCost {
  std::size_t calls = 0;
  std::string_view of_call;     // OpTraits::call_cost
  std::set<int> read, written;  // buffers
};

std::string cost_text(const HostCost& cost, const std::map<int, Traffic>& traffic) {
  Traffic sum;
  for (int buffer : cost.read) {
    if (auto found = traffic.find(buffer); found != traffic.end()) {
      sum.in += found->second.in;
      sum.in_if_new += found->second.in_if_new;
    }
  }
  for (int buffer : cost.written)
    if (auto found = traffic.find(buffer); found != traffic.end()) sum.out += found->second.out;
  std::string text = cost.calls == 1 ? "a host node" : std::to_string(cost.calls) + " host nodes";
  text += " in every launch";
  if (sum.in) text += ", " + bytes_text(sum.in) + " to the host";
  if (sum.in_if_new) text += ", " + bytes_text(sum.in_if_new) + " to the host if new";
  if (sum.out) text += ", " + bytes_text(sum.out) + " back";
  if (!cost.of_call.empty()) text += ", " + std::string(cost.of_call);
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
  std::map<int, HostCost> costs;  // by node of the graph
  for (const PlanNode& node : plan.nodes) {
    if (!node.on_host || node.id < 0) continue;
    HostCost& cost = costs[node.id];
    ++cost.calls;
    cost.of_call = node.op->traits.call_cost;
    const auto outputs = node.operands.begin() + node.inputs;
    cost.read.insert(node.operands.begin(), outputs);
    cost.written.insert(outputs, node.operands.end());
  }
  for (Reason& reason : plan.reasons) {
    if (reason.node < 0) continue;
    auto found = costs.find(reason.node);
    reason.cost = found != costs.end() ? cost_text(found->second, traffic)
                                       : "none of its own, it is computed together with the next op";
  }
}

}  // namespace graphsink
