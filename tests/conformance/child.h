// A case in a process of its own: a lost device or a call that never returns spoils no other case.
#pragma once

#include <string>

#include "conformance/golden.h"

namespace conformance {

struct Outcome {
  Lines lines;
  std::string device;   // what it ran on: name, driver and toolkit version
  std::string problem;  // "timed out after 20 s", "ended by signal 11", ...; empty when it came to its end
};

// Runs this program again with --case NAME. Any thread.
Outcome run_in_child(const std::string& program, const std::string& case_name);

}  // namespace conformance
