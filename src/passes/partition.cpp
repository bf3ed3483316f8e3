#include "passes/passes.h"

namespace graphsink {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The first node in these bodies that runs on the host, or nullptr.
const PlanNode* host_node(const Plan& plan, const Step& step) {
  if (step.kind == StepKind::call && plan.nodes[at(step.node)].on_host) return &plan.nodes[at(step.node)];
  for (int sequence : step.sequences)
    for (const Step& inner : plan.sequences[at(sequence)].steps)
      if (const PlanNode* node = host_node(plan, inner)) return node;
  return nullptr;
}

bool can_sink(Plan& plan, const Step& step) {
  if (step.sequences.empty()) return true;
  const char* what = step.kind == StepKind::loop ? "a loop" : "a branch";
  if (!plan.target.conditional_nodes) {
    plan.reasons.push_back({std::string(what) + " is driven by the host", Where(),
                            "this driver has no conditional nodes", "a wait for the predicate, and one more launch",
                            "use a driver of CUDA 12.8 or newer"});
    return false;
  }
  const PlanNode* node = plan.target.host_nodes_in_bodies ? nullptr : host_node(plan, step);
  if (node) {
    plan.reasons.push_back({std::string(what) + " is driven by the host", node->where,
                            std::string(node->op->name) +
                                " in its body runs on the host, and a conditional node may not "
                                "hold host nodes",
                            "a wait for each predicate, and one more launch", "give its OpDef a .cuda"});
  }
  return node == nullptr;
}

}  // namespace

void partition(Plan& plan) {
  const auto& steps = plan.sequences[0].steps;
  plan.islands.clear();
  bool has_host_node = false;
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    bool sinks = can_sink(plan, steps[at(i)]);
    has_host_node = has_host_node || host_node(plan, steps[at(i)]);
    if (plan.islands.empty() || plan.islands.back().sunk != sinks) plan.islands.push_back({i, i, sinks});
    plan.islands.back().last = i + 1;
  }
  plan.loop_over_steps = plan.islands.size() == 1 && plan.islands[0].sunk && plan.target.conditional_nodes &&
                         (plan.target.host_nodes_in_bodies || !has_host_node);
  if (plan.islands.size() == 1 && plan.islands[0].sunk && !plan.loop_over_steps) {
    plan.reasons.push_back({"several steps take several launches", Where(),
                            "the step holds host nodes, and a loop in a launch may not", "one launch for each step",
                            "give every op a CUDA body"});
  }
}

}  // namespace graphsink
