// Runs a program in a separate process, so that a crash or a hang does not affect the tests.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace graphsink::testing {

struct ChildResult {
  std::string output;  // what it wrote to its standard output
  // Such as "did not end in time", "ended by signal 11" or "ended with code 1"; empty if it ended with code 0.
  std::string problem;
};

// Runs `command`, which is a program and its arguments, and kills it after the limit. The child inherits the standard
// error of the caller. May be called on any thread.
ChildResult run_child(std::vector<std::string> command, std::chrono::milliseconds limit);

}  // namespace graphsink::testing
