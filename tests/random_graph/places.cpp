#include "places.h"

#include "base/at.h"
#include "ir/fused.h"

namespace graphsink::testing {

Places::Places(const GraphData& graph, const Plan& plan)
    : graph_(graph), on_host_(graph.nodes.size()), is_known_(graph.nodes.size()) {
  for (const PlanNode& node : plan.nodes) {
    runs(node.graph_node, node.on_host);
    if (const auto* group = node.attrs.get_if<FusedAttrs>())
      for (const FusedOp& member : group->ops) runs(member.graph_node, node.on_host);
  }
  choose_for_same_nodes();
  // Another node that is not in the plan became part of the first one that uses it.
  for (std::size_t user = graph.nodes.size(); user-- > 0;)
    for (ValueRef v : graph.nodes[user].inputs)
      if (!is_known_[at(v.node)]) on_host_[at(v.node)] = on_host_[user];
}

void Places::runs(int id, bool on_host) {
  if (id < 0) return;
  on_host_[at(id)] = on_host;
  is_known_[at(id)] = true;
}

// Nodes that compute the same as an earlier one are not in the plan: that one is, unless it only views its operand.
// Nor are copies, which are the same as their operands.
void Places::choose_for_same_nodes() {
  std::vector<ValueRef> first(graph_.nodes.size());  // what output 0 is the same as
  auto operand = [&](ValueRef v) { return ValueRef{first[at(v.node)].node, first[at(v.node)].output + v.output}; };
  for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
    const Node& node = graph_.nodes[id];
    auto is_same = [&](std::size_t other_id) {
      const Node& other = graph_.nodes[other_id];
      bool is_equal = other.op == node.op && other.region == node.region && other.placement == node.placement &&
                      other.attrs == node.attrs && other.inputs.size() == node.inputs.size();
      for (std::size_t i = 0; is_equal && i < node.inputs.size(); ++i) {
        bool is_only_type = access_of(*node.op, i, node.inputs.size()) == Access::shape_only;
        is_equal = operand(other.inputs[i]) == operand(node.inputs[i]) ||
                   (is_only_type && graph_.type(other.inputs[i]) == graph_.type(node.inputs[i]));
      }
      return is_equal;
    };
    first[id] = {static_cast<int>(id), 0};
    if (is_known_[id]) continue;
    if (node.op->traits.copies_same_type && graph_.type(node.inputs[0]) == node.outputs[0]) {
      first[id] = operand(node.inputs[0]);
      continue;
    }
    for (std::size_t other = id; other-- > 0;) {
      const bool is_better = first[id].node == static_cast<int>(id) || is_known_[other];
      if (is_better && is_same(other)) first[id] = {static_cast<int>(other), 0};
    }
    on_host_[id] = on_host_[at(first[id].node)];
    is_known_[id] = is_known_[at(first[id].node)];
  }
}

}  // namespace graphsink::testing
