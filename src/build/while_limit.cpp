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

std::vector<Arg> args_of(const Values& values, const Where& where) {
  std::vector<Arg> args;
  for (const Value& value : values) args.emplace_back(value, where);
  return args;
}

// A while_ with a limit. Its loops carry the condition as the last of their state, in front of the number of the
// iteration, so that it is evaluated once for each state: another evaluation would draw other random numbers, and would
// assign Variables once more. Both kinds of loops return the last state, and the condition of it.
class LimitedLoop {
 public:
  LimitedLoop(GraphData& graph, const Condition& condition, const Body& body, std::int64_t limit, const Where& where)
      : graph_(graph), condition_(condition), body_(body), limit_(limit), where_(where) {}

  Values one_loop(std::span<const Arg> init) const {
    const Values first = begin(init);
    auto is_within = [&](const Values& now) { return goes_on(now, limit_); };
    auto step = [&](const Values& now) { return iterate(now, first); };
    return without_last(counted_loop("while_", graph_, args_of(first, where_), is_within, step, limit_, where_));
  }

  // A loop of loops of sqrt(limit) iterations: its gradient keeps the states between them, and runs one after the other
  // again.
  Values loop_of_loops(std::span<const Arg> init) const {
    const std::int64_t length = segment_length(limit_), segments = (limit_ + length - 1) / length;
    const Values first = begin(init);
    auto segment = [&](const Values& outer) {
      graph_.regions[at(graph_.current_region)].is_of_segments = true;
      const Value before = mul(Arg(outer.back(), where_), number(length));
      auto is_within = [&](const Values& now) {
        const Value all = add(Arg(before, where_), Arg(now.back(), where_));
        const Value is_below = less(Arg(all, where_), number(limit_));
        return logical_and(Arg(goes_on(now, length), where_), Arg(is_below, where_));
      };
      auto step = [&](const Values& now) { return iterate(now, first); };
      const std::vector<Arg> state = args_of(without_last(outer), where_);
      return without_last(counted_loop("while_", graph_, state, is_within, step, length, where_));
    };
    auto has_more = [&](const Values& now) { return goes_on(now, segments); };
    return without_last(counted_loop("while_", graph_, args_of(first, where_), has_more, segment, segments, where_));
  }

 private:
  Arg number(std::int64_t n) const { return {static_cast<double>(n), where_}; }

  void add_condition(Values& state) const {
    const Value condition = condition_(state);
    (void)check_predicate(graph_, condition, "while_", where_);
    state.push_back(condition);
  }

  Values begin(std::span<const Arg> init) const {
    Values state;
    for (const Arg& arg : init) state.push_back(as_value(graph_, arg, "while_"));
    add_condition(state);
    return state;
  }

  Values iterate(const Values& now, const Values& first) const {
    Values next = body_(without_last(without_last(now)));
    check_state_size("while_", next.size(), first.size() - 1, where_);
    for (std::size_t i = 0; i < next.size(); ++i)
      (void)check_state("while_", graph_, i, next[i], graph_.type({first[i].node(), first[i].output()}), where_);
    add_condition(next);
    return next;
  }

  Value goes_on(const Values& now, std::int64_t most) const {
    return logical_and(Arg(now[now.size() - 2], where_), Arg(less(Arg(now.back(), where_), number(most)), where_));
  }

  GraphData& graph_;
  const Condition& condition_;
  const Body& body_;
  std::int64_t limit_;
  const Where& where_;
};

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
  const LimitedLoop loop(graph, condition, body, limit, where);
  const Values results = options.recompute && limit > 3 ? loop.loop_of_loops(init) : loop.one_loop(init);
  emit(while_limit_op, {Arg(results.back(), where)}, WhileLimitAttrs{limit});
  return without_last(results);
}

}  // namespace graphsink::detail
