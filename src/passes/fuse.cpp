#include <algorithm>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

class Fusing {
 public:
  explicit Fusing(PlannerIr& ir) : ir_(ir), uses_(ir.nodes.size()) { count_uses(); }

  void run() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live && ir_.nodes[id].op->fuse) fuse_behind(static_cast<int>(id));
    replace_uses(ir_, replacements_);
  }

 private:
  // The uses of the first output of a node.
  struct Uses {
    int count = 0;
    int first_node = -1;        // the first node that uses it, or -1
    bool is_in_a_body = false;  // a node of another region uses it
  };

  void count_uses() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id) {
      if (!ir_.nodes[id].is_live) continue;
      for (ValueRef v : ir_.nodes[id].inputs) {
        Uses& uses = uses_[at(v.node)];
        ++uses.count;
        if (ir_.node(v).region != ir_.nodes[id].region) uses.is_in_a_body = true;
        if (uses.first_node < 0) uses.first_node = static_cast<int>(id);
      }
    }
    ir_.for_each_result([&](ValueRef v) { ++uses_[at(v.node)].count; });
  }

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
    const Uses& uses = uses_[at(last)];
    if (uses.is_in_a_body || uses.first_node < 0) return -1;
    const IrNode& next = ir_.nodes[at(uses.first_node)];
    if (!next.is_live) return -1;  // it was fused with another of its operands
    if (!next.bodies.empty() || !next.is_beside(ir_.nodes[at(last)])) return -1;
    ValueRef value{last, 0};
    if (std::count(next.inputs.begin(), next.inputs.end(), value) != 1) return -1;
    auto operand = std::find(next.inputs.begin(), next.inputs.end(), value) - next.inputs.begin();

    std::vector<TensorType> inputs = ir_.types(fused.inputs), next_inputs = ir_.types(next.inputs);
    TensorType type = fused.outputs[0];
    bool is_kept = uses.count > 1;
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
      replacements_[{last, 0}] = {uses.first_node, static_cast<int>(fused.outputs.size())};
      fused.outputs.push_back(type);
    }
    return uses.first_node;
  }

  PlannerIr& ir_;
  std::vector<Uses> uses_;
  Replacements replacements_;
};

}  // namespace

void fuse(PlannerIr& ir) { Fusing(ir).run(); }

}  // namespace graphsink
