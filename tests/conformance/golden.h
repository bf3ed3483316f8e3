// The golden file: every answer of every case, each assumed, expected by a foreign test, or seen on a GPU.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "conformance/conformance.h"

namespace conformance {

inline constexpr const char* kAssumed = "assumed";
inline constexpr const char* kForeign = "by a foreign test";

// One line, as text: `case, call, code, capture status`, and in a golden file also the state and, where there is one,
// the reason. In a golden file a code or status that may differ is several, joined by " or ".
struct Line {
  std::string call;
  std::string code;
  std::string status;
  std::string state;   // kAssumed, kForeign, or "gpu-confirmed (...)"; empty in what a run writes
  std::string reason;  // why it was decided so where sources disagree; mostly empty
  bool is_confirmed() const { return state != kAssumed && state != kForeign; }
  // Of a golden line: whether it has a choice, and whether an answer that was seen is among those it allows.
  bool is_open() const;
  bool allows(const Line& seen) const;
  bool operator==(const Line&) const = default;
};
using Lines = std::vector<Line>;
using Golden = std::map<std::string, Lines>;  // by case

// Lines that begin with # and empty ones are left out. Throws std::runtime_error, naming the line, for one that has not
// at least four parts. All behind the fifth comma is the reason.
Golden read_golden(std::istream& in);
// In the order of `cases`; `header` is written first, each line of it behind "# ".
void write_golden(std::ostream& out, const std::vector<Case>& cases, const Golden& golden, const std::string& header);

// What the cases expect: nothing of it is confirmed by a GPU.
Golden expected_golden(const std::vector<Case>& cases);

// What is wrong with a golden file before anything runs: cases that are missing or unknown, and lines that no GPU has
// confirmed and that differ from the table of the case. One sentence each.
std::vector<std::string> stale_lines(const std::vector<Case>& cases, const Golden& golden);

// Where a run of one case differs from its golden lines. One sentence each: case, call, expected, got.
std::vector<std::string> differences(const std::string& name, const Lines& golden, const Lines& seen);

// Answers of a run that may differ, and what was seen. One sentence each.
std::vector<std::string> open_answers(const std::string& name, const Lines& golden, const Lines& seen);

// The golden lines of a case after it ran on a GPU: those it answered are confirmed, as far as the calls are the same
// ones; the rest keeps its state.
Lines confirm(const Lines& golden, const Lines& seen, const std::string& state);

}  // namespace conformance
