#include "build/counted_loop.h"

#include "graphsink/ops.h"
#include "ir/control.h"

namespace graphsink {
namespace {

Value first_number(GraphData& graph, const Where& where) {
  return Graph(graph.shared_from_this()).constant(Tensor::scalar<std::int32_t>(0), where);
}

Values build(const char* op, GraphData& graph, std::span<const Arg> init, const Value& first,
             const std::function<Value(const Values&)>& condition, const std::function<Values(const Values&)>& body,
             std::int64_t limit, bool runs_to_limit, const Where& where) {
  std::vector<Arg> counted(init.begin(), init.end());
  counted.emplace_back(first, where);
  auto counting_body = [&](const Values& state) {
    const std::size_t number = at(graph.current_region);
    Region& region = graph.regions[number];
    region.limit = limit;
    region.runs_to_limit = runs_to_limit;
    region.counter = {{first.node(), 0}, {state.back().node(), 0}, {}};
    Values result = body(state);  // which may add regions
    check_state_size(op, result.size(), init.size(), where);
    const Value next = add(Arg(state.back(), where), Arg(1, where));
    graph.regions[number].counter.next = {next.node(), next.output()};
    result.push_back(next);
    return result;
  };
  return loop_values(op, counted, condition, counting_body);
}

}  // namespace

Values counted_loop(const char* op, GraphData& graph, std::span<const Arg> init,
                    const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, std::int64_t limit, const Where& where) {
  return build(op, graph, init, first_number(graph, where), condition, body, limit, false, where);
}

Values fixed_loop(const char* op, GraphData& graph, std::span<const Arg> init,
                  const std::function<Values(const Values&)>& body, std::int64_t iterations, const Where& where) {
  const Value first = first_number(graph, where);
  // Asked of the state that the loop begins with, and of that behind an iteration.
  auto goes_on = [&](const Values& state) {
    if (state.back().node() == first.node())
      return Graph(graph.shared_from_this()).constant(Tensor::scalar(true), where);
    return less(Arg(state.back(), where), Arg(static_cast<double>(iterations), where));
  };
  return build(op, graph, init, first, goes_on, body, iterations, true, where);
}

std::int64_t segment_length(std::int64_t iterations) {
  std::int64_t length = 1;
  while (length * length < iterations) ++length;
  return length;
}

}  // namespace graphsink
