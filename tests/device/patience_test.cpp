// How long threads look before they sleep.
#include "device/cpu/patience.h"

#include <gtest/gtest.h>

#include <thread>

namespace graphsink {
namespace {

// How often a wait looks that ends when it sleeps.
int looks(Patience& patience) {
  int count = 0;
  patience.wait(
      [&] {
        ++count;
        return false;
      },
      [] {});
  return count;
}

void wait_that_is_over(Patience& patience) {
  patience.wait([] { return true; }, [] {});
}

// The time is a lower bound, so that the wait is never shorter.
void lose_quantum(Patience& patience, bool is_expected = false) {
  patience.wait([] { return false; }, [] { std::this_thread::sleep_for(2 * Patience::kQuantum); }, is_expected);
}

TEST(Patience, IsShortAfterAQuantumWasLost) {
  Patience patience;
  wait_that_is_over(patience);
  EXPECT_FALSE(patience.is_short());
  EXPECT_EQ(patience.sleeps(), 0);
  lose_quantum(patience);
  EXPECT_EQ(patience.quanta_lost(), 1);
  EXPECT_EQ(patience.sleeps(), 1);
  EXPECT_TRUE(patience.is_short());
  EXPECT_EQ(looks(patience), Patience::kShortLooks);
}

TEST(Patience, IsLongAgainAfterAWhile) {
  Patience patience;
  lose_quantum(patience);
  for (int i = 0; i < Patience::kShortWaits; ++i) {
    EXPECT_TRUE(patience.is_short());
    wait_that_is_over(patience);
  }
  EXPECT_FALSE(patience.is_short());
  EXPECT_EQ(looks(patience), Patience::kLongLooks);
}

TEST(Patience, LearnsNothingFromAWaitThatIsExpectedToBeLong) {
  Patience patience;
  lose_quantum(patience, true);
  EXPECT_EQ(patience.quanta_lost(), 0);
  EXPECT_EQ(patience.sleeps(), 1);
  EXPECT_FALSE(patience.is_short());
}

}  // namespace
}  // namespace graphsink
