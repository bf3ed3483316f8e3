// What a recipe means, computed from the user's calls: what every mode of a device is compared with.
//
// The oracle makes the calls of the recipe anew in each step. Loops and branches are those of C++, Variables are the
// values that they had at the start of the step until something is assigned, updates of optimizers are their formulas,
// and random ops draw from the numbers of their node and iterations. So nothing is left but ops one after the other,
// which run by their own bodies, each value in memory of its own. Gradients are those of these ops.
#pragma once

#include <functional>

#include "ir/plan.h"
#include "random_graph.h"

namespace graphsink::testing {

// What there is to see when the steps of a graph were run in one way.
struct Trace {
  std::map<int, std::vector<Tensor>> outputs;  // by step; not of all steps in every way of running them
  std::vector<std::vector<double>> records;
  std::vector<Tensor> variables;
  std::int64_t steps = 0;
  std::vector<EffectLog::Entry> effects;
  std::string failure;  // why the step behind these has failed, if it has
};

// What the oracle has to be told.
struct OracleOptions {
  // The plan for the shapes of a step. It says only for which device, and which nodes run on the host.
  std::function<const Plan&(int step)> plan;
  std::uint32_t seed = 0;
  // Outputs by step, for the bits of gradients through loops and branches, whose terms are added up in an order of the
  // library's. The oracle goes on with these bits if they are close to what it has computed.
  const std::map<int, std::vector<Tensor>>* gradients = nullptr;
};

struct Expected {
  Trace trace;
  bool all_finite = true;  // every number that an op of the user's made
  std::string problem;     // a gradient that is not close, in words
};

// Runs the steps. `building`: the graph of the recipe.
Expected expect(const Recipe& recipe, const Building& building, const OracleOptions& options);

}  // namespace graphsink::testing
