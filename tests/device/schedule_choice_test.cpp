// The choice among ways to run a captured graph, with times that the test makes up.
#include "device/cpu/schedule_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/at.h"

namespace graphsink::schedule_choice_test {
namespace {

constexpr int kRound = ScheduleChoice::kBetweenRounds;
constexpr int kAtFirst = ScheduleChoice::kWarmUp + 2 * ScheduleChoice::kTurns * ScheduleChoice::kTurn;  // two rivals

// Runs launches, of which `time` says how long they take, and returns how often each way was taken.
std::vector<int> run(ScheduleChoice& choice, int ways, int launches, const std::function<double(int, int)>& time) {
  std::vector<int> taken(at(ways));
  for (int launch = 0; launch < launches; ++launch) {
    const int way = choice.next();
    ++taken[at(way)];
    choice.took(time(way, launch));
  }
  return taken;
}

TEST(ScheduleChoice, TakesTheFastestWaySoon) {
  for (int fastest = 0; fastest < 3; ++fastest) {
    ScheduleChoice choice(3);
    auto time = [&](int way, int) { return way == fastest ? 1.0 : 2.0; };
    run(choice, 3, kAtFirst, time);
    EXPECT_EQ(run(choice, 3, 500, time)[at(fastest)], 500) << fastest;
  }
}

TEST(ScheduleChoice, KeepsAWayThatIsAboutAsFast) {
  ScheduleChoice choice(2);
  run(choice, 2, kAtFirst, [](int way, int) { return way == 0 ? 1.0 : 0.96; });
  EXPECT_EQ(choice.next(), 0);
}

TEST(ScheduleChoice, FollowsTheMachine) {
  ScheduleChoice choice(2);
  run(choice, 2, kAtFirst, [](int way, int) { return way == 0 ? 1.0 : 2.0; });
  EXPECT_EQ(choice.next(), 0);
  run(choice, 2, kRound + kAtFirst, [](int way, int) { return way == 0 ? 4.0 : 2.0; });
  EXPECT_EQ(choice.next(), 1);
  run(choice, 2, kRound + kAtFirst, [](int way, int) { return way == 0 ? 1.0 : 2.0; });
  EXPECT_EQ(choice.next(), 0);
}

// Long before the next round is due.
TEST(ScheduleChoice, NoticesThatItBecameSlow) {
  ScheduleChoice choice(2);
  run(choice, 2, 300, [](int way, int) { return way == 0 ? 1.0 : 1.5; });
  EXPECT_EQ(choice.next(), 0);
  run(choice, 2, kAtFirst, [](int way, int) { return way == 0 ? 2.0 : 1.5; });
  EXPECT_EQ(choice.next(), 1);
}

// That launches become longer, whatever the way, takes trials now and then at most.
TEST(ScheduleChoice, LaunchesOfAnyLengthAreNoReasonForManyTrials) {
  ScheduleChoice choice(2);
  auto time = [](int way, int launch) { return (way == 0 ? 1.0 : 2.0) * (launch / 10 % 2 == 0 ? 1 : 5); };
  run(choice, 2, kAtFirst, time);
  const std::vector<int> taken = run(choice, 2, 10 * kRound, time);
  EXPECT_EQ(choice.next(), 0);
  EXPECT_LT(taken[1], 10 * kRound / 20);
}

TEST(ScheduleChoice, SeldomTakesASlowWay) {
  ScheduleChoice choice(3);
  const int launches = 20 * kRound;
  EXPECT_LT(run(choice, 3, launches, [](int way, int) { return 1.0 + way; })[0], launches);
  ScheduleChoice again(3);
  EXPECT_GT(run(again, 3, launches, [](int way, int) { return 1.0 + way; })[0], 98 * launches / 100);
}

// A launch that is interrupted is one of several.
TEST(ScheduleChoice, ASlowLaunchNowAndThenChangesNothing) {
  ScheduleChoice choice(2);
  auto time = [](int way, int launch) { return (way == 0 ? 1.0 : 1.2) * (launch % 7 == 0 ? 50 : 1); };
  run(choice, 2, kAtFirst, time);
  int slow = 0;
  for (int round = 0; round < 20; ++round) {
    run(choice, 2, kRound, time);
    slow += choice.next() == 1;
  }
  EXPECT_LE(slow, 1);
}

// As of a loop that runs ever longer: both of a pair take about as long.
TEST(ScheduleChoice, ComparesNeighbours) {
  ScheduleChoice choice(2);
  auto time = [](int way, int launch) { return (way == 0 ? 1.0 : 1.2) * (1 + 0.02 * launch); };
  run(choice, 2, kAtFirst, time);
  EXPECT_EQ(choice.next(), 0);
}

// A thread that has slept while it was not needed, for example.
TEST(ScheduleChoice, TheFirstLaunchOfATurnDoesNotCount) {
  ScheduleChoice choice(2);
  int before = -1;
  run(choice, 2, kAtFirst, [&](int way, int) {
    const bool is_first = std::exchange(before, way) != way;
    return way == 1 ? (is_first ? 10.0 : 0.8) : 1.0;
  });
  EXPECT_EQ(choice.next(), 1);
}

TEST(ScheduleChoice, IsTheSameUntilTheLaunchHasEnded) {
  ScheduleChoice choice(2);
  run(choice, 2, ScheduleChoice::kWarmUp + ScheduleChoice::kTurn, [](int, int) { return 1.0; });
  EXPECT_EQ(choice.next(), 1);
  EXPECT_EQ(choice.next(), 1);
}

}  // namespace
}  // namespace graphsink::schedule_choice_test
