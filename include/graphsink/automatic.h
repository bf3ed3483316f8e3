// What the mode `automatic` has measured and chosen.
#pragma once

#include <cstdint>
#include <string>

namespace graphsink {

struct AutomaticReport {
  // Steps that run(automatic) issued so far, trials included.
  std::int64_t interactive_steps = 0;
  std::int64_t sunk_steps = 0;
  // What the next step does, unless it is a trial: is sunk, or runs op by op.
  bool sinks = true;
  std::int64_t switches = 0;
  // Comparisons of both sides so far.
  std::int64_t comparisons = 0;
  // The time of an interactive step over that of a sunk one, and the interval that holds it with 95 % confidence, when
  // that was last looked at; all 0 before there were enough comparisons.
  double ratio = 0, low = 0, high = 0;
  // Time of all steps that were measured, and of the trials among them, in seconds.
  double seconds = 0;
  double trial_seconds = 0;
};

// One sentence for a person.
std::string to_string(const AutomaticReport& report);

}  // namespace graphsink
