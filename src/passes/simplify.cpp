#include <algorithm>
#include <functional>
#include <unordered_map>

#include "passes/planner_ir.h"

namespace graphsink {
namespace {

bool is_repeatable(const IrNode& node) {
  const OpTraits& traits = node.op->traits;
  return !is_source(*node.op) && node.bodies.empty() && !traits.random && !traits.host_effect &&
         !writes_variables(*node.op, node.inputs.size());
}

bool is_same(const IrNode& a, const IrNode& b) {
  return a.op == b.op && a.region == b.region && a.inputs == b.inputs && a.label == b.label && a.attrs == b.attrs;
}

// Of what is_same() compares, all but the attributes.
std::size_t hash_of(const IrNode& node) {
  std::size_t hash = std::hash<const void*>()(node.op);
  auto add = [&](int x) { hash = hash * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(x) + 1; };
  add(node.region);
  for (ValueRef v : node.inputs) {
    add(v.node);
    add(v.output);
  }
  return hash;
}

}  // namespace

void simplify(PlannerIr& ir) {
  std::unordered_multimap<std::size_t, int> seen;
  Replacements replacements;
  for (std::size_t i = 0; i < ir.nodes.size(); ++i) {
    IrNode& node = ir.nodes[i];
    if (!node.is_live) continue;
    if (!replacements.empty())
      for (ValueRef& v : node.inputs) replace(v, replacements);
    if (!is_repeatable(node)) continue;
    std::size_t hash = hash_of(node);
    auto [begin, end] = seen.equal_range(hash);
    auto first = std::find_if(
        begin, end, [&](const auto& entry) { return is_same(ir.nodes[static_cast<std::size_t>(entry.second)], node); });
    if (first == end) {
      seen.emplace(hash, static_cast<int>(i));
      continue;
    }
    node.is_live = false;
    for (std::size_t j = 0; j < node.outputs.size(); ++j)
      replacements[{static_cast<int>(i), static_cast<int>(j)}] = {first->second, static_cast<int>(j)};
  }
  replace_uses(ir, replacements);
}

}  // namespace graphsink
