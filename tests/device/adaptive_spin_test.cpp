// How long threads spin before they sleep.
#include "device/cpu/adaptive_spin.h"

#include <gtest/gtest.h>

#include <thread>

namespace graphsink::adaptive_spin_test {
namespace {

// How often a wait spins that ends when it sleeps.
int spins(AdaptiveSpin& spin) {
  int count = 0;
  spin.wait(
      [&] {
        ++count;
        return false;
      },
      [] {});
  return count;
}

void wait_that_is_over(AdaptiveSpin& spin) {
  spin.wait([] { return true; }, [] {});
}

// The time is a lower bound, so that the wait is never shorter.
void lose_quantum(AdaptiveSpin& spin, bool is_expected = false) {
  spin.wait([] { return false; }, [] { std::this_thread::sleep_for(2 * AdaptiveSpin::kQuantum); }, is_expected);
}

TEST(AdaptiveSpin, IsShortAfterAQuantumWasLost) {
  AdaptiveSpin spin;
  wait_that_is_over(spin);
  EXPECT_FALSE(spin.is_short());
  EXPECT_EQ(spin.sleeps(), 0);
  lose_quantum(spin);
  EXPECT_EQ(spin.quanta_lost(), 1);
  EXPECT_EQ(spin.sleeps(), 1);
  EXPECT_TRUE(spin.is_short());
  EXPECT_EQ(spins(spin), AdaptiveSpin::kShortSpins);
}

TEST(AdaptiveSpin, IsLongAgainAfterAWhile) {
  AdaptiveSpin spin;
  lose_quantum(spin);
  for (int i = 0; i < AdaptiveSpin::kShortWaits; ++i) {
    EXPECT_TRUE(spin.is_short());
    wait_that_is_over(spin);
  }
  EXPECT_FALSE(spin.is_short());
  EXPECT_EQ(spins(spin), AdaptiveSpin::kLongSpins);
}

TEST(AdaptiveSpin, LearnsNothingFromAWaitThatIsExpectedToBeLong) {
  AdaptiveSpin spin;
  lose_quantum(spin, true);
  EXPECT_EQ(spin.quanta_lost(), 0);
  EXPECT_EQ(spin.sleeps(), 1);
  EXPECT_FALSE(spin.is_short());
}

}  // namespace
}  // namespace graphsink::adaptive_spin_test
