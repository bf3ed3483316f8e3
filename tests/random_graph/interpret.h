// What a graph means, computed without the passes: what every mode of a device is compared with.
#pragma once

#include <functional>

#include "random_graph.h"

namespace graphsink::testing {

// What there is to see when the steps of a graph were run in one way.
struct Trace {
  std::map<int, std::vector<Tensor>> outputs;  // by step; not of all steps in every way of running them
  std::vector<std::vector<double>> records;
  std::vector<Tensor> variables;
  std::int64_t steps = 0;
  std::vector<EffectLog::Entry> effects;
};

// Runs the steps node by node in the order in which they were built, each value in memory of its own. plan(step) is the
// plan for the shapes from that step on. It says only for which device, and which of its nodes run on the host.
Trace interpret(Building& building, const std::function<const Plan&(int step)>& plan, std::uint32_t seed, int steps);

}  // namespace graphsink::testing
