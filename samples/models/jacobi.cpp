#include "samples/models/jacobi.h"

#include <limits>

namespace graphsink::models {
namespace {

// The mean of the neighbours of each inner cell: [n, n] -> [n - 2, n - 2].
Value mean_of_neighbours(const Value& plate) {
  Value above = slice(plate, {0, 1}, {-2, -1}), below = slice(plate, {2, 1}, {to_end, -1});
  Value left = slice(plate, {1, 0}, {-1, -2}), right = slice(plate, {1, 2}, {-1, to_end});
  return (above + below + (left + right)) * 0.25;
}

void infer_count(InferArgs& a) {
  a.expect_inputs(1);
  a.out(a.in(0).dtype, a.in(0).shape);
}
void count(const CpuArgs& a) { *a.out<float>(0) = *a.in<float>(0) + 1; }
const OpDef count_op{.name = "count_on_host", .infer = infer_count, .bodies = {count}};

}  // namespace

Model jacobi(const JacobiOptions& options) {
  if (options.size < 3)
    throw Error("jacobi", Where(), "a plate of " + std::to_string(options.size) + " cells a side has no inner cell",
                "give at least 3");
  Model model;
  model.name = "jacobi";
  Graph& g = model.graph;
  Variable plate("plate", Tensor(f32, {options.size, options.size})), heater("heater", Tensor::scalar(90.0f));

  Tensor ones = Tensor::full(f32, {1, options.size}, 1);
  Value border = pad(g.constant(ones) * heater, {0, 0}, {options.size - 1, 0});
  auto changes = [&](Value, Value change, Value) { return change > options.tolerance; };
  auto iterate = [&](Value before, Value, Value iterations) {
    Value after = pad(mean_of_neighbours(before), {1, 1}, {1, 1}) + border;
    Value next = options.counts_on_host ? emit(count_op, {iterations})[0] : iterations + 1.0;
    return std::array{after, max(abs(after - before)), next};
  };
  auto unknown = g.constant(Tensor::scalar(std::numeric_limits<float>::infinity()));
  auto none = g.constant(Tensor::scalar(0.0f));
  auto [solved, change, iterations] =
      while_({border, unknown, none}, changes, iterate, {.max_iterations = options.max_iterations});

  assign(plate, solved);
  // It warms up from step to step, and begins again when it is hot.
  Value heat = g.value(heater);
  assign(heater, where(heat < 100.0, heat + 0.6, 90.0));
  g.record("loss", mean(solved));
  g.record("iterations", iterations);
  model.variables = {plate, heater};
  return model;
}

}  // namespace graphsink::models
