// while_ with a limit on its iterations: an op behind the loop fails the step if the condition still holds.
#include <algorithm>
#include <limits>

#include "build/counted_loop.h"
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
  GraphData& graph = *std::get<Value>(first->content()).graph();
  auto may_go_on = [&](const Values& state) {
    Value is_below = less(Arg(state.back(), where), Arg(static_cast<double>(limit), where));
    return logical_and(Arg(condition(without_last(state)), where), is_below);
  };
  auto user_body = [&](const Values& state) { return body(without_last(state)); };
  Values results = without_last(counted_loop("while_", graph, init, may_go_on, user_body, limit, where));
  emit(while_limit_op, {Arg(condition(results), where)}, WhileLimitAttrs{limit});
  return results;
}

}  // namespace graphsink::detail
