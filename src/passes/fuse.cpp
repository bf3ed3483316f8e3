#include <algorithm>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Fusing {
 public:
  Fusing(PlannerIr& ir, const FusionRules& rules) : ir_(ir), rules_(rules), uses_(ir) {}

  void run() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live && may_fuse(ir_.nodes[id])) fuse_with_next(static_cast<int>(id));
    replace_uses(ir_, replacements_);
  }

 private:
  bool may_fuse(const IrNode& node) const { return !rules_.of(*node.op).fuse.empty() && node.outputs.size() == 1; }

  // Tries to fuse the node with the one after it. The fused node runs in the place of that one, because other nodes
  // that use its value come later, and may be fused with the next node in turn.
  void fuse_with_next(int id) {
    const ValueRef value{id, 0};
    IrNode& node = ir_.node(value);
    const std::span<const Use> uses = uses_.of(value);
    // A node of a body needs the value before its branch or loop begins; the fused node may run later.
    const auto is_by_body = [&](Use use) { return !use.is_of_body() && ir_.nodes[at(use.node)].region != node.region; };
    if (uses.empty() || std::any_of(uses.begin(), uses.end(), is_by_body)) return;
    const int follower = uses.front().node;
    IrNode& next = ir_.nodes[at(follower)];
    if (!next.is_live) return;  // it was fused with another of its operands
    if (!next.bodies.empty() || !next.is_beside(node)) return;
    if (std::count(next.inputs.begin(), next.inputs.end(), value) != 1) return;
    const auto operand = std::find(next.inputs.begin(), next.inputs.end(), value) - next.inputs.begin();

    const std::vector<TensorType> inputs = ir_.types(node.inputs), next_inputs = ir_.types(next.inputs);
    const TensorType& type = node.outputs[0];
    const bool is_kept = uses.size() > 1 || uses_.is_result(value);
    const FuseArgs args{node.attrs, inputs,     type,        is_kept,
                        *next.op,   next.attrs, next_inputs, static_cast<int>(operand)};
    Fused result;
    for (const auto fuse : rules_.of(*node.op).fuse)
      if (!result.op) result = fuse(args);
    if (!result.op) return;
    IrNode fused = node;
    fused.op = result.op;
    fused.attrs = std::move(result.attrs);
    for (ValueRef v : next.inputs)
      if (v != value) fused.inputs.push_back(v);
    fused.outputs = next.outputs;
    fused.is_inside = next.is_inside && (!is_kept || node.is_inside);
    fused.origin = next.origin;
    if (is_kept) {
      replacements_[value] = {follower, static_cast<int>(fused.outputs.size())};
      fused.outputs.push_back(type);
    }
    node.is_live = false;
    next = std::move(fused);
  }

  PlannerIr& ir_;
  const FusionRules& rules_;
  Uses uses_;
  Replacements replacements_;
};

}  // namespace

void fuse(PlannerIr& ir, const FusionRules& rules) { Fusing(ir, rules).run(); }

}  // namespace graphsink
