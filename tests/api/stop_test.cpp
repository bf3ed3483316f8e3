// Graph::stop_when(): the run ends with the step in which a condition holds.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "program_fixture.h"

namespace graphsink::stop_test {
namespace {

using testing::OnDevice;

// Counts its steps in a Variable, and stops when it has counted to `limit`.
struct Counting {
  Graph g;
  Variable count{"count", Tensor({0.0f})};
  explicit Counting(double limit, std::optional<Placement> placement = {}) {
    Value next = g.value(count) + 1.0;
    assign(count, next);
    g.record("count", next);
    g.output("count", next);
    const Value enough = placement ? greater_equal(next, limit, *placement) : next >= limit;
    g.stop_when(all(enough));
  }
};

// The Error with which `call` stops.
template <class Call>
Error stop_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::stopped) << e.what();
    return e;
  }
  ADD_FAILURE() << "nothing stopped";
  return {"", Where(), "", ""};
}

std::vector<float> numbers_to(int last) {
  std::vector<float> numbers(static_cast<std::size_t>(last));
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  return numbers;
}

TEST_P(OnDevice, ARunStopsBehindTheStepInWhichAConditionHolds) {
  for (Mode mode : kAllModes) {
    for (std::int64_t steps : {1, 4, 7, 16}) {
      SCOPED_TRACE(std::string(to_string(mode)) + ", " + std::to_string(steps) + " steps a launch");
      Counting counting(7);
      Program p = compile(counting.g);
      for (std::int64_t issued = 0; issued < 32; issued += steps) p.run(mode, {.steps = steps});
      const Error stop = stop_of([&] { p.sync(); });
      EXPECT_EQ(stop.op(), "stop_when");
      EXPECT_EQ(line_of(stop.where()).substr(0, 14), "stop_test.cpp:");
      EXPECT_EQ(stop.problem(), "its condition held, in step 6");
      EXPECT_EQ(p.steps(), 7);
      EXPECT_EQ(counting.count.read().at(0), 7.0);
      EXPECT_EQ(p.records("count"), numbers_to(7));
      // Once it was reported, a run goes on; here it stops again with its first step.
      p.run(mode, {.steps = steps});
      EXPECT_EQ(stop_of([&] { p.sync(); }).problem(), "its condition held, in step 7");
      counting.count.write(Tensor({0.0f}));
      p.run(mode, {.steps = 3});
      p.sync();
      EXPECT_EQ(p.output("count").at(0), 3.0);
      EXPECT_EQ(p.steps(), 11);
    }
  }
}

TEST_P(OnDevice, ALaunchOfManyStepsLeavesOutTheRest) {
  Counting counting(3);
  Program p = compile(counting.g);
  p.run();
  p.run(sink, {.steps = 1 << 30});  // would take hours
  (void)stop_of([&] { p.sync(); });
  EXPECT_EQ(p.steps(), 3);
}

TEST_P(OnDevice, TheFirstConditionThatHoldsIsNamed) {
  Graph g;
  Value x = g.feed("x", f32, {});
  g.record("x", x);
  g.stop_when(x > 10.0);
  const std::uint32_t second = Where::current().line() + 1;
  g.stop_when(x < 0.0);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, -1, 11});
  p.run(sink, {.steps = 4});
  EXPECT_EQ(stop_of([&] { p.sync(); }).where().line(), second);
  EXPECT_EQ(p.records("x"), (std::vector<float>{1, 2, -1}));
}

// A step that fails has not committed, and is not the last one for another reason.
TEST_P(OnDevice, AFailedStepIsNoStop) {
  Graph g;
  Value x = g.feed("x", f32, {});
  g.record("x", check_finite(log(x)));
  g.stop_when(x < 1.0);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, -1, 0.5});
  p.run(sink, {.steps = 3});
  try {
    p.sync();
    FAIL() << "the failure was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::step_failed) << e.what();
  }
  EXPECT_EQ(p.steps(), 1);
}

TEST_P(OnDevice, AConditionOfTheHostStops) {
  Counting counting(5, on_cpu);
  Program p = compile(counting.g);
  p.run(sink, {.steps = 9});
  (void)stop_of([&] { p.sync(); });
  EXPECT_EQ(counting.count.read().at(0), 5.0);
}

// Records of more than one kernel, and all conditions that there may be.
TEST_P(OnDevice, ManyRecordsAndConditions) {
  Graph g;
  Variable count("count", Tensor({0.0f}));
  const Value next = g.value(count) + 1.0;
  assign(count, next);
  for (int i = 0; i < 130; ++i) g.record("count " + std::to_string(i), next * i);
  for (std::size_t i = 0; i < kMaxStops; ++i) g.stop_when(all(next >= 12.0 - static_cast<double>(i)));
  Program p = compile(g);
  p.run(sink, {.steps = 20});
  (void)stop_of([&] { p.sync(); });
  EXPECT_EQ(p.steps(), 5);
  EXPECT_EQ(p.records("count 129"), (std::vector<float>{129, 258, 387, 516, 645}));
}

TEST_P(OnDevice, AGuardFindsTheSameStop) {
  Counting counting(7);
  Program p = compile(counting.g, {.guards = {.poison = true, .replay_every = 1}});
  (void)stop_of([&] {
    for (int i = 0; i < 4; ++i) p.run(sink, {.steps = 3});
    p.sync();
  });
  EXPECT_EQ(counting.count.read().at(0), 7.0);
}

}  // namespace
}  // namespace graphsink::stop_test
