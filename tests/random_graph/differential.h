// A graph in every mode: whether all of them agree.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

// What differs, in words; nothing if all bits are the same. Precondition: `b` saw no outputs that `a` did not.
std::string difference(const Building& building, const Trace& a, const Trace& b);

// The kind of a failure, which shrinking keeps, and its text.
struct Failure {
  std::string kind, text;
};
using Compare = std::function<std::string(const Building&, const Trace&, const Trace&)>;

// Runs the graph on all devices of this build in all modes: each alone, several steps a launch, and all by turns.
// Fails unless within a device `compare` finds nothing, values are finite, and types are those of the other devices.
std::optional<Failure> check(const Recipe& recipe, const Compare& compare = difference);

}  // namespace graphsink::testing
