#include "samples/models/synthetic.h"

namespace graphsink::models {
namespace {

// x -> 0.99999 x + 0.00001 pulls towards 1 so slowly that every step differs from the one before.
Value link(const Value& x, int i) { return i % 2 == 0 ? x * 0.99999 : x + 0.00001; }

}  // namespace

Model chain(int nodes) {
  if (nodes <= kStepNodes) {
    throw Error("chain", Where(),
                "expected more than " + std::to_string(kStepNodes) + " nodes, seen " + std::to_string(nodes),
                "give a larger --nodes");
  }
  Model model;
  model.name = "chain";
  model.tuning.fuse = false;
  Variable state("state", Tensor::scalar(0.5f));
  Value x = model.graph.value(state);
  for (int i = 0; i < nodes - kStepNodes; ++i) x = link(x, i);
  assign(state, x);
  model.graph.record("loss", x);
  model.variables = {state};
  return model;
}

Model wide(int branches, int depth, std::int64_t elements) {
  Model model;
  model.name = "wide";
  Variable state("state", Tensor::uniform({elements}, 1));
  Value x = model.graph.value(state);
  Value joined;
  for (int branch = 0; branch < branches; ++branch) {
    Value y = x * (1.0 + 0.001 * branch);
    for (int i = 1; i < depth; ++i) y = link(y, i);
    joined = joined.valid() ? joined + y : y;
  }
  Value mean = joined * (1.0 / (branches * (1.0 + 0.0005 * (branches - 1))));
  assign(state, mean);
  model.graph.record("loss", sum(mean));
  model.variables = {state};
  return model;
}

}  // namespace graphsink::models
