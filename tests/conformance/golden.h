// The golden file: every answer of every case, each either assumed or seen on a GPU.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "conformance/conformance.h"

namespace conformance {

inline constexpr const char* kAssumed = "assumed";

// One line, as text: `case, call, code, capture status`, and in a golden file also the state.
struct Line {
  std::string call;
  std::string code;
  std::string status;
  std::string state;  // kAssumed, or "gpu-confirmed (...)"; empty in what a run writes
  bool agrees_with(const Line& other) const {
    return call == other.call && code == other.code && status == other.status;
  }
};
using Lines = std::vector<Line>;
using Golden = std::map<std::string, Lines>;  // by case

// Lines that begin with # and empty ones are left out. Throws std::runtime_error, naming the line, for one that has not
// four or five parts.
Golden read_golden(std::istream& in);
// In the order of `cases`; `header` is written first, each line of it behind "# ".
void write_golden(std::ostream& out, const std::vector<Case>& cases, const Golden& golden, const std::string& header);

// What the cases expect, all of it assumed.
Golden assumed_golden(const std::vector<Case>& cases);

// What is wrong with a golden file before anything runs: cases that are missing or unknown, and assumed lines that
// differ from the table of the case. One sentence each.
std::vector<std::string> stale_lines(const std::vector<Case>& cases, const Golden& golden);

// Where a run of one case differs from its golden lines. One sentence each: case, call, expected, got.
std::vector<std::string> differences(const std::string& name, const Lines& golden, const Lines& seen);

// The golden lines of a case after it ran on a GPU: those it answered are confirmed, as far as the calls are the same
// ones; the rest keeps its state.
Lines confirm(const Lines& golden, const Lines& seen, const std::string& state);

}  // namespace conformance
