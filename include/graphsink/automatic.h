// AutomaticReport: the measurements and the choice of the mode `automatic`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/mode.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Report of Program::automatic_report(), about one set of input shapes. Other sets have their own measurements and
// choice.
struct AutomaticReport {
  // A mode that may be chosen, and how it compares with the chosen one.
  struct Candidate {
    Mode mode = sink;  // the mode that it is about
    // Steps that run(automatic) has issued in this mode so far, including trials.
    std::int64_t steps = 0;
    // The time of a step in this mode divided by that in the chosen mode, when it was last evaluated, and its 95 %
    // confidence interval, from `low` to `high`. All are 0 for the chosen mode, and as long as there are too few
    // comparisons.
    double ratio = 0;
    double low = 0;   // lower end of the interval, see `ratio`
    double high = 0;  // upper end of the interval, see `ratio`
  };
  // The mode of the next step, unless it is a trial.
  Mode chosen = sink;
  std::vector<Candidate> candidates;  // all modes to choose from, the chosen one too
  std::int64_t switches = 0;          // how often another mode was chosen so far
  // How often the chosen mode was compared with another so far.
  std::int64_t comparisons = 0;
  double seconds = 0;        // sum over all measured steps
  double trial_seconds = 0;  // the part of `seconds` that trials took

  // The candidate with this mode. All its numbers are 0 if there is none.
  Candidate of(Mode mode) const;
};

// Describes the choice in one sentence.
std::string to_string(const AutomaticReport& report);

}  // namespace graphsink
