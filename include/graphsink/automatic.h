// AutomaticReport: the measurements and the choice of the mode `automatic`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/mode.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

struct AutomaticReport {
  struct Candidate {
    Mode mode = sink;
    // Steps that run(automatic) has issued in this mode so far, including trials.
    std::int64_t steps = 0;
    // The time of a step in this mode divided by that in the chosen mode, and its 95 % confidence interval, when they
    // were last evaluated. All are 0 for the chosen mode, and as long as there are too few comparisons.
    double ratio = 0, low = 0, high = 0;
  };
  // The mode of the next step, unless it is a trial.
  Mode chosen = sink;
  std::vector<Candidate> candidates;
  std::int64_t switches = 0;
  // How often the chosen mode was compared with another so far.
  std::int64_t comparisons = 0;
  // The time of all measured steps, and of the trials among them, in seconds.
  double seconds = 0;
  double trial_seconds = 0;

  // The candidate with this mode. All its numbers are 0 if there is none.
  Candidate of(Mode mode) const;
};

// Describes the choice in one sentence.
std::string to_string(const AutomaticReport& report);

}  // namespace graphsink
