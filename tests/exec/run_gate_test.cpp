#include "exec/memory/run_gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "busy_time.h"

namespace graphsink::run_gate_test {
namespace {

constexpr std::chrono::milliseconds kStep{300};

// A step may take long, so who waits for its end must not keep a core busy.
TEST(RunGate, WhoWaitsForTheProgramSleeps) {
  RunGate gate;
  std::optional<RunGate::Inside> step(gate);
  double share = 1;
  std::thread other([&] { share = testing::busy_share([&] { gate.wait_until_outside(); }); });
  std::this_thread::sleep_for(kStep);
  step.reset();
  other.join();
  EXPECT_LT(share, 0.2);
}

TEST(RunGate, AProgramThatWaitsForAnotherUserSleeps) {
  RunGate gate;
  std::optional<RunGate::Held> held(gate);
  double share = 1;
  std::thread program([&] { share = testing::busy_share([&] { const RunGate::Inside inside(gate); }); });
  std::this_thread::sleep_for(kStep);
  held.reset();
  program.join();
  EXPECT_LT(share, 0.2);
}

}  // namespace
}  // namespace graphsink::run_gate_test
