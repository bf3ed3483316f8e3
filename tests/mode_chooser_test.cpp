// ModeChooser on a fake clock.
#include "exec/mode_chooser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <random>

namespace graphsink {
namespace {

using Side = ModeChooser::Side;
using Turn = ModeChooser::Turn;

// A machine on which a step takes what `ns` says. The host runs `ahead` steps ahead of it.
class Machine {
 public:
  std::function<double(Side)> ns;
  std::size_t ahead = 0;
  std::int64_t per_run = 1;
  double host_ns[2] = {0, 0};  // of the thread, for issuing a step of a side
  std::function<bool()> commits = [] { return true; };
  ModeChooser chooser;
  double worst_share = 0;  // of the trials in the time of all steps, at any moment after the first step
  std::int64_t steps[2] = {0, 0};
  std::int64_t compared = 0;  // steps that were part of comparisons

  void run(std::int64_t count) {
    for (std::int64_t end = done_ + count; done_ < end;) {
      for (std::int64_t left = per_run; left > 0;) {
        Turn turn = chooser.next(left);
        ASSERT_GE(turn.steps, 1);
        ASSERT_LE(turn.steps, left);
        EXPECT_EQ(ModeChooser::side_of(turn.tag), turn.side);
        left -= turn.steps;
        done_ += turn.steps;
        steps[at(turn.side)] += turn.steps;
        if (turn.is_compared) chooser.issued(turn, host_ns[at(turn.side)] * static_cast<double>(turn.steps));
        for (std::int64_t i = 0; i < turn.steps; ++i) issued_.push_back(turn);
        while (issued_.size() > ahead) complete();
      }
    }
  }
  double share_of(Side side) const {
    return static_cast<double>(steps[at(side)]) / static_cast<double>(steps[0] + steps[1]);
  }

 private:
  static std::size_t at(Side side) { return static_cast<std::size_t>(side); }
  void complete() {
    Turn turn = issued_.front();
    issued_.pop_front();
    compared += turn.is_compared;
    chooser.completed(turn.tag, ns(turn.side), commits());
    AutomaticReport report = chooser.report();
    worst_share = std::max(worst_share, report.trial_seconds / report.seconds);
  }

  std::int64_t done_ = 0;
  std::deque<Turn> issued_;
};

auto constant(double sunk, double interactive) {
  return [=](Side side) { return side == Side::sunk ? sunk : interactive; };
}

// Each step takes its mean times exp(sigma * normal).
auto noisy(double sunk, double interactive, double sigma, unsigned seed) {
  return [=, random = std::mt19937(seed), normal = std::normal_distribution<double>()](Side side) mutable {
    return (side == Side::sunk ? sunk : interactive) * std::exp(sigma * normal(random));
  };
}

TEST(ModeChooser, BeginsInteractivelyAndSinks) {
  ModeChooser chooser;
  Turn first = chooser.next(10);
  EXPECT_EQ(first.side, Side::interactive);
  EXPECT_EQ(first.steps, 1);
  Turn rest = chooser.next(9);
  EXPECT_EQ(rest.side, Side::sunk);
  EXPECT_EQ(rest.steps, 9) << "one launch";
  EXPECT_NE(rest.tag, first.tag);
}

TEST(ModeChooser, TakesTheFasterSide) {
  for (double interactive : {0.5, 0.9, 1.1, 2.0}) {
    SCOPED_TRACE(interactive);
    Machine machine;
    machine.ns = noisy(100, 100 * interactive, 0.05, 1);
    machine.run(100'000);
    AutomaticReport report = machine.chooser.report();
    EXPECT_EQ(report.sinks, interactive > 1);
    EXPECT_EQ(report.switches, interactive > 1 ? 0 : 1);
    EXPECT_GT(machine.share_of(interactive > 1 ? Side::sunk : Side::interactive), 0.8);
    EXPECT_LT(report.low, interactive);
    EXPECT_GT(report.high, interactive);
    EXPECT_NEAR(report.ratio, interactive, 0.05 * interactive);
  }
}

TEST(ModeChooser, OnlyTheComparedStepsCount) {
  Machine machine;
  machine.ns = constant(100, 50);
  machine.run(400 * 4 + 200);  // the trials of a comparison are 8 steps of 50: 2 % of 200 steps of 100, with the first
  EXPECT_EQ(machine.chooser.report().switches, 1);
  EXPECT_DOUBLE_EQ(machine.chooser.report().ratio, 0.5);
}

// At every moment, from the first step on.
TEST(ModeChooser, TrialsKeepToTheirShare) {
  for (double interactive : {10.0, 1.0, 0.1}) {
    for (std::size_t ahead : {0, 1, 7, 100}) {
      for (std::int64_t per_run : {1, 3, 16, 1000}) {
        Machine machine;
        machine.ns = constant(100, 100 * interactive);
        machine.ahead = ahead;
        machine.per_run = per_run;
        machine.run(200'000);
        AutomaticReport report = machine.chooser.report();
        SCOPED_TRACE(to_string(report));
        EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
        EXPECT_EQ(report.sinks, interactive >= 1) << ahead << " ahead, " << per_run << " per run";
        EXPECT_GT(report.comparisons, 3);
      }
    }
  }
}

// A trial that began in short runs does not become a whole long one.
TEST(ModeChooser, LongRunsAreCutForTrials) {
  Machine machine;
  machine.ns = constant(100, 50);
  for (int i = 0; i < 400; ++i) {
    machine.per_run = 1;
    machine.run(101);
    machine.per_run = 1000;
    machine.run(1000);
  }
  EXPECT_FALSE(machine.chooser.report().sinks);
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
}

// A first step that took a thousand times too long delays the first comparison, and no other.
TEST(ModeChooser, AColdStartIsForgotten) {
  Machine machine;
  bool is_first = true;
  machine.ns = [&](Side) { return std::exchange(is_first, false) ? 100'000 : 100; };
  machine.run(98'000);
  EXPECT_EQ(machine.steps[1], 1) << "two such trials are 2 % of what a hundred take";
  machine.run(2'000);
  EXPECT_GT(machine.chooser.report().comparisons, 50) << "what was saved till then is spent";
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare);
}

// A trial that is held up once is paid for, but not expected again.
TEST(ModeChooser, AHoldUpIsNotExpectedAgain) {
  Machine machine;
  double hold_up = 0;
  machine.ns = [&](Side side) { return side == Side::interactive ? 100 + std::exchange(hold_up, 0) : 100; };
  machine.run(1000);
  hold_up = 10'000;
  machine.run(410);  // a comparison
  EXPECT_EQ(hold_up, 0);
  std::int64_t before = machine.chooser.report().comparisons;
  machine.run(5'500);
  EXPECT_GT(machine.chooser.report().comparisons, before);
}

// A step that takes longer than expected is paid for afterwards: no comparison begins before that.
TEST(ModeChooser, WhatATrialTookTooLongIsPaidFor) {
  Machine machine;
  double interactive = 100;
  machine.ns = [&](Side side) { return side == Side::sunk ? 100 : interactive; };
  machine.run(1000);
  std::int64_t before = machine.steps[1];
  EXPECT_GT(before, 8);
  interactive = 1000;
  machine.run(1000);
  std::int64_t dear = machine.steps[1];
  EXPECT_EQ(dear - before, 8);
  EXPECT_GT(machine.worst_share, ModeChooser::kTrialShare);
  machine.run(5000);
  EXPECT_EQ(machine.steps[1], dear) << "another would take 8000 of 700000";
  machine.run(5000);
  EXPECT_EQ(machine.steps[1], dear + 8);
  EXPECT_LE(machine.chooser.report().trial_seconds, ModeChooser::kTrialShare * machine.chooser.report().seconds);
}

TEST(ModeChooser, NoiseIsNoDifference) {
  int switches = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Machine machine;
    machine.ns = noisy(100, 100, 0.2, seed);
    machine.run(100'000);
    switches += static_cast<int>(machine.chooser.report().switches);
    EXPECT_GT(machine.chooser.report().comparisons, 200);
  }
  EXPECT_LE(switches, 1) << "5,000 comparisons";
}

TEST(ModeChooser, GoesBackWhenTheMachineChanges) {
  Machine machine;
  machine.ns = constant(100, 50);
  machine.run(20'000);
  EXPECT_FALSE(machine.chooser.report().sinks);
  machine.ns = constant(100, 200);
  machine.run(40'000);
  EXPECT_TRUE(machine.chooser.report().sinks);
  EXPECT_EQ(machine.chooser.report().switches, 2);
}

// A machine that gets slower all the time: both sides in the same way.
TEST(ModeChooser, DriftIsNoDifference) {
  Machine machine;
  double ns = 100;
  machine.ns = [&](Side) { return ns *= 1.0002; };
  machine.run(40'000);
  AutomaticReport report = machine.chooser.report();
  EXPECT_EQ(report.switches, 0);
  EXPECT_GT(report.comparisons, 60);
  EXPECT_NEAR(report.ratio, 1, 1e-5);
  EXPECT_LT(report.high - report.low, 1e-4) << "it cancels in each comparison";
}

// Whatever comes first takes longer: each side is first as often.
TEST(ModeChooser, PlaceInTheOrderIsNoDifference) {
  Machine machine;
  machine.ns = [&](Side) {
    constexpr std::int64_t kSteps = 4 * ModeChooser::kBlockSteps;
    return (machine.compared - 1) % kSteps < ModeChooser::kBlockSteps ? 130 : 100;
  };
  machine.run(100'000);
  EXPECT_EQ(machine.chooser.report().switches, 0);
  EXPECT_NEAR(machine.chooser.report().ratio, 1, 0.01);
}

// The first step after a change of sides finds cold caches.
TEST(ModeChooser, ChangingSidesCostsNothing) {
  Machine machine;
  Side last = Side::sunk;
  machine.ns = [&](Side side) {
    return (std::exchange(last, side) == side ? 1 : 50) * (side == Side::sunk ? 100 : 80);
  };
  machine.run(100'000);
  EXPECT_FALSE(machine.chooser.report().sinks);
  EXPECT_DOUBLE_EQ(machine.chooser.report().ratio, 0.8);
}

// Far behind the host, the device works off what was issued long ago: interactive steps look faster than they can be.
TEST(ModeChooser, IssuingCountsWhereItTakesLonger) {
  Machine machine;
  machine.ns = constant(100, 80);
  machine.host_ns[1] = 150;
  machine.run(100'000);
  EXPECT_TRUE(machine.chooser.report().sinks);
  AutomaticReport report = machine.chooser.report();
  EXPECT_DOUBLE_EQ(report.ratio, 1.5);
  EXPECT_NEAR(report.trial_seconds, static_cast<double>(2 + 8 * report.comparisons) * 150e-9, 1e-12);
  EXPECT_LE(report.trial_seconds, ModeChooser::kTrialShare * report.seconds);
}

TEST(ModeChooser, FailedAndDroppedStepsDecideNothing) {
  Machine failing;
  failing.ns = constant(100, 50);
  failing.commits = [i = 0]() mutable { return ++i % 10 != 0; };
  failing.run(100'000);
  EXPECT_TRUE(failing.chooser.report().sinks);
  EXPECT_EQ(failing.chooser.report().comparisons, 0);
  EXPECT_LE(failing.worst_share, ModeChooser::kTrialShare);

  Machine dropping;
  dropping.ns = constant(100, 50);
  for (int i = 0; i < 10'000; ++i) {
    dropping.run(10);
    dropping.chooser.drop();
  }
  EXPECT_EQ(dropping.chooser.report().comparisons, 0);
}

// The ring holds the last steps only.
TEST(ModeChooser, LostTimesAreNoObstacle) {
  ModeChooser chooser;
  for (int run = 0; run < 2000; ++run) {
    for (std::int64_t left = 100; left > 0;) {
      Turn turn = chooser.next(left);
      if (turn.is_compared) chooser.issued(turn, 0);
      left -= turn.steps;
      for (std::int64_t i = std::max<std::int64_t>(0, turn.steps - 3); i < turn.steps; ++i)
        chooser.completed(turn.tag, turn.side == Side::sunk ? 100 : 50, true);
    }
  }
  EXPECT_FALSE(chooser.report().sinks);
}

// A comparison that lacks a block is none.
TEST(ModeChooser, LostBlocksDecideNothing) {
  ModeChooser chooser;
  for (int run = 0, compared = 0; run < 20'000; ++run) {
    Turn turn = chooser.next(ModeChooser::kBlockSteps);
    if (turn.is_compared) chooser.issued(turn, 0);
    if (turn.is_compared && ++compared % 5 == 0) continue;
    for (std::int64_t i = 0; i < turn.steps; ++i) chooser.completed(turn.tag, 100, true);
  }
  EXPECT_EQ(chooser.report().switches, 0);
  EXPECT_DOUBLE_EQ(chooser.report().ratio, 1);
}

TEST(ModeChooser, ReportIsASentence) {
  Machine machine;
  EXPECT_EQ(to_string(machine.chooser.report()), "automatic: no step yet");
  machine.ns = constant(100, 150);
  machine.run(2);
  EXPECT_EQ(to_string(machine.chooser.report()),
            "automatic: sinks; 1 steps sunk, 1 interactive; too few comparisons yet (0)");
  machine.run(9998);
  EXPECT_EQ(to_string(machine.chooser.report()).find("automatic: sinks; "), 0u);
  EXPECT_NE(
      to_string(machine.chooser.report()).find("; an interactive step takes 1.500 (1.500 to 1.500) times as long"),
      std::string::npos)
      << to_string(machine.chooser.report());
}

}  // namespace
}  // namespace graphsink
