// Several steps whose values NCCL moves between ranks, in one launch: its nodes may not stand in a loop, so that the
// launch holds a step several times. The stand-in for NCCL obeys that rule.
#ifdef GRAPHSINK_EMULATED
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/plan_of.h"
#include "emulator.h"
#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "test_ops.h"

namespace graphsink::testing {
namespace unrolled_test {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

int me() { return world_of_nccl().rank(); }
int bad() { return world_of_nccl().size() - 1; }

class Unrolled : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world_of_nccl().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  }
};

// A training of two layers with a bucket for each, whose steps read slices of their own, and count themselves. A step
// fails where its row is none of the table.
struct Training {
  explicit Training(CompileOptions options = {}) {
    Graph g;
    x = g.feed("x", f32, Shape{4, 6});
    row = g.feed("row", i32, Shape{4});
    const Value y = matmul(tanh(matmul(x, w1)), w2);
    const Value taken = gather(g.constant(Tensor::full(f32, {3, 2}, 1.0)), row);
    const Value loss = add(sum(mul(y, y)), mul(sum(taken), 0.0));
    const std::vector<Value> gradients = average(grad(loss, {w1, w2}), world_of_nccl(), {.bucket_bytes = 1});
    apply(AdamwOptions{.lr = 0.01, .gradients = {.clip_norm = 0.5}}, {w1, w2}, gradients);
    const Value all = all_reduce(loss, world_of_nccl(), {.reduction = Reduction::mean});
    g.record("loss", all);
    g.output("loss", all);
    g.assign(count, add(g.value(count), 1.0));
    options.target = cuda(0);
    program.emplace(compile(g, options));
  }

  // Slices [first, first + steps) of this rank's data. Slice `failing` fails the step on this rank.
  void write(std::int64_t first, std::int64_t steps, std::int64_t failing = kNone) {
    Tensor data(f32, {steps, 4, 6}), rows(i32, {steps, 4});
    for (std::int64_t step = 0; step < steps; ++step) {
      const Tensor slice = Tensor::normal({4, 6}, static_cast<std::uint64_t>((first + step) * 10 + me()));
      std::ranges::copy(slice.as<float>(), data.as<float>().begin() + step * 24);
      if (first + step == failing) rows.as<std::int32_t>()[static_cast<std::size_t>(step * 4 + 1)] = 7;
    }
    program->write(x, data);
    program->write(row, rows);
  }
  void run(Mode mode, std::int64_t first, std::int64_t steps, std::int64_t failing = kNone) {
    write(first, steps, failing);
    program->run(mode, {.steps = steps});
  }
  // Runs steps until the launches of one step are captured.
  void warm_up() {
    run(sink, 0, 1);
    run(sink, 1, 1);
    program->sync();
  }
  double counted() const { return count.read().at(0); }

  std::string bits() {
    std::string all;
    for (const Variable* variable : {&w1, &w2, &count}) {
      const Tensor value = variable->read();
      all.append(reinterpret_cast<const char*>(value.data()), value.bytes());
    }
    for (const double loss : program->records<double>("loss")) all += std::to_string(loss) + " ";
    return all;
  }

  Variable w1{"w1", Tensor::kaiming({6, 5}, 1)}, w2{"w2", Tensor::kaiming({5, 2}, 2)};
  Variable count{"count", Tensor::scalar(0.0f)};
  Value x, row;
  std::optional<Program> program;
};

// What the counters say of one run of `steps` steps.
struct Launched {
  std::uint64_t launches = 0, captures = 0, host_nodes = 0, fallbacks = 0;
  friend bool operator==(const Launched&, const Launched&) = default;
};
template <class Run>
Launched launched(Program& program, const Run& run) {
  const Counters before = program.counters();
  run();
  program.sync();
  const Counters after = program.counters();
  return {after.graph_launches - before.graph_launches, after.captures - before.captures,
          after.host_nodes - before.host_nodes, after.fallbacks - before.fallbacks};
}

TEST_F(Unrolled, HasTheBitsOfSingleStepsInEveryMode) {
  constexpr std::int64_t kSteps = 27;
  std::string wanted;
  const auto expect_bits = [&](Mode mode, std::int64_t steps) {
    Training training;
    for (std::int64_t first = 0; first < kSteps; first += steps)
      training.run(mode, first, std::min(steps, kSteps - first));
    training.program->sync();
    const std::string bits = training.bits();
    if (wanted.empty()) wanted = bits;
    EXPECT_TRUE(bits == wanted) << steps << " steps, " << to_string(mode);
    EXPECT_EQ(training.counted(), kSteps);
  };
  expect_bits(interactive_serial, 1);
  for (const Mode mode : kAllModes) expect_bits(mode, 16);
  for (const std::int64_t steps : {1, 11}) expect_bits(sink, steps);
}

TEST_F(Unrolled, ALaunchHoldsAPowerOfTwoOfSteps) {
  Training training;
  training.warm_up();
  std::int64_t next = 2;
  const auto run = [&](std::int64_t steps) {
    const Launched seen = launched(*training.program, [&] { training.run(sink, next, steps); });
    next += steps;
    return seen;
  };
  EXPECT_EQ(run(16), (Launched{1, 1}));
  EXPECT_EQ(run(16), (Launched{1, 0}));
  EXPECT_EQ(run(11), (Launched{3, 2}));  // 8, 2 and 1
  EXPECT_EQ(run(27), (Launched{4, 0}));
  EXPECT_EQ(run(1), (Launched{1, 0}));
  EXPECT_EQ(training.counted(), static_cast<double>(next));
  const CaptureInfo one = *training.program->captured(), several = *training.program->captured(LaunchOf::several_steps);
  EXPECT_EQ(several.conditional_nodes, 0);
  EXPECT_EQ(several.host_nodes, 0);
  EXPECT_EQ(several.kernels - 1, 16 * (one.kernels - 1)) << "one kernel hands over the parameters of the launch";
}

TEST_F(Unrolled, IsExplained) {
  const Training training;
  const std::int64_t most = training.program->plan().unrolled_steps;
  EXPECT_GE(most, 16);
  EXPECT_FALSE(training.program->plan().loop_over_steps);
  const std::string text = training.program->explain(), json = training.program->explain_json();
  EXPECT_TRUE(has(text, "up to " + std::to_string(most) +
                            " steps a launch, unrolled, because collectives of NCCL may not stand in a loop body"))
      << text;
  EXPECT_FALSE(has(text, "several steps take several launches")) << text;
  EXPECT_TRUE(has(json, "\"unrolled_steps\": " + std::to_string(most))) << json;
}

// A rank fails in the fifth of sixteen steps: four are committed, on all ranks.
TEST_F(Unrolled, AFailedStepKeepsTheLaterOnesOfItsLaunchFromCommitting) {
  Training training, other;
  for (Training* each : {&training, &other}) each->warm_up();
  other.run(sink, 2, 4);
  other.run(sink, 18, 16);
  training.run(sink, 2, 16, me() == bad() ? 6 : kNone);
  const std::string problem = problem_of([&] { training.program->sync(); });
  EXPECT_EQ(training.counted(), 6);
  EXPECT_EQ(training.program->steps(), 6);
  EXPECT_TRUE(has(problem, "in step 6")) << problem;
  const std::string why = "the step failed on rank " + std::to_string(bad()) + ": index 7 lies outside the axis";
  EXPECT_TRUE(has(problem, me() == bad() ? "gather: index 7 lies outside" : why)) << problem;
  const Launched seen = launched(*training.program, [&] { training.run(sink, 18, 16); });
  EXPECT_EQ(seen, (Launched{1, 0}));
  other.program->sync();
  EXPECT_TRUE(training.bits() == other.bits());
}

TEST_F(Unrolled, LaunchesBehindAFailedOneCommitNothing) {
  Training training;
  training.warm_up();
  for (std::int64_t launch = 0; launch < 4; ++launch) training.run(sink, launch * 4, 4, me() == bad() ? 4 + 2 : kNone);
  EXPECT_NE(problem_of([&] { training.program->sync(); }), "");
  EXPECT_EQ(training.counted(), 2 + 4 + 2);
}

TEST_F(Unrolled, IsBoundedByALimit) {
  Training training;
  const std::size_t tasks = plan_of(*training.program).tasks.size();
  Training none({.limits = {.unrolled_nodes = 2 * tasks - 1}});
  const std::string text = none.program->explain();
  EXPECT_TRUE(has(text,
                  "several steps take several launches: collectives of NCCL may not stand in a loop body, and two "
                  "steps of " +
                      std::to_string(tasks) + " nodes have more than Limits::unrolled_nodes"))
      << text;
  EXPECT_EQ(none.program->plan().unrolled_steps, 1);
  none.warm_up();
  EXPECT_EQ(launched(*none.program, [&] { none.run(sink, 2, 16); }), (Launched{16, 0}));
  // The ranks take the least of their numbers.
  Training few({.limits = {.unrolled_nodes = me() == bad() ? 4 * tasks : 8 * tasks}});
  few.warm_up();
  EXPECT_EQ(launched(*few.program, [&] { few.run(sink, 2, 16); }), (Launched{4, 1}));
  EXPECT_EQ(has(few.program->explain(), "another rank has no room for more"), me() != bad());
}

// All ranks go on step by step, and try it again in the next run.
TEST_F(Unrolled, ACaptureThatFailsOnOneRankCountsOnNone) {
  Training training;
  training.warm_up();
  for (int failures = 1; failures <= 4; ++failures) {
    if (me() == bad()) emu::fail("cudaStreamEndCapture", 1, cudaErrorStreamCaptureInvalidated);
    const Launched seen = launched(*training.program, [&] { training.run(sink, 0, 8); });
    emu::clear_faults();
    EXPECT_EQ(seen.launches, failures < 4 ? 8u : me() == bad() ? 8u : 2u) << failures;
    EXPECT_EQ(seen.fallbacks, 0u);
    if (failures == 3) {
      EXPECT_TRUE(has(training.program->explain(), "a run of several steps takes several launches")) << failures;
      break;
    }
  }
  EXPECT_EQ(launched(*training.program, [&] { training.run(sink, 0, 8); }), (Launched{2, 1})) << "4 steps each";
  EXPECT_EQ(training.counted(), 2 + 4 * 8);
}

TEST_F(Unrolled, RanksThatRunOtherNumbersOfStepsHearOfIt) {
  Training training;
  training.warm_up();
  const std::int64_t mine = me() == bad() ? 8 : 16;
  const std::string problem = problem_of([&] { training.run(sink, 2, mine); });
  EXPECT_EQ(problem, "run: rank 0 is about to make a launch of 16 steps in mode sink, and rank " +
                         std::to_string(bad()) + " to make a launch of 8 steps in mode sink");
  EXPECT_EQ(training.counted(), 2);
  EXPECT_EQ(launched(*training.program, [&] { training.run(sink, 2, 16); }), (Launched{1, 1}));
  EXPECT_EQ(training.counted(), 18);
}

// A condition that all ranks find to hold ends the run within a launch.
TEST_F(Unrolled, AConditionEndsTheRunWithinALaunch) {
  Graph g;
  const Variable count("count", Tensor::scalar(0.0f));
  const Value next = add(g.value(count), 1.0);
  g.assign(count, next);
  g.stop_when(greater(all_reduce(next, world_of_nccl(), {.reduction = Reduction::max}), 5.5));
  Program program = compile(g, {.target = cuda(0)});
  program.run(sink);
  program.run(sink);
  program.sync();
  program.run(sink, {.steps = 8});
  const std::string problem = problem_of([&] { program.sync(); });
  EXPECT_TRUE(has(problem, "stop")) << problem;
  EXPECT_EQ(count.read().at(0), 6);
}

TEST_F(Unrolled, EverySetOfShapesHasLaunchesOfItsOwn) {
  Graph g;
  const Value x = g.input("x", f32, {open(4)});
  const Variable total("total", Tensor::scalar(0.0f));
  g.assign(total, add(g.value(total), all_reduce(sum(x), world_of_nccl())));
  Program program = compile(g, {.target = cuda(0)});
  double expected = 0;
  for (const std::int64_t size : {3, 4, 3, 4}) {
    program.write(x, Tensor::full(f32, {size}, 1.0));
    program.run(sink, {.steps = 9});
    program.sync();
    expected += static_cast<double>(9 * size * world_of_nccl().size());
    EXPECT_EQ(total.read().at(0), expected);
  }
  EXPECT_EQ(launched(program, [&] { program.run(sink, {.steps = 8}); }), (Launched{1, 0}));
}

// A Loader gives 16 steps to a launch, and fewer at the end of an epoch; without a number train() does the same, as
// what a rank measures must not matter.
TEST_F(Unrolled, TrainingsTakeAsManyStepsOnAllRanks) {
  std::string wanted;
  for (const std::int64_t steps : {1, 0}) {
    Training training;
    const auto source = tensor_source({{"x", Tensor::normal({320, 6}, 1)}, {"row", Tensor(i32, {320})}});
    const SampleOrder order = sample_order(320, {.batch = 4, .seed = 1, .rank = me(), .world = world_of_nccl().size()});
    const std::vector<std::pair<std::string, Value>> feeds{{"x", training.x}, {"row", training.row}};
    Loader loader(*training.program, source, order, feeds);
    const TrainOptions options{.steps = 60, .steps_per_launch = steps, .progress = nullptr};
    const TrainResult result = train(*training.program, loader, options);
    EXPECT_EQ(result.steps_per_launch, steps == 0 ? 16 : 1);
    EXPECT_EQ(training.counted(), 60);
    const std::string bits = training.bits();
    if (wanted.empty()) wanted = bits;
    EXPECT_TRUE(bits == wanted) << steps;
  }
}

}  // namespace unrolled_test
}  // namespace graphsink::testing
#endif
