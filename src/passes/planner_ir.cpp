#include "passes/planner_ir.h"

namespace graphsink {

std::vector<TensorType> PlannerIr::types(const std::vector<ValueRef>& values) const {
  std::vector<TensorType> result;
  result.reserve(values.size());
  for (ValueRef v : values) result.push_back(type(v));
  return result;
}

void replace_uses(PlannerIr& ir, const Replacements& replacements) {
  if (replacements.empty()) return;
  for (IrNode& node : ir.nodes)
    for (ValueRef& v : node.inputs) replace(v, replacements);
  ir.for_each_result([&](ValueRef& v) { replace(v, replacements); });
}

}  // namespace graphsink
