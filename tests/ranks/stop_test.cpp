// stop_when() in programs of several ranks: the run ends at one step on all of them, or all hear of the difference.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "graphsink/train.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace stop_test {

constexpr std::int64_t kSamples = 400, kBatch = 2;

int me() { return world().rank(); }
int ranks() { return world().size(); }
int bad() { return ranks() - 1; }

// Sample i is i + 1 on the last rank, and 0 on the others, of which the first is slow.
std::shared_ptr<const Source> numbers() {
  return function_source(kSamples, {{"x", {DType::f32, {}}}}, [](std::int64_t i, SampleMemory to) {
    if (me() == 0) usleep(100);
    const float x = me() == bad() ? static_cast<float>(i + 1) : 0.0f;
    std::memcpy(to[0].data(), &x, sizeof x);
  });
}

// Counts its steps, and stops at a sample above 30: one of any rank, or of this one.
struct Training {
  Graph graph(bool is_agreed) {
    Graph g;
    x = g.feed("x", f32, {kBatch});
    const Value largest = max(x, {0});
    const Value of_all = all_reduce(largest, world(), {.reduction = Reduction::max});
    g.record("largest", of_all);
    g.assign(count, add(g.value(count), 1.0));
    g.stop_when(greater(is_agreed ? of_all : largest, 30.0));
    return g;
  }
  double counted() const { return count.read().at(0); }

  Variable count{"count", Tensor::scalar(0.0f)};
  Value x;
};

class Stop : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, Stop, ::testing::ValuesIn(rank_ways()), rank_way_name);

// However far a rank has run ahead of the others.
TEST_P(Stop, ATrainingEndsAtOneStepOnAllRanks) {
  for (const std::int64_t steps : {1, 4, 0}) {
    Training training;
    Program program = compile(training.graph(true));
    Loader loader(program, numbers(), sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}),
                  {{"x", training.x}});
    int told = 0;
    TrainOptions options{.steps = 100, .steps_per_launch = steps, .records = {"largest"}, .progress = nullptr};
    options.on_step = [&](const StepValues& step) { EXPECT_EQ(step.values[0], 2.0 * ++told); };
    options.evaluate_every = 6;
    options.evaluate = [&] {
      world().barrier();
      return Metrics();
    };
    const TrainResult result = train(program, loader, options);
    EXPECT_EQ(result.end, TrainEnd::stopped) << steps;
    EXPECT_EQ(result.steps, 16) << steps;
    EXPECT_EQ(told, 16) << steps;
    EXPECT_EQ(training.counted(), 16) << steps;
    world().barrier();
  }
}

// A rank whose checkpoint was not given to the others.
TEST_P(Stop, RanksAtDifferentStepsFailTheStepOnAll) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has no others";
  Training training;
  Program program = compile(training.graph(true));
  if (me() == bad()) program.set_steps(7);
  program.write(training.x, std::vector<float>(kBatch));
  const int other = me() == bad() ? 0 : bad();
  const std::string expected = "rank " + std::to_string(other) + " is at step " + (other == 0 ? "0" : "7");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string problem = problem_of([&] {
      program.run(sink, {.steps = 2});
      program.sync();
    });
    EXPECT_TRUE(has(problem, expected)) << problem;
  }
  EXPECT_EQ(training.counted(), 0) << "nothing was committed";
  program.set_steps(7);
  program.run();
  EXPECT_EQ(program.steps(), 8);
  world().barrier();
}

// What is called between launches is called as often on all ranks, so that it may wait for the others.
TEST_P(Stop, AllRanksMayAgreeBetweenLaunches) {
  Training training;
  Program program = compile(training.graph(true));
  Loader loader(program, numbers(), sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}),
                {{"x", training.x}});
  TrainOptions options{.steps = 12, .records = {"largest"}, .progress = nullptr};
  const auto agreed = [](bool holds) {
    Eager eager;
    const Value mine = eager.tensor(Tensor::scalar(holds ? 1.0f : 0.0f));
    return Eager::read(all_reduce(mine, world_of_host(), {.reduction = Reduction::max})).at(0) > 0;
  };
  const std::string refused = problem_of([&] {
    const Loader shrinking(program, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", training.x}},
                           {.when_starved = WhenStarved::shrink});
  });
  EXPECT_EQ(has(refused, "WhenStarved::shrink would give each rank launches of other numbers"), ranks() > 1) << refused;
  options.should_stop = [&] { return agreed(false); };
  options.on_step = [&](const StepValues& step) { EXPECT_EQ(agreed(me() == 0 && step.step == 3), step.step == 3); };
  const TrainResult result = train(program, loader, options);
  EXPECT_EQ(result.steps, 12);
  EXPECT_TRUE(ranks() == 1 || result.steps_per_launch == 16) << result.steps_per_launch;
}

std::string expected_problem() {
  return me() == bad() ? "the condition of stop_when() held on this rank, and not on rank 0, in step 15"
                       : "the condition of stop_when() held on rank " + std::to_string(bad()) +
                             ", and not on this one, in step 15";
}

// A rank that stops alone would leave the others waiting for it.
TEST_P(Stop, AConditionOfOneRankIsAnErrorOfATrainingOnAll) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has no others";
  for (const std::int64_t steps : {1, 4, 0}) {
    Training training;
    Program program = compile(training.graph(false));
    Loader loader(program, numbers(), sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}),
                  {{"x", training.x}});
    const TrainOptions options{.steps = 100, .steps_per_launch = steps, .progress = nullptr};
    const std::string problem = problem_of([&] { train(program, loader, options); });
    EXPECT_TRUE(has(problem, expected_problem())) << steps << ": " << problem;
    EXPECT_EQ(training.counted(), 15) << steps;
    world().barrier();
  }
}

TEST_P(Stop, AConditionOfOneRankIsAnErrorOfTheRun) {
  if (ranks() == 1) GTEST_SKIP() << "one rank has no others";
  Graph g;
  const Value x = g.input("x", f32, Shape{});
  g.record("total", all_reduce(x, world()));
  g.stop_when(greater(x, 100.0));
  g.stop_when(greater(x, 2.5));
  Program program = compile(g);
  for (const Mode mode : kAllModes) {
    program.write(x, Tensor::scalar(me() == bad() ? 3.0f : 1.0f));
    std::string remedy;
    try {
      program.run(mode, {.steps = 4});
      program.sync();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::step_failed) << e.what();
      remedy = e.remedy();
    }
    EXPECT_EQ(remedy,
              "make the condition from results of collectives, which are equal on all ranks; the step committed "
              "nothing")
        << to_string(mode);
    EXPECT_EQ(program.records("total").size(), 0u) << to_string(mode);
    program.write(x, Tensor::scalar(2.0f));
    program.run(mode, {.steps = 2});
    program.sync();
    EXPECT_EQ(program.records("total").size(), 2u) << to_string(mode);
  }
}

}  // namespace stop_test
}  // namespace graphsink::testing
