// The choice among ways to run the iterations of a loop, with times that the test makes up.
#include "device/cpu/loop_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/at.h"

namespace graphsink::loop_choice_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kShared = 0, kAlone = 1;
// Two threads halve the time of an iteration.
constexpr microseconds kSharedTime{60}, kAloneTime{100};
// What another program takes from the core of one of them.
constexpr milliseconds kQuantum{4};

class LoopChoiceTest : public ::testing::Test {
 protected:
  // Runs iterations for a time, and returns how often each way was taken.
  std::vector<int> run(std::chrono::nanoseconds time, const std::function<microseconds(int way, int i)>& iteration) {
    std::vector<int> taken(2);
    const LoopChoice::Time end = now_ + time;
    choice_.begin(now_);
    for (int i = 0; now_ < end; ++i) {
      const int way = choice_.next(now_);
      ++taken[at(way)];
      now_ += iteration(way, i);
    }
    choice_.end(now_);
    return taken;
  }
  static microseconds quiet(int way, int) { return way == kShared ? kSharedTime : kAloneTime; }
  // The thread that is alone moves to a core that is free.
  static microseconds busy(int way, int i) {
    return quiet(way, i) + (way == kShared && i % 20 == 0 ? kQuantum : microseconds(0));
  }

  LoopChoice choice_{2};
  LoopChoice::Time now_{};
};

TEST_F(LoopChoiceTest, SharesOnAQuietMachine) {
  const std::vector<int> taken = run(seconds(10), quiet);
  EXPECT_GT(taken[kShared], 50 * taken[kAlone]);
}

// One iteration of twenty is slow, so the medians of both ways say that sharing is faster.
TEST_F(LoopChoiceTest, SeesQuantaThatAFewIterationsLose) {
  const std::vector<int> taken = run(seconds(10), busy);
  EXPECT_GT(taken[kAlone], 50 * taken[kShared]);
}

// All of it within one run of the loop.
TEST_F(LoopChoiceTest, FollowsTheMachineWhileTheLoopRuns) {
  const std::vector<int> taken = run(seconds(30), [begin = now_, this](int way, int i) {
    return now_ - begin < seconds(10) || now_ - begin > seconds(20) ? quiet(way, i) : busy(way, i);
  });
  // Ten busy seconds are 100,000 iterations alone, and twenty quiet ones 333,333 that are shared.
  EXPECT_GT(taken[kAlone], 70'000);
  EXPECT_LT(taken[kAlone], 150'000);
  EXPECT_GT(taken[kShared], 250'000);
}

// Each of a few iterations, with pauses in between that do not count.
TEST_F(LoopChoiceTest, LearnsFromManyShortRunsOfTheLoop) {
  int alone = 0, shared = 0;
  for (int launch = 0; launch < 20'000; ++launch) {
    const std::vector<int> taken =
        run(milliseconds(1), [](int way, int) { return way == kShared ? kAloneTime : kSharedTime; });
    shared += taken[kShared];
    alone += taken[kAlone];
    now_ += seconds(launch % 3);
  }
  EXPECT_GT(alone, 50 * shared);
}

}  // namespace
}  // namespace graphsink::loop_choice_test
