// switch_: an op that checks the index, and a branch that may have more bodies than two.
#include "graphsink/control.h"
#include "graphsink/op.h"
#include "ir/control.h"
#include "kernels/runtime/switch_index.h"

namespace graphsink {

Values switch_(const Arg& index, const std::vector<std::function<Values()>>& bodies) {
  const Where where = index.where();
  const Value checked = emit(switch_index_op, {index}, SwitchIndexAttrs{static_cast<std::int64_t>(bodies.size())})[0];
  const std::shared_ptr<GraphData>& graph = checked.graph();
  if (graph->run_now)
    throw Error("switch_", where, "Values of an Eager need no control nodes", "use the control flow of your language");
  return branch_values(*graph, switch_op, {checked.node(), checked.output()}, bodies, where);
}

Value switch_(const Arg& index, const std::vector<std::function<Value()>>& bodies) {
  std::vector<std::function<Values()>> lists;
  for (const auto& body : bodies) lists.emplace_back([&body] { return Values{body()}; });
  return switch_(index, lists)[0];
}

}  // namespace graphsink
