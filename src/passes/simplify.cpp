#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "base/at.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

bool is_repeatable(const IrNode& node) {
  const OpTraits& traits = node.op->traits;
  return (!is_source(*node.op) || node.op == &constant_op) && node.bodies.empty() && !traits.random &&
         !traits.host_effect && !writes_variables(*node.op, node.inputs.size());
}

bool has_same_inputs(const PlannerIr& ir, const IrNode& a, const IrNode& b) {
  if (a.inputs.size() != b.inputs.size()) return false;
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    if (a.inputs[i] == b.inputs[i]) continue;
    if (a.reads(i) || !(ir.type(a.inputs[i]) == ir.type(b.inputs[i]))) return false;
  }
  return true;
}

bool is_same(const PlannerIr& ir, const IrNode& a, const IrNode& b) {
  return a.op == b.op && a.region == b.region && a.placement == b.placement && has_same_inputs(ir, a, b) &&
         a.attrs == b.attrs;
}

// Hashes what is_same() compares, except the placement and all attributes but the first bytes of a constant: a graph
// may have many constants.
std::size_t hash_of(const PlannerIr& ir, const IrNode& node) {
  std::size_t hash = std::hash<const void*>()(node.op);
  auto add = [&](int x) { hash = hash * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(x) + 1; };
  add(node.region);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueRef v = node.inputs[i];
    if (!node.reads(i)) {
      for (std::int64_t dim : ir.type(v).shape.dims()) add(static_cast<int>(dim));
    } else {
      add(v.node);
      add(v.output);
    }
  }
  if (node.op == &constant_op) {
    const Tensor& tensor = *node.attrs.as<ConstantAttrs>().tensor;
    std::uint64_t first = 0;
    if (tensor.bytes() > 0) std::memcpy(&first, tensor.data(), std::min(sizeof first, tensor.bytes()));
    add(static_cast<int>(std::hash<std::uint64_t>()(first * 0x9E3779B97F4A7C15u) >> 32));
  }
  return hash ^ (hash >> 32);
}

// The distinct nodes so far, by hash. The hash lists are two arrays, because graphs have many nodes.
class Seen {
 public:
  explicit Seen(const PlannerIr& ir)
      : ir_(ir), newest_(std::bit_ceil(ir.nodes.size() + 1), -1), older_(ir.nodes.size(), -1) {}

  // Returns an earlier node that is the same as node `i`. If there is none, adds node `i` and returns -1.
  int find_or_add(int i) {
    const IrNode& node = ir_.nodes[at(i)];
    int& newest = newest_[hash_of(ir_, node) & (newest_.size() - 1)];
    for (int other = newest; other >= 0; other = older_[at(other)])
      if (is_same(ir_, ir_.nodes[at(other)], node)) return other;
    older_[at(i)] = newest;
    newest = i;
    return -1;
  }

 private:
  const PlannerIr& ir_;
  std::vector<int> newest_, older_;
};

bool is_copy(const PlannerIr& ir, const IrNode& node) {
  return node.op->traits.copies_same_type && ir.type(node.inputs[0]) == node.outputs[0];
}

}  // namespace

void simplify(PlannerIr& ir) {
  Seen seen(ir);
  Replacements replacements;
  for (int i = 0; i < static_cast<int>(ir.nodes.size()); ++i) {
    IrNode& node = ir.nodes[at(i)];
    if (!node.is_live) continue;
    if (!replacements.empty())
      for (ValueRef& v : node.inputs) replace(v, replacements);
    if (is_copy(ir, node)) {
      node.is_live = false;
      IrNode& copied = ir.node(node.inputs[0]);
      copied.is_inside = copied.is_inside && node.is_inside;
      replacements[{i, 0}] = node.inputs[0];
      continue;
    }
    if (!is_repeatable(node)) continue;
    int first = seen.find_or_add(i);
    if (first < 0) continue;
    node.is_live = false;
    ir.nodes[at(first)].is_inside = ir.nodes[at(first)].is_inside && node.is_inside;
    for (int j = 0; j < static_cast<int>(node.outputs.size()); ++j) replacements[{i, j}] = {first, j};
  }
  replace_uses(ir, replacements);
}

}  // namespace graphsink
