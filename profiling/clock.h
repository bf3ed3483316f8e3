// Clocks of the measurements, in microseconds.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace graphsink::bench {

struct Spread {
  double min = 0, median = 0, max = 0;
};
// Precondition: there is at least one sample.
inline Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::size_t n = samples.size();
  return {samples.front(), 0.5 * (samples[(n - 1) / 2] + samples[n / 2]), samples.back()};
}

using Clock = std::chrono::steady_clock;
inline double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The time of its core that this thread has used.
inline double thread_us() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// The time of their cores that all threads of this process have used.
inline double process_us() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// Reading the thread's clock is a system call: what two in a row see is not the measured code's.
inline double thread_clock_cost() {
  std::vector<double> costs;
  for (int i = 0; i < 101; ++i) {
    double start = thread_us();
    costs.push_back(thread_us() - start);
  }
  return spread_of(costs).median;
}

// The thread's time inside `body`, without that of the clock.
template <class Body>
double thread_us_of(const Body& body, double clock_cost) {
  double start = thread_us();
  body();
  return std::max(thread_us() - start - clock_cost, 0.0);
}

}  // namespace graphsink::bench
