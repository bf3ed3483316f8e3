#include "passes/planner_ir.h"

#include <numeric>

namespace graphsink {

std::vector<TensorType> PlannerIr::types(const std::vector<ValueRef>& values) const {
  std::vector<TensorType> result;
  result.reserve(values.size());
  for (ValueRef v : values) result.push_back(type(v));
  return result;
}

Uses::Uses(const PlannerIr& ir) {
  first_.reserve(ir.nodes.size());
  std::size_t values = 0;
  for (const IrNode& node : ir.nodes) {
    first_.push_back(values);
    values += node.outputs.size();
  }
  auto for_each_use = [&](auto&& visit) {
    for (std::size_t id = 0; id < ir.nodes.size(); ++id) {
      const IrNode& node = ir.nodes[id];
      if (!node.is_live) continue;
      int operand = 0;
      for (ValueRef v : node.inputs) visit(v, Use{static_cast<int>(id), operand++});
      for (int body : node.bodies)
        PlannerIr::for_each_result_of(ir.regions[at(body)], [&](ValueRef v) {
          visit(v, Use{static_cast<int>(id), -1});
        });
    }
  };
  begin_.resize(values + 1);
  for_each_use([&](ValueRef v, Use) { ++begin_[index(v) + 1]; });
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  uses_.resize(begin_.back());
  std::vector<std::size_t> next = begin_;
  for_each_use([&](ValueRef v, Use use) { uses_[next[index(v)]++] = use; });
  is_result_.resize(values);
  ir.for_each_result([&](ValueRef v) { is_result_[index(v)] = true; });
}

void replace_uses(PlannerIr& ir, const Replacements& replacements) {
  if (replacements.empty()) return;
  for (IrNode& node : ir.nodes)
    for (ValueRef& v : node.inputs) replace(v, replacements);
  ir.for_each_result([&](ValueRef& v) { replace(v, replacements); });
}

FusionRules::FusionRules(std::span<const std::span<const FusionRule>> lists) {
  for (std::span<const FusionRule> rules : lists) {
    for (const FusionRule& rule : rules) {
      OfOp& known = by_op_[rule.op];
      if (rule.fuse) known.fuse.push_back(rule.fuse);
      if (rule.strided) known.strided = rule.strided;
      if (rule.rows.width) known.rows = &rule.rows;
    }
  }
}

}  // namespace graphsink
