// What the mode `automatic` has measured and chosen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/mode.h"

namespace graphsink {

struct AutomaticReport {
  struct Candidate {
    Mode mode = sink;
    // That run(automatic) issued so far, trials included.
    std::int64_t steps = 0;
    // The time of a step of this mode over that of the chosen one, and the interval that holds it with 95 % confidence,
    // when that was last looked at. All 0 for the chosen one itself, and while there are too few comparisons with it.
    double ratio = 0, low = 0, high = 0;
  };
  // How the next step runs, unless it is a trial.
  Mode chosen = sink;
  std::vector<Candidate> candidates;
  std::int64_t switches = 0;
  // Comparisons of the chosen mode with another so far.
  std::int64_t comparisons = 0;
  // Time of all steps that were measured, and of the trials among them, in seconds.
  double seconds = 0;
  double trial_seconds = 0;

  // All 0 where it is no candidate.
  Candidate of(Mode mode) const;
};

// One sentence for a person.
std::string to_string(const AutomaticReport& report);

}  // namespace graphsink
