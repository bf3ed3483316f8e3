// Schedules of learning rates beside the cosine: against formulas in double, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/system_ops.h"
#include "test_ops.h"

namespace graphsink::schedules_test {
namespace {

class Schedules : public ::testing::TestWithParam<DeviceId> {};
INSTANTIATE_TEST_SUITE_P(Devices, Schedules, ::testing::ValuesIn(testing::devices()), [](const auto& info) {
  return std::string(info.param.kind == DeviceKind::cpu ? "cpu" : "cuda");
});

double share(double step, std::int64_t first, std::int64_t last) {
  return std::clamp((step - static_cast<double>(first)) / static_cast<double>(last - first), 0.0, 1.0);
}

double rate_at(double step, const LinearSchedule& s) {
  const double risen = s.warmup == 0 ? 1 : std::min((step + 1) / static_cast<double>(s.warmup), 1.0);
  if (s.steps == 0) return s.peak * risen;
  return s.peak * risen * (1 - (1 - s.final) * share(step, s.warmup, s.steps));
}

double rate_at(double step, const StepSchedule& s) {
  double rate = s.peak;
  for (double i = 1; i <= step; ++i) {
    const bool changes = s.interval > 0 ? std::fmod(i, static_cast<double>(s.interval)) == 0
                                        : std::find(s.at.begin(), s.at.end(), i) != s.at.end();
    if (changes) rate *= s.factor;
  }
  return rate;
}

double rate_at(double step, const OneCycleSchedule& s) {
  const auto between = [&](double from, double to, double done) {
    const double way = s.annealing == Annealing::linear ? done : (1 - std::cos(done * M_PI)) / 2;
    return s.peak * (from + (to - from) * way);
  };
  return step < static_cast<double>(s.warmup) ? between(s.initial, 1, share(step, 0, s.warmup))
                                              : between(1, s.final, share(step, s.warmup, s.steps));
}

Value rate_of(const Graph& g, const LinearSchedule& s) { return linear_schedule(g, s); }
Value rate_of(const Graph& g, const StepSchedule& s) { return step_schedule(g, s); }
Value rate_of(const Graph& g, const OneCycleSchedule& s) { return one_cycle_schedule(g, s); }

// What explain() shows under "from", of every op that a schedule is made of.
TEST(ScheduleLines, AreThoseOfTheUser) {
  const CosineSchedule cosine{.peak = 1, .warmup = 2, .steps = 8};
  const LinearSchedule linear{.peak = 1, .warmup = 2, .steps = 8};
  const OneCycleSchedule cycle{.peak = 1, .warmup = 2, .steps = 8},
      straight{.peak = 1, .warmup = 2, .steps = 8, .annealing = Annealing::linear};
  const StepSchedule interval{.peak = 1, .factor = 0.5, .interval = 2}, at{.peak = 1, .factor = 0.5, .at = {2, 4}};
  const auto build = [&](const Graph& g) {
    return std::vector{cosine_schedule(g, cosine), rate_of(g, linear),   rate_of(g, cycle),
                       rate_of(g, straight),       rate_of(g, interval), rate_of(g, at)};
  };
  Graph g;
  int number = 0;
  for (const Value& rate : build(g)) g.output("rate" + std::to_string(number++), rate);
  const Plan plan = make_plan(g, Target::host(), system_ops(), {}, {.fuse = false});
  int checked = 0;
  for (const PlanNode& node : plan.nodes) {
    if (node.where.line() == 0) continue;  // the commit
    EXPECT_STREQ(std::filesystem::path(node.where.file_name()).filename().c_str(), "schedules_test.cpp")
        << plan.explain();
    ++checked;
  }
  EXPECT_GT(checked, 20) << plan.explain();
}

constexpr int kSteps = 12;

// Rates of the first steps, as many steps a launch as given.
template <class Schedule>
std::vector<double> rates(const Schedule& schedule, DeviceId device, Mode mode, int steps_per_launch) {
  Graph g;
  const Value rate = rate_of(g, schedule);
  EXPECT_EQ(rate.type(), (TensorType{schedule.dtype, {}}));
  g.record("rate", rate);
  Program program = compile(g, {.target = device});
  for (int step = 0; step < kSteps; step += steps_per_launch) program.run(mode, {.steps = steps_per_launch});
  return program.records<double>("rate");
}

template <class Schedule>
void expect_formula(const std::vector<Schedule>& schedules, DeviceId device) {
  for (const Schedule& schedule : schedules) {
    SCOPED_TRACE("schedule " + std::to_string(&schedule - schedules.data()));
    const std::vector<double> seen = rates(schedule, device, interactive_serial, 1);
    ASSERT_EQ(seen.size(), std::size_t{kSteps});
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(seen[static_cast<std::size_t>(step)], rate_at(step, schedule), schedule.dtype == f64 ? 1e-15 : 2e-8)
          << step;
    }
    for (int steps_per_launch : {1, 4, kSteps})
      EXPECT_EQ(rates(schedule, device, sink, steps_per_launch), seen) << steps_per_launch;
  }
}

TEST_P(Schedules, LinearOnesFollowTheirFormula) {
  expect_formula<LinearSchedule>({{.peak = 0.1},
                                  {.peak = 0.1, .warmup = 3},
                                  {.peak = 0.1, .warmup = 3, .steps = 4},
                                  {.peak = 0.1, .warmup = 2, .steps = 9, .final = 0.25},
                                  {.peak = 0.1, .steps = 5, .dtype = f64}},
                                 GetParam());
}

TEST_P(Schedules, StepsFollowTheirFormula) {
  expect_formula<StepSchedule>({{.peak = 0.1, .interval = 3},
                                {.peak = 0.1, .factor = 0.5, .interval = 1},
                                {.peak = 0.1, .interval = 100},
                                {.peak = 0.1, .factor = 1.5, .at = {4}},
                                {.peak = 0.1, .factor = 0.5, .at = {1, 2, 7, 1'000'000}, .dtype = f64}},
                               GetParam());
}

TEST_P(Schedules, OneCyclesFollowTheirFormula) {
  expect_formula<OneCycleSchedule>(
      {{.peak = 0.1, .warmup = 3, .steps = 10},
       {.peak = 0.1, .warmup = 1, .steps = 2},
       {.peak = 0.1, .warmup = 4, .steps = 8, .initial = 0, .final = 0, .annealing = Annealing::linear},
       {.peak = 0.1, .warmup = 5, .steps = 11, .initial = 0.5, .final = 0.125, .dtype = f64}},
      GetParam());
}

// Steps above 2^24 are not exact in f32.
TEST_P(Schedules, StepsAreCountedExactly) {
  Graph g;
  g.output("rate", step_schedule(g, {.peak = 1, .factor = 1 + 0x1p-20, .interval = 3, .dtype = f64}));
  Program program = compile(g, {.target = GetParam()});
  for (std::int64_t step : {16'777'215, 16'777'217, 100'000'001, 2'147'483'645}) {
    program.set_steps(step);
    program.run(interactive);
    const double expected = std::pow(1 + 0x1p-20, static_cast<double>(step / 3));
    EXPECT_NEAR(program.output("rate").at(0) / expected, 1, 1e-9) << step;
  }
}

struct Refusal {
  const char* function;
  const char* says;
  std::function<void(Graph&)> call;
};

TEST(Schedules, ThatCannotBeFollowedAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  using Linear = LinearSchedule;
  using Steps = StepSchedule;
  using Cycle = OneCycleSchedule;
  const auto linear = [](const Linear& s) { return [s](Graph& g) { linear_schedule(g, s); }; };
  const auto cosine = [](const CosineSchedule& s) { return [s](Graph& g) { cosine_schedule(g, s); }; };
  const auto steps = [](const Steps& s) { return [s](Graph& g) { step_schedule(g, s); }; };
  const auto cycle = [](const Cycle& s) { return [s](Graph& g) { one_cycle_schedule(g, s); }; };
  const std::vector<Refusal> refusals{
      {"linear_schedule", "ends before its warm-up", linear({.warmup = 5, .steps = 5})},
      {"linear_schedule", "warmup is -1", linear({.warmup = -1})},
      {"linear_schedule", "peak or final is nan", linear({.peak = kNan})},
      {"linear_schedule", "peak or final is 1e+300", linear({.final = 1e300})},
      {"linear_schedule", "peak is -1", linear({.peak = -1})},
      {"linear_schedule", "final is -0.5", linear({.steps = 5, .final = -0.5})},
      {"cosine_schedule", "peak is -1", cosine({.peak = -1})},
      {"cosine_schedule", "final is -0.5", cosine({.steps = 5, .final = -0.5})},
      {"linear_schedule", "the dtype is f16", linear({.dtype = f16})},
      {"step_schedule", "either an interval or steps in `at`", steps({})},
      {"step_schedule", "either an interval or steps in `at`", steps({.interval = 3, .at = {4}})},
      {"step_schedule", "interval is -2", steps({.interval = -2})},
      {"step_schedule", "step 0 of `at` comes after 0", steps({.at = {0}})},
      {"step_schedule", "step 4 of `at` comes after 4", steps({.at = {4, 4}})},
      {"step_schedule", "factor is 0", steps({.factor = 0, .interval = 3})},
      {"step_schedule", "peak or factor is nan", steps({.factor = kNan, .interval = 3})},
      {"step_schedule", "the dtype is i32", steps({.interval = 3, .dtype = i32})},
      {"one_cycle_schedule", "warmup is 0", cycle({.steps = 5})},
      {"one_cycle_schedule", "steps is 5 and warmup 5", cycle({.warmup = 5, .steps = 5})},
      {"one_cycle_schedule", "initial is -1", cycle({.warmup = 1, .steps = 5, .initial = -1})},
      {"one_cycle_schedule", "final is -1", cycle({.warmup = 1, .steps = 5, .final = -1})},
      {"one_cycle_schedule", "peak is -1", cycle({.peak = -1, .warmup = 1, .steps = 5})},
      {"one_cycle_schedule", "peak, initial or final is nan", cycle({.peak = kNan, .warmup = 1, .steps = 5})},
  };
  for (const Refusal& refusal : refusals) {
    Graph g;
    try {
      refusal.call(g);
      ADD_FAILURE() << "not refused: " << refusal.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), refusal.function);
      EXPECT_NE(e.problem().find(refusal.says), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
      EXPECT_NE(std::string(e.where().file_name()).find("schedules_test.cpp"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace graphsink::schedules_test
