#include <algorithm>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Fusing {
 public:
  explicit Fusing(PlannerIr& ir) : ir_(ir), uses_(ir) {}

  void run() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live && ir_.nodes[id].op->fuse) fuse_behind(static_cast<int>(id));
    replace_uses(ir_, replacements_);
  }

 private:
  // Fuses node `id` with the next node, the result with the node after that, and so on.
  void fuse_behind(int id) {
    IrNode fused = ir_.nodes[at(id)];
    int last = id;
    while (fused.op->fuse && fused.outputs.size() == 1) {
      int next = take_next(fused, last);
      if (next < 0) break;
      ir_.nodes[at(last)].is_live = false;
      last = next;
    }
    if (last != id) ir_.nodes[at(last)] = std::move(fused);
  }

  // Tries to fuse `last` with the node after it. The fused node runs in the place of that node, because other nodes
  // that use its value come later. Returns its number, or -1 if the two cannot be fused.
  int take_next(IrNode& fused, int last) {
    const ValueRef value{last, 0};
    const std::span<const Use> uses = uses_.of(value);
    // A node of a body needs the value before its branch or loop begins; the fused node may run later.
    const auto is_by_body = [&](Use use) {
      return !use.is_of_body() && ir_.nodes[at(use.node)].region != ir_.nodes[at(last)].region;
    };
    if (uses.empty() || std::any_of(uses.begin(), uses.end(), is_by_body)) return -1;
    const int follower = uses.front().node;
    const IrNode& next = ir_.nodes[at(follower)];
    if (!next.is_live) return -1;  // it was fused with another of its operands
    if (!next.bodies.empty() || !next.is_beside(ir_.nodes[at(last)])) return -1;
    if (std::count(next.inputs.begin(), next.inputs.end(), value) != 1) return -1;
    auto operand = std::find(next.inputs.begin(), next.inputs.end(), value) - next.inputs.begin();

    std::vector<TensorType> inputs = ir_.types(fused.inputs), next_inputs = ir_.types(next.inputs);
    TensorType type = fused.outputs[0];
    bool is_kept = uses.size() > 1 || uses_.is_result(value);
    Fused result = fused.op->fuse(
        {fused.attrs, inputs, type, is_kept, *next.op, next.attrs, next_inputs, static_cast<int>(operand)});
    if (!result.op) return -1;
    fused.op = result.op;
    fused.attrs = std::move(result.attrs);
    for (ValueRef v : next.inputs)
      if (v != value) fused.inputs.push_back(v);
    fused.outputs = next.outputs;
    fused.is_inside = next.is_inside && (!is_kept || fused.is_inside);
    fused.origin = next.origin;
    if (is_kept) {
      replacements_[{last, 0}] = {follower, static_cast<int>(fused.outputs.size())};
      fused.outputs.push_back(type);
    }
    return follower;
  }

  PlannerIr& ir_;
  Uses uses_;
  Replacements replacements_;
};

}  // namespace

void fuse(PlannerIr& ir) { Fusing(ir).run(); }

}  // namespace graphsink
