// A graph in every mode: whether all of them agree with what the graph means.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "oracle.h"

namespace graphsink::testing {

// What differs, in words; nothing if all bits are the same. Precondition: `b` saw no outputs that `a` did not.
std::string difference(const Building& building, const Trace& a, const Trace& b);

// The kind of a failure, which shrinking keeps, and its text.
struct Failure {
  std::string kind, text;
};
using Compare = std::function<std::string(const Building&, const Trace&, const Trace&)>;

// Runs the graph on all devices of this build in all modes: each alone, several steps a launch, and all by turns.
// Fails unless `compare` finds nothing between any of these and the oracle, values are finite, and types are those of
// the other devices.
std::optional<Failure> check(const Recipe& recipe, const Compare& compare = difference);

}  // namespace graphsink::testing
