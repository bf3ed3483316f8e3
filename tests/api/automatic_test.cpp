// Programs in the mode `automatic`.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "api/program_access.h"
#include "program_fixture.h"

namespace graphsink::automatic_test {
namespace {

using testing::device_name;
using testing::OnDevice;

// A training step whose result depends on every step before it, and on its number.
struct Training {
  Graph g;
  Value x = g.feed("x", f32, {4, 8});
  Variable w{"w", Tensor::kaiming({8, 3}, 1)};

  Training() {
    Value noise = random_normal(g, f32, {4, 3});
    Value loss = mean(exp(matmul(x, g.value(w)) + noise) * 0.01);
    adamw(loss, {w}, {.lr = 1e-2});
    g.record("loss", loss);
  }
};

struct Results {
  std::vector<double> losses, weights;
  std::int64_t steps = 0;
  bool operator==(const Results&) const = default;
};

std::int64_t steps_of(const AutomaticReport& report) {
  std::int64_t steps = 0;
  for (const AutomaticReport::Candidate& candidate : report.candidates) steps += candidate.steps;
  return steps;
}

class Automatic : public OnDevice {
 protected:
  // Waits often enough that the host does not run far ahead of the device.
  void run(Program& p, std::int64_t steps, std::int64_t per_run = 1) {
    for (std::int64_t done = 0; done < steps; done += per_run) {
      p.run(automatic, {.steps = per_run});
      if (done / per_run % 16 == 0) p.sync();
    }
    p.sync();
  }
  void run_and_sync(Program& p, Mode mode) {
    p.run(mode);
    p.sync();
  }
  Results results(Program& p, Training& training) {
    Results results{p.records<double>("loss"), {}, p.steps()};
    Tensor w = training.w.read();
    for (std::int64_t i = 0; i < w.shape().size(); ++i) results.weights.push_back(w.at(i));
    return results;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Automatic, ::testing::ValuesIn(testing::devices()), device_name);

// Uses a fake clock on which the one mode, and then the other, is twice as fast.
TEST_P(Automatic, TakesEachSideInItsTurnWithTheSameBits) {
  constexpr std::int64_t kSteps = 2400;
  for (std::int64_t per_run : {1, 5}) {
    SCOPED_TRACE(per_run);
    Training interactively;
    Program one_by_one = compile(interactively.g);
    one_by_one.write(interactively.x, Tensor::uniform({5, 4, 8}, 2));
    for (std::int64_t i = 0; i < 2 * kSteps; i += per_run) one_by_one.run(interactive, {.steps = per_run});
    Results wanted = results(one_by_one, interactively);
    Training training;
    Program p = compile(training.g);
    p.write(training.x, Tensor::uniform({5, 4, 8}, 2));
    double sunk = 100, op_by_op = 50;
    ProgramAccess::set_step_clock(p, [&](Mode mode) { return mode == sink ? sunk : op_by_op; });
    run(p, kSteps, per_run);
    AutomaticReport first = p.automatic_report();
    EXPECT_EQ(first.chosen, interactive) << to_string(first);
    EXPECT_DOUBLE_EQ(first.of(sink).ratio, 2);
    EXPECT_EQ(steps_of(first), kSteps);
    EXPECT_GT(first.of(sink).steps, 1000);
    EXPECT_LT(first.of(sink).steps, kSteps - 100);
    std::uint64_t launches = p.counters().graph_launches;
    EXPECT_GE(static_cast<std::int64_t>(launches), first.of(sink).steps / per_run);
    EXPECT_LE(static_cast<std::int64_t>(launches), first.of(sink).steps);

    sunk = 20;
    run(p, kSteps, per_run);
    AutomaticReport second = p.automatic_report();
    EXPECT_EQ(second.chosen, sink) << to_string(second);
    EXPECT_EQ(second.switches, 2);
    EXPECT_GT(p.counters().graph_launches, launches);
    EXPECT_LE(second.trial_seconds, ModeChooser::kTrialShare * second.seconds * 1.0001);
    EXPECT_EQ(p.counters().captures, per_run == 1 ? 1u : 2u);
    EXPECT_EQ(results(p, training), wanted);
  }
}

// The measured times of the steps must fit into the time during which there was work to do.
TEST_P(Automatic, MeasuresWhatStepsTake) {
  Training training;
  Program p = compile(training.g);
  p.write(training.x, Tensor::uniform({5, 4, 8}, 2));
  double busy = 0;
  for (int i = 0; i < 30; ++i) {
    if (i % 10 == 5) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto begun = std::chrono::steady_clock::now();
    p.run(automatic, {.steps = 3});
    p.sync();
    busy += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  }
  AutomaticReport report = p.automatic_report();
  EXPECT_GT(report.seconds, 0);
  EXPECT_LE(report.seconds, busy);
  EXPECT_EQ(steps_of(report), 90);
}

TEST_P(Automatic, OtherModesAreNotMeasured) {
  Training training;
  Program p = compile(training.g);
  p.write(training.x, Tensor::uniform({5, 4, 8}, 2));
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) run_and_sync(p, mode);
  EXPECT_EQ(p.automatic_report().seconds, 0);
  EXPECT_EQ(steps_of(p.automatic_report()), 0);
  for (int i = 0; i < 3; ++i) run_and_sync(p, automatic);
  double seconds = p.automatic_report().seconds;
  EXPECT_GT(seconds, 0);
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) run_and_sync(p, mode);
  EXPECT_EQ(p.automatic_report().seconds, seconds);
}

TEST_P(Automatic, EachShapeHasItsOwnChoice) {
  Graph g;
  Value x = g.input("x", f32, {open(1)});
  Variable sum_of_all("sum", Tensor(f32, {}));
  assign(sum_of_all, g.value(sum_of_all) + sum(x));
  Program p = compile(g);
  std::int64_t n = 1;
  ProgramAccess::set_step_clock(p, [&](Mode mode) { return (mode == sink) == (n == 1) ? 10.0 : 20.0; });
  for (int i = 0; i < 30; ++i) {
    for (n = 1; n <= 2; ++n) {
      p.write(x, Tensor::full(f32, {n}, 1));
      run(p, 100);
    }
  }
  for (n = 1; n <= 2; ++n) {
    p.write(x, Tensor::full(f32, {n}, 1));
    p.bind();
    AutomaticReport report = p.automatic_report();
    EXPECT_EQ(report.chosen, n == 1 ? sink : interactive) << to_string(report);
    EXPECT_EQ(steps_of(report), 3000);
  }
  EXPECT_EQ(sum_of_all.read().at(0), 9000);
}

// With ops on the host, and with separate memory of host and device, there is a third mode to choose from.
TEST_P(Automatic, TakesEachOfThreeModesInItsTurnWithTheSameBits) {
  constexpr std::int64_t kSteps = 1400;
  auto build = [](Graph& g, Variable& sum) {
    Value x = g.feed("x", f32, {8});
    Value on_the_host = emit(testing::cpu_plus_one, {tanh(g.value(sum) + x)})[0];
    assign(sum, g.value(sum) * 0.5 + on_the_host + random_normal(g, f32, {8}));
    return x;
  };
  std::vector<Tensor> sums;
  for (Mode mode : {interactive, automatic}) {
    Graph g;
    Variable sum("sum", Tensor(f32, {8}));
    Value x = build(g, sum);
    Program p = compile(g);
    p.write(x, Tensor::uniform({1, 8}, 2));
    std::map<Mode, double> ns = {{sink, 1e3}, {split_sink, 100}, {interactive, 200}};
    ProgramAccess::set_step_clock(p, [&](Mode of) { return ns.at(of); });
    bool is_split = p.target().separate_memory;
    for (Mode next : {split_sink, interactive, sink}) {
      if (next == interactive) ns[split_sink] = 1e4;
      if (next == sink) ns[interactive] = 1e5;
      if (next == split_sink && !is_split) continue;
      for (int i = 0; i < kSteps; ++i) {
        p.run(mode);
        if (i % 16 == 0) p.sync();
      }
      p.sync();
      if (mode != automatic) continue;
      AutomaticReport report = p.automatic_report();
      EXPECT_EQ(report.candidates.size(), is_split ? 3u : 2u);
      EXPECT_EQ(report.chosen, next) << to_string(report);
      EXPECT_GT(report.of(next).steps, 100) << to_string(report);
      EXPECT_LE(report.trial_seconds, ModeChooser::kTrialShare * report.seconds * 1.0001);
    }
    sums.push_back(sum.read());
  }
  EXPECT_EQ(std::memcmp(sums[0].data(), sums[1].data(), sums[0].bytes()), 0);
}

// Runs that the replay audit checks are sunk as well.
TEST_P(Automatic, GuardsSeeItsRuns) {
  Training training;
  Program p = compile(training.g, {.guards = {.poison = true, .replay_every = 2}});
  p.write(training.x, Tensor::uniform({5, 4, 8}, 2));
  for (int i = 0; i < 6; ++i) p.run(automatic);
  p.sync();
  EXPECT_EQ(steps_of(p.automatic_report()), 3);
  EXPECT_EQ(p.steps(), 6);
}

}  // namespace
}  // namespace graphsink::automatic_test
