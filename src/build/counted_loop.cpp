#include "build/counted_loop.h"

#include "graphsink/ops.h"
#include "ir/control.h"

namespace graphsink {

Values counted_loop(const char* op, GraphData& graph, std::span<const Arg> init,
                    const std::function<Value(const Values&)>& condition,
                    const std::function<Values(const Values&)>& body, std::int64_t limit, const Where& where) {
  const Value first = Graph(graph.shared_from_this()).constant(Tensor::scalar<std::int32_t>(0), where);
  std::vector<Arg> counted(init.begin(), init.end());
  counted.emplace_back(first, where);
  auto counting_body = [&](const Values& state) {
    const Value next = add(Arg(state.back(), where), Arg(1, where));
    Region& region = graph.regions[at(graph.current_region)];
    region.limit = limit;
    region.counter = {{first.node(), 0}, {state.back().node(), 0}, {next.node(), next.output()}};
    Values result = body(state);
    check_state_size(op, result.size(), init.size(), where);
    result.push_back(next);
    return result;
  };
  return loop_values(op, counted, condition, counting_body);
}

std::int64_t segment_length(std::int64_t iterations) {
  std::int64_t length = 1;
  while (length * length < iterations) ++length;
  return length;
}

}  // namespace graphsink
