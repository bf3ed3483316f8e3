// Joins nodes that take slices of different stacks at the same place: one node takes all of them. An iteration of the
// gradient of a loop takes several, at the place that is its number.
#include <algorithm>

#include "base/at.h"
#include "ir/graph_data.h"
#include "ir/system_ops.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Joining {
 public:
  Joining(PlannerIr& ir, const SystemOps& system) : ir_(ir), system_(system), position_(ir.nodes.size(), -1) {}

  void run() {
    for (const IrRegion& region : ir_.regions) {
      std::vector<int> nodes;
      for (int id : region.nodes) {
        if (!ir_.nodes[at(id)].is_live) continue;
        position_[at(id)] = static_cast<int>(nodes.size());
        nodes.push_back(id);
      }
      for (std::size_t p = 0; p < nodes.size(); ++p)
        if (is_slice(nodes[p])) take_others(nodes, p);
    }
    replace_uses(ir_, replacements_);
  }

 private:
  bool is_slice(int id) const { return ir_.nodes[at(id)].is_live && ir_.nodes[at(id)].op == system_.slice_at; }

  // Makes the node at `position` take the slices of those behind it, too, if they are near.
  void take_others(const std::vector<int>& nodes, std::size_t position) {
    const int id = nodes[position];
    IrNode& node = ir_.nodes[at(id)];
    for (std::size_t p = position + 1; p < std::min(nodes.size(), position + at(kNear)); ++p) {
      if (!is_slice(nodes[p])) continue;
      IrNode& other = ir_.nodes[at(nodes[p])];
      const ValueRef stack = other.inputs[0];
      const bool is_there = is_source(*ir_.node(stack).op) || ir_.node(stack).region != node.region ||
                            position_[at(stack.node)] < position_[at(id)];
      const bool has_same_place = other.inputs.size() == 2 && other.inputs[1] == node.inputs.back() &&
                                  ir_.type(stack).shape[0] == ir_.type(node.inputs[0]).shape[0];
      if (!is_there || !has_same_place || !other.is_beside(node)) continue;
      replacements_[{nodes[p], 0}] = {id, static_cast<int>(node.outputs.size())};
      node.inputs.insert(node.inputs.end() - 1, stack);
      node.outputs.push_back(other.outputs[0]);
      // Values that are not inside were checked when they were written to the stack.
      node.is_inside = node.is_inside || other.is_inside;
      other.is_live = false;
    }
  }

  PlannerIr& ir_;
  const SystemOps& system_;
  std::vector<int> position_;  // by node: in its region
  Replacements replacements_;
};

}  // namespace

void join_slices(PlannerIr& ir, const SystemOps& system) { Joining(ir, system).run(); }

}  // namespace graphsink
