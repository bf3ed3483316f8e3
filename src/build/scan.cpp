// scan: a counted loop whose body takes slices at the number of the iteration, and whose outputs are stacks.
#include <limits>

#include "build/counted_loop.h"
#include "graphsink/ops.h"
#include "ir/control.h"
#include "kernels/runtime/stack.h"

namespace graphsink {
namespace {

std::int64_t iterations_of(const Values& inputs, const ScanOptions& options, const Where& where) {
  std::int64_t iterations = options.iterations;
  for (const Value& input : inputs) {
    const TensorType type = input.type(where);
    if (type.shape.rank() == 0 || type.shape.is_open(0))
      throw Error("scan", where, "an input is " + to_string(type), "give it a first axis whose size is known");
    if (iterations != 0 && iterations != type.shape[0])
      throw Error("scan", where,
                  "an input is " + to_string(type) + ", for " + std::to_string(iterations) + " iterations",
                  "give all inputs as many slices as there are iterations");
    iterations = type.shape[0];
  }
  if (iterations < 1 || iterations > std::numeric_limits<std::int32_t>::max())
    throw Error("scan", where, "there are " + std::to_string(iterations) + " iterations",
                "give inputs with at least one slice, or ScanOptions::iterations from 1 to 2^31 - 1");
  return iterations;
}

}  // namespace

Scan scan(const std::vector<Arg>& init, const std::vector<Arg>& inputs,
          const std::function<Scan(const Values&, const Values&)>& body, const ScanOptions& options, Where where) {
  std::vector<Arg> all(init);
  all.insert(all.end(), inputs.begin(), inputs.end());
  GraphData& graph = *control_graph(all, "scan", where);
  Values whole;
  for (const Arg& input : inputs) whole.push_back(as_value(graph, input, "scan"));
  const std::int64_t iterations = iterations_of(whole, options, where);
  std::vector<Stacked> kept;
  Values state = counted_loop(
      "scan", graph, init,
      [&](const Values& now) { return less(Arg(now.back(), where), Arg(static_cast<double>(iterations), where)); },
      [&](const Values& now) {
        const Arg number(now.back(), where);
        Values slices;
        for (const Value& input : whole) slices.push_back(emit(slice_at_op, {Arg(input, where), number})[0]);
        Scan next = body({now.begin(), now.end() - 1}, slices);
        for (const Value& value : next.outputs)
          kept.push_back({graph.visible(value, "scan", where), {now.back().node(), now.back().output()}});
        return next.state;
      },
      iterations, where);
  Scan result;
  for (const Stacked& stacked : kept)
    result.outputs.push_back(graph.value(stacked_output(graph, state.back().node(), stacked)));
  state.pop_back();
  result.state = std::move(state);
  return result;
}

}  // namespace graphsink
