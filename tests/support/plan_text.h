// Plans as text that a test can compare.
#pragma once

#include <string>

#include "ir/fused.h"
#include "ir/plan.h"

namespace graphsink::testing {

// The ops of the step in order, those of a group in brackets.
inline std::string ops_of(const Plan& plan) {
  std::string names;
  for (const PlanNode& node : plan.nodes) {
    if (node.id < 0) continue;
    names += names.empty() ? "" : " ";
    const auto* group = node.attrs.get_if<FusedAttrs>();
    if (!group) {
      names += node.op->name;
      continue;
    }
    for (std::size_t k = 0; k < group->ops.size(); ++k)
      names += (k == 0 ? "[" : " ") + std::string(group->ops[k].op->name);
    names += "]";
  }
  return names;
}

}  // namespace graphsink::testing
