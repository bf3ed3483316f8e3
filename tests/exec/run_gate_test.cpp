#include "exec/run_gate.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <optional>
#include <thread>

namespace graphsink {
namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A step may take long, so who waits for its end must not keep a core busy.
TEST(RunGate, WhoWaitsUsesNoProcessorTime) {
  RunGate gate;
  std::optional<RunGate::Inside> step(gate);
  double busy = 0, waited = 0;
  std::thread other([&] {
    double begin = seconds_of(CLOCK_MONOTONIC), begin_busy = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    gate.wait_until_outside();
    waited = seconds_of(CLOCK_MONOTONIC) - begin;
    busy = seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin_busy;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  step.reset();
  other.join();
  EXPECT_LE(busy, 0.01 + 0.1 * waited);
}

}  // namespace
}  // namespace graphsink
