// How long a thread that waits has used a processor.
#pragma once

#include <time.h>

namespace graphsink::testing {

inline double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Calls `wait`, and returns the share of the time until it returned in which this thread used a processor. A thread
// that sleeps uses next to none, one that looks again and again uses all that it gets.
template <class Wait>
double busy_share(const Wait& wait) {
  const double begin = seconds_of(CLOCK_MONOTONIC), busy = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  wait();
  return (seconds_of(CLOCK_THREAD_CPUTIME_ID) - busy) / (seconds_of(CLOCK_MONOTONIC) - begin);
}

}  // namespace graphsink::testing
