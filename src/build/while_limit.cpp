// while_ with a limit on its iterations: an op behind the loop fails the step if the condition still holds.
#include <algorithm>
#include <limits>

#include "build/counted_loop.h"
#include "graphsink/control.h"
#include "graphsink/ops.h"
#include "ir/control.h"
#include "kernels/runtime/while_limit.h"

namespace graphsink::detail {
namespace {

using Condition = std::function<Value(const Values&)>;
using Body = std::function<Values(const Values&)>;

Values without_last(const Values& state) { return {state.begin(), state.end() - 1}; }

// These return the last state and, behind it, whether the condition still holds.

Values limited(GraphData& graph, std::span<const Arg> init, const Condition& condition, const Body& body,
               std::int64_t limit, const Where& where) {
  auto may_go_on = [&](const Values& state) {
    Value is_below = less(Arg(state.back(), where), Arg(static_cast<double>(limit), where));
    return logical_and(Arg(condition(without_last(state)), where), is_below);
  };
  auto user_body = [&](const Values& state) { return body(without_last(state)); };
  Values results = without_last(counted_loop("while_", graph, init, may_go_on, user_body, limit, where));
  results.push_back(condition(results));
  return results;
}

// A loop of loops of sqrt(limit) iterations: its gradient keeps the states between them, and runs one after the other
// again. The condition is part of the state, so that it is evaluated once for each state.
Values segmented(GraphData& graph, std::span<const Arg> init, const Condition& condition, const Body& body,
                 std::int64_t limit, const Where& where) {
  const std::int64_t length = segment_length(limit), segments = (limit + length - 1) / length;
  auto number = [&](std::int64_t n) { return Arg(static_cast<double>(n), where); };
  Values first;
  for (const Arg& arg : init) first.push_back(as_value(graph, arg, "while_"));
  first.push_back(condition(first));
  std::vector<Arg> state;
  for (const Value& value : first) state.emplace_back(value, where);

  auto goes_on = [&](const Values& now, std::int64_t most) {
    return logical_and(Arg(now[now.size() - 2], where), Arg(less(Arg(now.back(), where), number(most)), where));
  };
  auto segment = [&](const Values& outer) {
    graph.regions[at(graph.current_region)].is_of_segments = true;
    const Value before = mul(Arg(outer.back(), where), number(length));
    std::vector<Arg> begin;
    for (const Value& value : without_last(outer)) begin.emplace_back(value, where);
    auto is_within = [&](const Values& now) {
      const Value all = add(Arg(before, where), Arg(now.back(), where));
      return logical_and(Arg(goes_on(now, length), where), Arg(less(Arg(all, where), number(limit)), where));
    };
    auto step = [&](const Values& now) {
      Values next = body(without_last(without_last(now)));
      check_state_size("while_", next.size(), init.size(), where);
      next.push_back(condition(next));
      return next;
    };
    return without_last(counted_loop("while_", graph, begin, is_within, step, length, where));
  };
  return without_last(counted_loop(
      "while_", graph, state, [&](const Values& now) { return goes_on(now, segments); }, segment, segments, where));
}

}  // namespace

Values while_values(std::span<const Arg> init, const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, const WhileOptions& options) {
  std::int64_t limit = options.max_iterations;
  auto is_value = [](const Arg& arg) {
    const auto* value = std::get_if<Value>(&arg.content());
    return value && value->valid();
  };
  auto first = std::find_if(init.begin(), init.end(), is_value);
  Where where = init.empty() ? Where() : init[0].where();
  if (limit == 0 && options.recompute)
    throw Error("while_", where, "recompute without a limit on the iterations", "give the loop .max_iterations");
  if (limit == 0 || first == init.end()) return while_values(init, condition, body);
  if (limit < 0 || limit > std::numeric_limits<std::int32_t>::max()) {
    throw Error("while_", where, "max_iterations is " + std::to_string(limit),
                "give a number from 1 to 2^31 - 1, or 0 for no limit");
  }
  GraphData& graph = *std::get<Value>(first->content()).graph();
  const Values results = options.recompute && limit > 3 ? segmented(graph, init, condition, body, limit, where)
                                                        : limited(graph, init, condition, body, limit, where);
  emit(while_limit_op, {Arg(results.back(), where)}, WhileLimitAttrs{limit});
  return without_last(results);
}

}  // namespace graphsink::detail
