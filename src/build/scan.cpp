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

using ScanBody = std::function<Scan(const Values&, const Values&)>;

std::vector<Arg> args_of(const Values& values, const Where& where) {
  std::vector<Arg> args;
  for (const Value& value : values) args.emplace_back(value, where);
  return args;
}

// Slices [begin, end) along the first axis.
Value part_of(const Value& whole, std::int64_t begin, std::int64_t end, const Where& where) {
  return slice(Arg(whole, where), {begin}, {end});
}

// x [n, ...] as [n / length, length, ...], and back.
Value in_segments(const Value& x, std::int64_t length, const Where& where) {
  std::vector<NewDim> dims{x.shape()[0] / length, length};
  for (int d = 1; d < x.shape().rank(); ++d) dims.push_back(keep(d));
  return reshape(Arg(x, where), NewShape(std::move(dims)));
}
Value without_segments(const Value& x, const Where& where) {
  std::vector<NewDim> dims{x.shape()[0] * x.shape()[1]};
  for (int d = 2; d < x.shape().rank(); ++d) dims.push_back(keep(d));
  return reshape(Arg(x, where), NewShape(std::move(dims)));
}

// A scan over scans of sqrt(iterations) slices, and a scan over the slices that are left: the gradient keeps the states
// between them, and runs one after the other again.
Scan segmented(const std::vector<Arg>& init, const Values& inputs, const ScanBody& body, std::int64_t iterations,
               const Where& where) {
  const std::int64_t length = segment_length(iterations), segments = iterations / length, whole = segments * length;
  std::vector<Arg> parts;
  for (const Value& input : inputs)
    parts.emplace_back(in_segments(part_of(input, 0, whole, where), length, where), where);
  GraphData& graph = *(inputs.empty() ? control_graph(init, "scan", where) : inputs[0].graph());
  auto segment = [&](const Values& state, const Values& slices) {
    graph.regions[at(graph.current_region)].is_of_segments = true;
    return scan(args_of(state, where), args_of(slices, where), body, {.iterations = length}, where);
  };
  Scan result = scan(init, parts, segment, {.iterations = segments}, where);
  for (Value& output : result.outputs) output = without_segments(output, where);
  if (whole == iterations) return result;
  Values rest;
  for (const Value& input : inputs) rest.push_back(part_of(input, whole, iterations, where));
  Scan last = scan(args_of(result.state, where), args_of(rest, where), body, {.iterations = iterations - whole}, where);
  for (std::size_t i = 0; i < last.outputs.size(); ++i)
    last.outputs[i] = concat({Arg(result.outputs[i], where), Arg(last.outputs[i], where)}, 0);
  return last;
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
  if (options.recompute && iterations > 3) return segmented(init, whole, body, iterations, where);
  std::vector<Stacked> kept;
  Values state = fixed_loop(
      "scan", graph, init,
      [&](const Values& now) {
        kept.clear();  // the body may be built again
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
