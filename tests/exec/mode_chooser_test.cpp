// Tests ModeChooser with a fake clock.
#include "exec/choose/mode_chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

namespace graphsink::mode_chooser_test {
namespace {

using Turn = ModeChooser::Turn;

std::size_t at(Mode mode) {
  return static_cast<std::size_t>(std::find(std::begin(kAllModes), std::end(kAllModes), mode) - std::begin(kAllModes));
}

// A machine on which each step takes the time that `ns` returns. The host runs `ahead` steps ahead of the device.
class Machine {
 public:
  explicit Machine(const std::vector<Mode>& candidates = {sink, interactive}) : chooser(candidates) {}

  std::function<double(Mode)> ns;
  std::size_t ahead = 0;
  std::int64_t per_run = 1;
  std::array<double, std::size(kAllModes)> host_ns{};  // the time of the thread to issue a step
  std::function<bool()> commits = [] { return true; };
  ModeChooser chooser;
  double worst_share = 0;  // the largest share of trials in the time of all steps, at any moment after the first step
  std::array<std::int64_t, std::size(kAllModes)> steps{};
  std::int64_t compared = 0;  // steps that were part of comparisons

  void run(std::int64_t count) {
    for (std::int64_t end = done_ + count; done_ < end;) {
      for (std::int64_t left = per_run; left > 0;) {
        Turn turn = chooser.next(left);
        ASSERT_GE(turn.steps, 1);
        ASSERT_LE(turn.steps, left);
        EXPECT_EQ(chooser.mode_of(turn.tag), turn.mode);
        left -= turn.steps;
        done_ += turn.steps;
        steps[at(turn.mode)] += turn.steps;
        if (turn.is_compared) chooser.issued(turn, host_ns[at(turn.mode)] * static_cast<double>(turn.steps));
        for (std::int64_t i = 0; i < turn.steps; ++i) issued_.push_back(turn);
        while (issued_.size() > ahead) complete();
      }
    }
  }
  Mode chosen() const { return chooser.report().chosen; }
  double share_of(Mode mode) const { return static_cast<double>(steps[at(mode)]) / static_cast<double>(done_); }
  // Returns the time of an interactive step divided by that of a sunk one.
  AutomaticReport::Candidate ratio() const {
    AutomaticReport report = chooser.report();
    if (report.chosen == sink) return report.of(interactive);
    AutomaticReport::Candidate sunk = report.of(sink);
    return {interactive, 0, 1 / sunk.ratio, 1 / sunk.high, 1 / sunk.low};
  }

 private:
  void complete() {
    Turn turn = issued_.front();
    issued_.pop_front();
    compared += turn.is_compared;
    chooser.completed(turn.tag, ns(turn.mode), commits());
    AutomaticReport report = chooser.report();
    worst_share = std::max(worst_share, report.trial_seconds / report.seconds);
  }

  std::int64_t done_ = 0;
  std::deque<Turn> issued_;
};

auto constant(double sunk, double interactively) {
  return [=](Mode mode) { return mode == sink ? sunk : interactively; };
}

// Each step takes its mean time multiplied by exp(sigma * normal).
auto noisy(double sunk, double interactively, double sigma, unsigned seed) {
  return [=, random = std::mt19937(seed), normal = std::normal_distribution<double>()](Mode mode) mutable {
    return (mode == sink ? sunk : interactively) * std::exp(sigma * normal(random));
  };
}

TEST(ModeChooser, BeginsInteractivelyAndSinks) {
  ModeChooser chooser({sink, interactive});
  Turn first = chooser.next(10);
  EXPECT_EQ(first.mode, interactive);
  EXPECT_EQ(first.steps, 1);
  Turn rest = chooser.next(9);
  EXPECT_EQ(rest.mode, sink);
  EXPECT_EQ(rest.steps, 9) << "one launch";
  EXPECT_NE(rest.tag, first.tag);
}

TEST(ModeChooser, TakesTheFasterSide) {
  for (double times : {0.5, 0.9, 1.1, 2.0}) {
    SCOPED_TRACE(times);
    Machine machine;
    machine.ns = noisy(100, 100 * times, 0.05, 1);
    machine.run(100'000);
    Mode faster = times > 1 ? sink : interactive;
    EXPECT_EQ(machine.chosen(), faster);
    EXPECT_EQ(machine.chooser.report().switches, times > 1 ? 0 : 1);
    EXPECT_GT(machine.share_of(faster), 0.8);
    EXPECT_LT(machine.ratio().low, times);
    EXPECT_GT(machine.ratio().high, times);
    EXPECT_NEAR(machine.ratio().ratio, times, 0.05 * times);
  }
}

TEST(ModeChooser, OnlyTheComparedStepsCount) {
  Machine machine;
  machine.ns = constant(100, 50);
  // A comparison has 8 trial steps of 50, which are 1 % of 400 steps of 100, including the first step.
  machine.run(800 * 4 + 400);
  EXPECT_EQ(machine.chooser.report().switches, 1);
  EXPECT_DOUBLE_EQ(machine.ratio().ratio, 0.5);
}

// The share is checked at every moment, from the first step on.
TEST(ModeChooser, TrialsKeepToTheirShare) {
  for (double times : {10.0, 1.0, 0.1}) {
    for (std::size_t ahead : {0, 1, 7, 100}) {
      for (std::int64_t per_run : {1, 3, 16, 1000}) {
        Machine machine;
        machine.ns = constant(100, 100 * times);
        machine.ahead = ahead;
        machine.per_run = per_run;
        machine.run(200'000);
        AutomaticReport report = machine.chooser.report();
        SCOPED_TRACE(to_string(report));
        EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
        EXPECT_EQ(report.chosen, times >= 1 ? sink : interactive) << ahead << " ahead, " << per_run << " per run";
        EXPECT_GT(report.comparisons, 3);
      }
    }
  }
}

// A trial that began in short runs must not extend over a whole long run.
TEST(ModeChooser, LongRunsAreCutForTrials) {
  Machine machine;
  machine.ns = constant(100, 50);
  for (int i = 0; i < 400; ++i) {
    machine.per_run = 1;
    machine.run(101);
    machine.per_run = 1000;
    machine.run(1000);
  }
  EXPECT_EQ(machine.chosen(), interactive);
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
}

// The first step takes a thousand times too long. This delays the first comparison, but no other.
TEST(ModeChooser, AColdStartIsForgotten) {
  Machine machine;
  bool is_first = true;
  machine.ns = [&](Mode) { return std::exchange(is_first, false) ? 100'000 : 100; };
  machine.run(198'000);
  EXPECT_EQ(machine.steps[at(interactive)], 1) << "two such trials are 1 % of what two hundred take";
  machine.run(2'000);
  EXPECT_GT(machine.chooser.report().comparisons, 50) << "what was saved till then is spent";
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare);
}

// If a trial is held up once, its time counts, but later trials are not expected to take as long.
TEST(ModeChooser, AHoldUpIsNotExpectedAgain) {
  Machine machine;
  double hold_up = 0;
  machine.ns = [&](Mode mode) { return mode == interactive ? 100 + std::exchange(hold_up, 0) : 100; };
  machine.run(1000);
  hold_up = 10'000;
  machine.run(820);  // a comparison
  EXPECT_EQ(hold_up, 0);
  std::int64_t before = machine.chooser.report().comparisons;
  machine.run(11'000);
  EXPECT_GT(machine.chooser.report().comparisons, before);
}

// If a trial takes longer than expected, no comparison begins until the extra time is paid for.
TEST(ModeChooser, WhatATrialTookTooLongIsPaidFor) {
  Machine machine;
  double trial = 100;
  machine.ns = [&](Mode mode) { return mode == sink ? 100 : trial; };
  machine.run(2000);
  std::int64_t before = machine.steps[at(interactive)];
  EXPECT_GT(before, 8);
  trial = 1000;
  machine.run(2000);
  std::int64_t dear = machine.steps[at(interactive)];
  EXPECT_EQ(dear - before, 8);
  EXPECT_GT(machine.worst_share, ModeChooser::kTrialShare);
  machine.run(10'000);
  EXPECT_EQ(machine.steps[at(interactive)], dear) << "another would take 8000 of 1400000";
  machine.run(10'000);
  EXPECT_EQ(machine.steps[at(interactive)], dear + 8);
  EXPECT_LE(machine.chooser.report().trial_seconds, ModeChooser::kTrialShare * machine.chooser.report().seconds);
}

TEST(ModeChooser, NoiseIsNoDifference) {
  int switches = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Machine machine;
    machine.ns = noisy(100, 100, 0.2, seed);
    machine.run(200'000);
    switches += static_cast<int>(machine.chooser.report().switches);
    EXPECT_GT(machine.chooser.report().comparisons, 200);
  }
  EXPECT_LE(switches, 1) << "5,000 comparisons";
}

TEST(ModeChooser, GoesBackWhenTheMachineChanges) {
  Machine machine;
  machine.ns = constant(100, 50);
  machine.run(20'000);
  EXPECT_EQ(machine.chosen(), interactive);
  machine.ns = constant(100, 200);
  machine.run(40'000);
  EXPECT_EQ(machine.chosen(), sink);
  EXPECT_EQ(machine.chooser.report().switches, 2);
}

// The machine gets slower all the time, in all modes alike.
TEST(ModeChooser, DriftIsNoDifference) {
  Machine machine;
  double ns = 100;
  machine.ns = [&](Mode) { return ns *= 1.0001; };
  machine.run(80'000);
  AutomaticReport report = machine.chooser.report();
  EXPECT_EQ(report.switches, 0);
  EXPECT_GT(report.comparisons, 60);
  EXPECT_NEAR(machine.ratio().ratio, 1, 1e-5);
  EXPECT_LT(machine.ratio().high - machine.ratio().low, 1e-4) << "it cancels in each comparison";
}

// The first block of a comparison takes longer. Each mode comes first equally often.
TEST(ModeChooser, PlaceInTheOrderIsNoDifference) {
  Machine machine;
  machine.ns = [&](Mode) {
    constexpr std::int64_t kSteps = 4 * ModeChooser::kBlockSteps;
    return (machine.compared - 1) % kSteps < ModeChooser::kBlockSteps ? 130 : 100;
  };
  machine.run(100'000);
  EXPECT_EQ(machine.chooser.report().switches, 0);
  EXPECT_NEAR(machine.ratio().ratio, 1, 0.01);
}

// The first step after a change of modes finds cold caches.
TEST(ModeChooser, ChangingSidesCostsNothing) {
  Machine machine;
  Mode last = sink;
  machine.ns = [&](Mode mode) { return (std::exchange(last, mode) == mode ? 1 : 50) * (mode == sink ? 100 : 80); };
  machine.run(100'000);
  EXPECT_EQ(machine.chosen(), interactive);
  EXPECT_DOUBLE_EQ(machine.ratio().ratio, 0.8);
}

// If the device is far behind the host, it processes what was issued long before. Interactive steps then seem faster
// than they can be.
TEST(ModeChooser, IssuingCountsWhereItTakesLonger) {
  Machine machine;
  machine.ns = constant(100, 80);
  machine.host_ns[at(interactive)] = 150;
  machine.run(100'000);
  EXPECT_EQ(machine.chosen(), sink);
  AutomaticReport report = machine.chooser.report();
  EXPECT_DOUBLE_EQ(machine.ratio().ratio, 1.5);
  EXPECT_NEAR(report.trial_seconds, static_cast<double>(2 + 8 * report.comparisons) * 150e-9, 1e-12);
  EXPECT_LE(report.trial_seconds, ModeChooser::kTrialShare * report.seconds);
}

TEST(ModeChooser, FailedAndDroppedStepsDecideNothing) {
  Machine failing;
  failing.ns = constant(100, 50);
  failing.commits = [i = 0]() mutable { return ++i % 10 != 0; };
  failing.run(100'000);
  EXPECT_EQ(failing.chosen(), sink);
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

// Only the last times of each launch arrive, because the ring holds only the last steps.
TEST(ModeChooser, LostTimesAreNoObstacle) {
  ModeChooser chooser({sink, interactive});
  for (int run = 0; run < 2000; ++run) {
    for (std::int64_t left = 100; left > 0;) {
      Turn turn = chooser.next(left);
      if (turn.is_compared) chooser.issued(turn, 0);
      left -= turn.steps;
      for (std::int64_t i = std::max<std::int64_t>(0, turn.steps - 3); i < turn.steps; ++i)
        chooser.completed(turn.tag, turn.mode == sink ? 100 : 50, true);
    }
  }
  EXPECT_EQ(chooser.report().chosen, interactive);
}

// A comparison in which a block is missing does not count.
TEST(ModeChooser, LostBlocksDecideNothing) {
  ModeChooser chooser({sink, interactive});
  for (int run = 0, compared = 0; run < 20'000; ++run) {
    Turn turn = chooser.next(ModeChooser::kBlockSteps);
    if (turn.is_compared) chooser.issued(turn, 0);
    if (turn.is_compared && ++compared % 5 == 0) continue;
    for (std::int64_t i = 0; i < turn.steps; ++i) chooser.completed(turn.tag, 100, true);
  }
  EXPECT_EQ(chooser.report().switches, 0);
  EXPECT_DOUBLE_EQ(chooser.report().of(interactive).ratio, 1);
}

// Each of three modes is the fastest in turn.
TEST(ModeChooser, TakesTheFastestOfSeveral) {
  Machine machine({sink, split_sink, interactive});
  std::array<double, std::size(kAllModes)> ns{};
  machine.ns = [&](Mode mode) { return ns[at(mode)]; };
  auto runs_in = [&](Mode fastest, Mode second) {
    for (Mode mode : {sink, split_sink, interactive}) ns[at(mode)] = mode == fastest ? 50 : mode == second ? 70 : 100;
    machine.run(80'000);
    EXPECT_EQ(machine.chosen(), fastest) << to_string(machine.chooser.report());
    EXPECT_DOUBLE_EQ(machine.chooser.report().of(second).ratio, 1.4);
    EXPECT_EQ(machine.chooser.report().of(fastest).ratio, 0);
  };
  runs_in(split_sink, sink);
  runs_in(interactive, sink);
  runs_in(sink, interactive);
  runs_in(split_sink, interactive);
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
}

// A slow mode must not use up the trials of the other modes.
TEST(ModeChooser, EachModeHasItsPartOfTheTrials) {
  Machine machine({sink, split_sink, interactive});
  machine.ns = [](Mode mode) { return mode == interactive ? 10'000 : 100; };
  machine.run(200'000);
  EXPECT_GT(machine.steps[at(split_sink)], 900)
      << "half a percent of the time; the first step took as long as a hundred";
  EXPECT_LE(machine.steps[at(split_sink)], 1'010);
  EXPECT_LE(machine.steps[at(interactive)], 11);
  EXPECT_LE(machine.worst_share, ModeChooser::kTrialShare * (1 + 1e-9));
}

// Only sink runs many steps in one launch. In other modes, the first few steps of a long run are enough for a trial.
TEST(ModeChooser, LongRunsDoNotMakeTrialsLonger) {
  Machine machine({sink, split_sink, interactive});
  machine.per_run = 1000;
  machine.ns = [](Mode mode) { return mode == split_sink ? 50 : 100; };
  machine.run(20'000);
  EXPECT_EQ(machine.chosen(), split_sink) << to_string(machine.chooser.report());
}

// If the times of a trial never arrive, the trial counts with its expected time.
TEST(ModeChooser, DroppedTrialsKeepToTheirShare) {
  ModeChooser chooser({sink, split_sink, interactive});
  std::int64_t dropped = 0;
  for (int step = 0; step < 100'000; ++step) {
    Turn turn = chooser.next(1);
    if (turn.mode != split_sink) {
      chooser.completed(turn.tag, 100, true);
      continue;
    }
    chooser.drop();
    ++dropped;
  }
  EXPECT_GT(dropped, 100);
  EXPECT_LE(dropped, 1'010);
  EXPECT_EQ(chooser.report().chosen, sink);
}

TEST(ModeChooser, ReportIsASentence) {
  Machine machine;
  EXPECT_EQ(to_string(machine.chooser.report()), "automatic: no step yet");
  machine.ns = constant(100, 150);
  machine.run(2);
  EXPECT_EQ(to_string(machine.chooser.report()),
            "automatic: sink; steps: 1 sink, 1 interactive-serial; too few comparisons yet (0)");
  machine.run(9998);
  std::string text = to_string(machine.chooser.report());
  EXPECT_EQ(text.find("automatic: sink; steps: "), 0u) << text;
  EXPECT_NE(text.find("; times as long as it take: interactive-serial 1.500 (1.500 to 1.500); "), std::string::npos)
      << text;
}

}  // namespace
}  // namespace graphsink::mode_chooser_test
