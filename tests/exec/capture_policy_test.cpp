// Tests CapturePolicy with a fake clock.
#include "exec/capture/capture_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>

namespace graphsink::capture_policy_test {
namespace {

constexpr std::int64_t kNever = -1;

// Returns after how many steps a mode that sinks captures.
std::int64_t steps_before_capture(const CapturePolicy& policy) {
  ShapeTimes shape;
  while (policy.steps_to_wait(shape) > 0) ++shape.interactive_steps;
  return shape.interactive_steps;
}

// The same for `automatic`; kNever: not within 1,000 steps.
std::int64_t steps_before_automatic_captures(const CapturePolicy& policy) {
  ShapeTimes shape;
  while (!policy.may_capture(shape))
    if (++shape.interactive_steps > 1000) return kNever;
  return shape.interactive_steps;
}

// A policy that has seen one shape: what a capture, a step op by op and a sunk step take.
CapturePolicy learned(double capture, double interactive, double sunk) {
  CapturePolicy policy(true, 0);
  ShapeTimes shape;
  auto steps = [&](bool is_sunk, double ns) {
    for (int i = 0; i < ShapeTimes::Kind::kWarmUp; ++i) policy.completed(shape, is_sunk, 10 * ns);  // do not count
    policy.completed(shape, is_sunk, ns);
  };
  steps(false, interactive);
  policy.captured(capture);
  steps(true, sunk);
  return policy;
}

TEST(CapturePolicy, FixedShapesAreCapturedAfterTheFirstStep) {
  CapturePolicy policy(false, 5);
  EXPECT_EQ(steps_before_capture(policy), 1);
  EXPECT_EQ(steps_before_automatic_captures(policy), 1);
  EXPECT_FALSE(policy.wants_times());
}

TEST(CapturePolicy, TheUserMaySayWhen) {
  CapturePolicy policy(true, 5);
  EXPECT_EQ(steps_before_capture(policy), 5);
  EXPECT_EQ(steps_before_automatic_captures(policy), 5);
  EXPECT_FALSE(policy.wants_times());
}

TEST(CapturePolicy, BeforeAnythingIsKnownAFewStepsAreEnough) {
  CapturePolicy policy(true, 0);
  EXPECT_TRUE(policy.wants_times());
  EXPECT_EQ(steps_before_capture(policy), CapturePolicy::kUnknownSteps);
  EXPECT_EQ(steps_before_automatic_captures(policy), CapturePolicy::kUnknownSteps);
}

TEST(CapturePolicy, CapturesOnceTheStepsSoFarWouldHavePaidForIt) {
  EXPECT_EQ(steps_before_capture(learned(300, 200, 100)), 3);
  EXPECT_EQ(steps_before_capture(learned(301, 200, 100)), 4);
  EXPECT_EQ(steps_before_capture(learned(10, 200, 100)), 1);
  EXPECT_EQ(steps_before_capture(learned(1e9, 200, 100)), CapturePolicy::kMostSteps);
  EXPECT_EQ(steps_before_capture(learned(10, 100, 200)), CapturePolicy::kMostSteps);
}

TEST(CapturePolicy, TellsWhetherSinkingSavesAnything) {
  EXPECT_FALSE(learned(300, 200, 100).is_slower_sunk());
  EXPECT_TRUE(learned(300, 100, 200).is_slower_sunk());
  EXPECT_FALSE(CapturePolicy(true, 0).is_slower_sunk());
}

TEST(CapturePolicy, FollowsAMachineThatChanges) {
  CapturePolicy policy = learned(300, 100, 200);
  ShapeTimes shape;
  for (double ns : {0, 0, 400}) policy.completed(shape, false, ns);
  for (int i = 0; i < 20; ++i) {
    policy.captured(50);
    policy.completed(shape, true, 100);
  }
  EXPECT_FALSE(policy.is_slower_sunk());
  EXPECT_EQ(steps_before_capture(policy), 1);
}

TEST(CapturePolicy, SaysWhy) {
  ShapeTimes shape;
  shape.interactive_steps = 1;
  EXPECT_EQ(CapturePolicy(true, 0).reason(shape),
            "1 step op by op so far; what a capture takes and saves is not measured yet");
  shape.interactive_steps = 2;
  EXPECT_EQ(learned(300000, 200000, 100000).reason(shape),
            "2 steps op by op so far; a capture takes 300.0 us and saves 100.0 us a step");
  EXPECT_EQ(CapturePolicy(true, 7).reason(shape), "captured after 7 steps (Tuning::capture_after)");
}

// A program that runs `automatic` with shapes drawn from `shapes`, of which it keeps eight, `repeats` steps each time.
// Each step takes what it takes op by op, times a factor that depends on the shape, or sunk.
struct Automatic {
  double capture, interactive, sunk;
  int shapes;
  std::int64_t repeats;

  double taken = 0, taken_op_by_op = 0;
  std::int64_t captures = 0, sunk_steps = 0;

  void run(std::int64_t draws) {
    struct Kept {
      int shape;
      bool is_captured;
      ShapeTimes times;
    };
    CapturePolicy policy(true, 0);
    std::deque<Kept> kept;  // the latest in front
    std::mt19937 random(7);
    for (std::int64_t i = 0; i < draws; ++i) {
      const int shape = std::uniform_int_distribution(0, shapes - 1)(random);
      auto found = std::find_if(kept.begin(), kept.end(), [&](const Kept& k) { return k.shape == shape; });
      Kept now = found == kept.end() ? Kept{shape, false, {}} : *found;
      if (found != kept.end()) kept.erase(found);
      for (std::int64_t k = 0; k < repeats; ++k) step(policy, now.times, now.is_captured, 1 + shape / 100.0);
      kept.push_front(now);
      if (kept.size() > 8) kept.pop_back();
    }
  }
  void step(CapturePolicy& policy, ShapeTimes& times, bool& is_captured, double factor) {
    if (!is_captured && policy.may_capture(times)) {
      policy.captured(capture);
      taken += capture;
      is_captured = true;
      ++captures;
    }
    const double ns = factor * interactive + (is_captured ? sunk - interactive : 0);
    policy.completed(times, is_captured, ns);
    is_captured ? ++sunk_steps : ++times.interactive_steps;
    taken += ns;
    taken_op_by_op += factor * interactive;
  }
};

TEST(CapturePolicy, AutomaticLosesLittleWithShapesThatDoNotComeBack) {
  for (double capture : {100.0, 1000.0, 20000.0}) {
    Automatic program{capture, 100, 50, 300, 1};
    program.run(10'000);
    EXPECT_LE(program.taken, 1.015 * program.taken_op_by_op + capture) << capture;
  }
}

TEST(CapturePolicy, AutomaticLosesLittleWhereSinkingIsSlower) {
  Automatic program{1000, 100, 101, 300, 5};
  program.run(10'000);
  EXPECT_LE(program.taken, 1.02 * program.taken_op_by_op);
}

TEST(CapturePolicy, AutomaticGainsWithShapesThatComeBack) {
  Automatic program{1000, 100, 50, 8, 10};
  program.run(1000);
  EXPECT_LT(program.taken, 0.6 * program.taken_op_by_op);
  EXPECT_EQ(program.captures, 8);
  Automatic often{1000, 100, 50, 300, 200};
  often.run(300);
  EXPECT_LT(often.taken, 0.85 * often.taken_op_by_op);
  EXPECT_GT(often.sunk_steps, 300 * 200 / 2);
}

}  // namespace
}  // namespace graphsink::capture_policy_test
