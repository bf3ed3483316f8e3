// A case in a process of its own: a lost device or a call that never returns spoils no other case.
#pragma once

#include <chrono>
#include <string>

#include "conformance/golden.h"

namespace conformance {

struct Outcome {
  Lines lines;
  std::string device;   // what it ran on: name, driver and toolkit version
  std::string problem;  // "did not end in time", "ended by signal 11", ...; empty when it came to its end
};

// Runs `program --case NAME` and ends it after the limit. Any thread.
Outcome run_in_child(const std::string& program, const std::string& case_name,
                     std::chrono::milliseconds limit = std::chrono::seconds(20));

}  // namespace conformance
