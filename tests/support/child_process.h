// A program that runs in a process of its own: what ends it or hangs spoils nothing else.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace graphsink::testing {

struct ChildResult {
  std::string output;   // what it wrote to its standard output
  std::string problem;  // "did not end in time", "ended by signal 11", "ended with code 1"; empty: it ended with code 0
};

// Runs `command`, a program and its arguments, and kills it after the limit. Its standard error is the caller's. Any
// thread.
ChildResult run_child(std::vector<std::string> command, std::chrono::milliseconds limit);

}  // namespace graphsink::testing
