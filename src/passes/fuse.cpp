#include <algorithm>

#include "passes/passes.h"

namespace graphsink {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Fusing {
 public:
  Fusing(const GraphData& graph, const Verified& verified, const Placement& placement)
      : graph_(graph), verified_(verified), placement_(placement), uses_(graph.nodes.size()) {
    fusions_.absorbed.assign(graph.nodes.size(), false);
    count_uses();
  }

  Fusions run() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id)
      if (verified_.live[id] && !fusions_.absorbed[id] && graph_.nodes[id].op->fuse) fuse_behind(static_cast<int>(id));
    return std::move(fusions_);
  }

 private:
  // Who uses the first output of a node.
  struct Uses {
    int count = 0;
    int first_node = -1;        // of its own region
    bool is_in_a_body = false;  // of a node around which the order is not that of one region
  };

  const TensorType& type(ValueRef v) const { return verified_.types[at(v.node)][at(v.output)]; }

  void count_uses() {
    for (std::size_t id = 0; id < graph_.nodes.size(); ++id) {
      if (!verified_.live[id]) continue;
      for (ValueRef v : graph_.nodes[id].inputs) {
        Uses& uses = uses_[at(v.node)];
        ++uses.count;
        if (graph_.nodes[at(v.node)].region != graph_.nodes[id].region) uses.is_in_a_body = true;
        if (uses.first_node < 0) uses.first_node = static_cast<int>(id);
      }
    }
    auto add_use = [&](ValueRef v) {
      if (v.node >= 0) ++uses_[at(v.node)].count;
    };
    for (const Region& region : graph_.regions)
      for (ValueRef v : region.results) add_use(v);
    for (const NamedValue& named : graph_.records) add_use(named.value);
    for (const NamedValue& named : graph_.outputs) add_use(named.value);
    for (const VariableUse& use : graph_.variables) add_use(use.assigned);
  }

  // Node `id` takes over the node behind it, the fused one the next, and so on.
  void fuse_behind(int id) {
    FusedNode fused{graph_.nodes[at(id)], {{id, 0}}};
    int last = id;
    while (fused.node.op->fuse && fused.values.size() == 1 && take_next(fused, last)) {
    }
    if (last != id) fusions_.nodes.emplace(last, std::move(fused));
  }

  // The nodes that use a value come after the first of them, in whose place the fused node runs.
  bool take_next(FusedNode& fused, int& last) {
    const Uses& uses = uses_[at(last)];
    if (uses.is_in_a_body || uses.first_node < 0 || fused.node.outputs.size() != 1) return false;
    const Node& next = graph_.nodes[at(uses.first_node)];
    if (!next.bodies.empty() || !placement_.is_same(uses.first_node, last)) return false;
    ValueRef value = fused.values[0];
    if (std::count(next.inputs.begin(), next.inputs.end(), value) != 1) return false;
    auto operand = std::find(next.inputs.begin(), next.inputs.end(), value) - next.inputs.begin();

    std::vector<TensorType> inputs, next_inputs;
    for (ValueRef v : fused.node.inputs) inputs.push_back(type(v));
    for (ValueRef v : next.inputs) next_inputs.push_back(type(v));
    bool is_kept = uses.count > 1;
    Fused result = fused.node.op->fuse(
        {fused.node.attrs, inputs, type(value), is_kept, *next.op, next.attrs, next_inputs, static_cast<int>(operand)});
    if (!result.op) return false;
    fused.node.op = result.op;
    fused.node.attrs = std::move(result.attrs);
    for (ValueRef v : next.inputs)
      if (v != value) fused.node.inputs.push_back(v);
    fused.node.outputs = next.outputs;
    fused.values.clear();
    for (std::size_t j = 0; j < next.outputs.size(); ++j)
      fused.values.push_back({uses.first_node, static_cast<int>(j)});
    if (is_kept) fused.values.push_back(value);
    fusions_.absorbed[at(last)] = true;
    last = uses.first_node;
    return true;
  }

  const GraphData& graph_;
  const Verified& verified_;
  const Placement& placement_;
  std::vector<Uses> uses_;
  Fusions fusions_;
};

}  // namespace

Fusions fuse(const GraphData& graph, const Verified& verified, const Placement& placement) {
  return Fusing(graph, verified, placement).run();
}

}  // namespace graphsink
