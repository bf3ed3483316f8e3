// while_ with a limit on its iterations: their number is one more Value of its state, and an op behind the loop fails
// the step if the condition still holds.
#include <algorithm>
#include <limits>

#include "graphsink/control.h"
#include "graphsink/ops.h"
#include "kernels/runtime/while_limit.h"

namespace graphsink::detail {
namespace {

Values without_last(const Values& state) { return {state.begin(), state.end() - 1}; }

}  // namespace

Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, const WhileOptions& options) {
  std::int64_t limit = options.max_iterations;
  auto is_value = [](const Arg& arg) {
    const auto* value = std::get_if<Value>(&arg.content());
    return value && value->valid();
  };
  auto first = std::find_if(init.begin(), init.end(), is_value);
  if (limit == 0 || first == init.end()) return while_values(init, condition, body);
  Where where = init[0].where();
  if (limit < 0 || limit > std::numeric_limits<std::int32_t>::max()) {
    throw Error("while_", where, "max_iterations is " + std::to_string(limit),
                "give a number from 1 to 2^31 - 1, or 0 for no limit");
  }
  Graph graph(std::get<Value>(first->content()).graph());
  std::vector<Arg> counted(init.begin(), init.end());
  counted.emplace_back(graph.constant(Tensor::scalar<std::int32_t>(0), where), where);
  auto may_go_on = [&](const Values& state) {
    Value is_below = less(Arg(state.back(), where), Arg(static_cast<double>(limit), where));
    return logical_and(Arg(condition(without_last(state)), where), is_below);
  };
  auto counting_body = [&](const Values& state) {
    Values next = body(without_last(state));
    next.push_back(add(Arg(state.back(), where), Arg(1, where)));
    return next;
  };
  Values results = without_last(while_values(counted, may_go_on, counting_body));
  emit(while_limit_op, {Arg(condition(results), where)}, WhileLimitAttrs{limit});
  return results;
}

}  // namespace graphsink::detail
