#include <algorithm>

#include "ir/graph_data.h"

namespace graphsink {

int GraphData::add_composition(Composition composition) {
  compositions.push_back(composition);
  return static_cast<int>(compositions.size()) - 1;
}

void GraphData::compose(int composition, int first, std::span<const ValueRef> results) {
  for (std::size_t id = at(first); id < nodes.size(); ++id) {
    if (is_source(*nodes[id].op)) continue;  // a number or a Variable that others may read, too
    nodes[id].composition = composition;
    const bool is_result = std::any_of(results.begin(), results.end(), [&](ValueRef v) { return at(v.node) == id; });
    if (!is_result) nodes[id].is_inside = true;
  }
  // A node that only shows its operand, or may be replaced by it, is not checked itself, so its operand is.
  for (ValueRef v : results) {
    while (v.node >= first) {
      const Node& node = nodes[at(v.node)];
      nodes[at(v.node)].is_inside = false;
      if (!node.op->traits.only_views && !node.op->traits.copies_same_type) break;
      v = node.inputs[0];
    }
  }
}

Composition GraphData::written_as(const Node& node) const {
  return node.composition >= 0 ? compositions[at(node.composition)] : Composition{node.op->name};
}

std::string GraphData::name_of(const Node& node) const {
  const auto [op, gradients] = written_as(node);
  std::string name(op);
  for (int i = 0; i < gradients; ++i) name = "gradient of " + name;
  return name;
}

}  // namespace graphsink
