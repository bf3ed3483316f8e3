// Programs on every device of the build. All modes give the same bits, also in hard cases.
#include "graphsink/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "api/plan_of.h"
#include "program_fixture.h"

namespace graphsink::program_test {
namespace {

using testing::cpu_plus_one;
using testing::kModes;
using testing::OnDevice;

struct Training {
  Graph g;
  Value x, t, loss;
  Variable w1{"w1", Tensor::kaiming({12, 16}, 1)}, w2{"w2", Tensor::kaiming({16, 5}, 2)};

  Training() {
    x = g.feed("x", f32, {6, 12});
    t = g.feed("t", i32, {6});
    loss = cross_entropy(matmul(relu(matmul(x, w1)), w2), t);
    adamw(loss, {w1, w2}, {.lr = 1e-2});
    g.record("loss", loss);
  }
};

Tensor images(std::int64_t steps) { return Tensor::uniform({steps, 6, 12}, 11, -1.0f, 1.0f); }
Tensor labels(std::int64_t steps) {
  Tensor t(i32, {steps, 6});
  for (std::size_t i = 0; i < t.as<std::int32_t>().size(); ++i)
    t.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % 5);
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

struct Outcome {
  std::vector<double> losses;
  Tensor w1, w2;
};

// Runs 10 steps, `per_run` of them in each run.
Outcome train(DeviceId device, Mode mode, std::int64_t per_run) {
  Training m;
  Program p = compile(m.g, {.target = device});
  p.write(m.x, images(per_run));
  p.write(m.t, labels(per_run));
  for (std::int64_t done = 0; done < 10; done += per_run) p.run(mode, {.steps = per_run});
  return {p.records<double>("loss"), m.w1.read(), m.w2.read()};
}

TEST_P(OnDevice, AllModesGiveTheSameBits) {
  for (std::int64_t per_run : {1, 5, 10}) {
    Outcome first = train(GetParam(), interactive_serial, per_run);
    ASSERT_EQ(first.losses.size(), 10u);
    if (per_run == 1) {
      EXPECT_LT(first.losses.back(), first.losses.front()) << "the same batch again and again";
    }
    for (Mode mode : {interactive_parallel, sink}) {
      SCOPED_TRACE(to_string(mode));
      Outcome other = train(GetParam(), mode, per_run);
      EXPECT_EQ(first.losses, other.losses);
      EXPECT_TRUE(same_bits(first.w1, other.w1));
      EXPECT_TRUE(same_bits(first.w2, other.w2));
    }
  }
}

TEST_P(OnDevice, ASunkStepIsOneLaunch) {
  Training m;
  Program p = compile(m.g);
  p.write(m.x, images(1));
  p.write(m.t, labels(1));
  p.run(sink);  // the first step runs op by op
  p.run(sink);
  Counters before = p.counters();
  p.run(sink);
  Counters after = p.counters();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  EXPECT_LE(after.api_calls - before.api_calls, 3u);
  EXPECT_EQ(after.fallbacks, 0u);
  EXPECT_EQ(after.captures, 1u);
  ASSERT_TRUE(p.captured().has_value());
  EXPECT_EQ(p.captured()->conditional_nodes, 0);
}

TEST_P(OnDevice, ManyStepsAreOneLaunchWithOneLoop) {
  Training m;
  Program p = compile(m.g);
  p.write(m.x, images(8));
  p.write(m.t, labels(8));
  p.run(sink, {.steps = 8});
  Counters before = p.counters();
  p.run(sink, {.steps = 8});
  Counters after = p.counters();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  EXPECT_LE(after.api_calls - before.api_calls, 3u);
  ASSERT_TRUE(p.captured(LaunchOf::several_steps).has_value());
  EXPECT_EQ(p.captured(LaunchOf::several_steps)->conditional_nodes, 1);
  EXPECT_EQ(p.steps(), 16);
  EXPECT_EQ(p.records("loss").size(), 16u);
}

TEST_P(OnDevice, BranchesOnSeveralStreamsGiveTheSameBits) {
  std::vector<std::vector<double>> sums;
  for (Mode mode : kModes) {
    for (std::int64_t per_run : {1, 6}) {
      Graph g;
      Value x = g.feed("x", f32, {300});
      Variable w("w", Tensor::uniform({300}, 5));
      std::vector<Value> ends;
      for (int branch = 0; branch < 5; ++branch) {
        Value y = x * w + static_cast<double>(branch);
        for (int i = 0; i < 6; ++i) y = i % 2 ? tanh(y) : y * 1.5;
        ends.push_back(y);
      }
      Value total = ends[0];
      for (std::size_t i = 1; i < ends.size(); ++i) total = total + ends[i];
      assign(w, total * 0.1);
      g.record("sum", sum(total));
      Program p = compile(g, {.tuning = {.fuse = false}});
      EXPECT_EQ(plan_of(p).streams, std::min(5, p.target().max_streams));
      p.write(x, Tensor::uniform({6, 300}, 9));
      if (per_run == 1) p.write(x, Tensor::uniform({300}, 9));
      for (std::int64_t done = 0; done < 6; done += per_run) p.run(mode, {.steps = per_run});
      sums.push_back(p.records<double>("sum"));
      ASSERT_EQ(sums.back().size(), 6u);
      if (mode == sink) {
        EXPECT_EQ(p.counters().fallbacks, 0u);
        EXPECT_EQ(p.counters().graph_launches, per_run == 1 ? 5u : 1u);
      }
    }
  }
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_EQ(sums[0], sums[4]);
  EXPECT_EQ(sums[1], sums[3]);
  EXPECT_EQ(sums[1], sums[5]);
}

TEST_P(OnDevice, FeedsAreReadFromTheSliceOfTheStep) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable total("total", Tensor({0.0f}));
  assign(total, g.value(total) * 10.0 + x);
  g.record("x", sum(x));
  for (Mode mode : kModes) {
    total.write(Tensor({0.0f}));
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 2, 3, 4});
    p.run(mode, {.steps = 4});
    EXPECT_EQ(p.records("x"), (std::vector<float>{1, 2, 3, 4})) << to_string(mode);
    EXPECT_EQ(total.read().at(0), 1234.0) << to_string(mode);
  }
}

TEST_P(OnDevice, CpuOnlyOpIsPartOfTheLaunch) {
  Graph g;
  Value x = g.input("x", f32, {300});
  g.output("y", emit(cpu_plus_one, {x * 2.0})[0] * 3.0);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float v : {1.0f, 5.0f, 7.0f}) {
      p.write(x, std::vector<float>(300, v));
      p.run(mode);
      EXPECT_EQ(p.output("y").at(299), (v * 2 + 1) * 3);
    }
    if (mode == sink) {
      EXPECT_EQ(p.counters().graph_launches, 2u);
      EXPECT_EQ(p.counters().fallbacks, 0u);
      EXPECT_EQ(p.captured()->host_nodes, is_cuda() ? 1 : 0);
      EXPECT_EQ(p.captured()->copies, is_cuda() ? 2 : 0);
    }
  }
}

TEST_P(OnDevice, OneInputWithTwoShapes) {
  Graph g;
  Value x = g.input("x", f32, {open(4), 3});
  g.output("mean", mean(x * 2.0, {0}));
  for (Mode mode : kModes) {
    Program p = compile(g, {.tuning = {.capture_after = 1}});
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t n : {4, 50}) {
        Tensor t = Tensor::full(f32, {n, 3}, static_cast<double>(n + round));
        p.write(x, t);
        p.run(mode);
        EXPECT_EQ(p.output("mean").at(2), 2.0 * static_cast<double>(n + round)) << to_string(mode);
      }
    }
    if (mode == sink) {
      EXPECT_EQ(p.counters().captures, 2u);
    }
  }
}

TEST_P(OnDevice, ShapesOfTwoInputsChangeTogether) {
  Graph g;
  Value x = g.input("x", f32, {open(4), 2}), t = g.input("t", i32, {open(4)});
  g.output("loss", cross_entropy(x, t));
  Program p = compile(g);
  for (std::int64_t n : {4, 7}) {
    p.write(x, Tensor(f32, {n, 2}));
    p.write(t, Tensor(i32, {n}));
    p.run();
    EXPECT_NEAR(p.output("loss").at(0), std::log(2.0), 1e-6);
  }
  p.write(x, Tensor(f32, {5, 2}));
  EXPECT_THROW(p.run(), Error) << "t still has 7 rows";
  p.write(t, Tensor(i32, {5}));
  p.run();
  EXPECT_NEAR(p.output("loss").at(0), std::log(2.0), 1e-6);
}

TEST_P(OnDevice, ProgramsShareVariables) {
  Training m;
  Graph eval;
  Value x = eval.input("x", f32, {6, 12});
  eval.output("logits", matmul(relu(matmul(x, m.w1)), m.w2));
  Program train = compile(m.g);
  Program test = compile(eval);
  train.write(m.x, images(1));
  train.write(m.t, labels(1));
  test.write(x, Tensor::uniform({6, 12}, 3));
  test.run();
  Tensor before = test.output("logits");
  for (int i = 0; i < 5; ++i) train.run();
  test.run();
  EXPECT_FALSE(same_bits(before, test.output("logits")));
}

TEST_P(OnDevice, LearningRateMayBeWrittenBetweenRuns) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable w("w", Tensor({1.0f}));
  Optimizer opt = sgd(sum(w * x), {w}, {.lr = 0.5});
  Program p = compile(g);
  p.write(x, std::vector<float>{1});
  for (int i = 0; i < 3; ++i) p.run();
  EXPECT_EQ(w.read().at(0), -0.5);
  opt.lr.write(Tensor::scalar(0.0f));
  p.run();
  EXPECT_EQ(w.read().at(0), -0.5);
}

TEST_P(OnDevice, ScheduleFromTheStepNumber) {
  Graph g;
  Value x = g.feed("x", f32, {1});
  Variable w("w", Tensor({0.0f}));
  Value lr = cast(g.step(), f32) + 1.0;
  sgd(sum(w * x), {w}, {.lr = lr});
  for (Mode mode : kModes) {
    w.write(Tensor({0.0f}));
    Program p = compile(g);
    p.write(x, std::vector<float>{-1});
    p.run(mode, {.steps = 4});
    EXPECT_EQ(w.read().at(0), 1.0 + 2.0 + 3.0 + 4.0) << to_string(mode);
  }
}

TEST_P(OnDevice, RecordsAreNeverOnlyTheLast) {
  Graph g;
  Variable n("n", Tensor::scalar(0.0f));
  Value next = g.value(n) + 1.0;
  assign(n, next);
  g.record("n", next);
  Program p = compile(g);
  p.run(sink, {.steps = 3});
  EXPECT_EQ(p.records("n"), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(p.records("n").empty());
  p.run(sink, {.steps = 2});
  p.run(interactive);
  EXPECT_EQ(p.records("n"), (std::vector<float>{4, 5, 6}));
}

struct Log {
  std::shared_ptr<std::vector<int>> seen;
  int number = 0;
};
void append_to_log(const CpuArgs& a) {
  const auto& log = a.attrs<Log>();
  log.seen->push_back(log.number);
  std::copy_n(a.in<float>(0), a.in_type(0).shape.size(), a.out<float>(0));
}
const OpDef logs{
    .name = "logs", .infer = testing::infer_like_first, .traits = {.host_effect = true}, .bodies = {append_to_log}};

TEST_P(OnDevice, EffectsComeInTheOrderOfTheGraph) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    auto seen = std::make_shared<std::vector<int>>();
    Graph g;
    Value x = g.input("x", f32, {4});
    std::vector<Value> chains;
    for (int i = 0; i < 4; ++i) chains.push_back(x * (1.0 + i));
    for (int i = 0; i < 12; ++i) {
      Value& chain = chains[static_cast<std::size_t>(i % 4)];
      for (int k = 0; k < (i * 5) % 4; ++k) chain = tanh(chain);
      chain = emit(logs, {chain}, Log{seen, i})[0];
    }
    g.output("y", chains[0] + chains[1] + chains[2] + chains[3]);
    Program p = compile(g);
    p.write(x, std::vector<float>(4, 1.0f));
    for (int run = 0; run < 2; ++run) {
      seen->clear();
      p.run(mode);
      p.sync();
      std::vector<int> wanted(12);
      std::iota(wanted.begin(), wanted.end(), 0);
      EXPECT_EQ(*seen, wanted);
    }
  }
}

TEST(OnCpu, InteractivePushesEveryNodeAndTheSinkOne) {
  Training m;
  Program p = graphsink::compile(m.g);
  p.write(m.x, images(1));
  p.write(m.t, labels(1));
  p.run(sink);
  p.sync();
  std::uint64_t start = p.counters().api_calls;
  p.run(interactive);
  std::uint64_t interactive_pushes = p.counters().api_calls - start;
  start = p.counters().api_calls;
  p.run(sink);
  EXPECT_EQ(p.counters().api_calls - start, 1u);
  EXPECT_EQ(interactive_pushes, plan_of(p).nodes.size() + 1) << "one for each node, and the launch parameters";
}

TEST(OnCpu, RecordsGoRoundTheirRing) {
  constexpr std::int64_t kSteps = kRecordCapacity * 2 / 3;
  Graph g;
  Variable n("n", Tensor::scalar(0.0f));
  Value next = g.value(n) + 1.0;
  assign(n, next);
  g.record("n", next);
  Program p = graphsink::compile(g);
  for (std::int64_t first : {std::int64_t{1}, kSteps + 1, 2 * kSteps + 1}) {
    p.run(sink, {.steps = kSteps});
    std::vector<float> wanted(static_cast<std::size_t>(kSteps));
    std::iota(wanted.begin(), wanted.end(), static_cast<float>(first));
    EXPECT_TRUE(p.records("n") == wanted) << "from " << first;
  }
}

TEST(Eager, RunsEachOpAsItIsCalled) {
  for (DeviceId device : testing::devices()) {
    Eager eager(device);
    Value x = eager.tensor({1, 2}), y = eager.tensor({3, 4});
    Value m = x * y, n = x - y;
    std::ostringstream text;
    text << m;
    EXPECT_EQ(text.str(), "f32[2] [3, 8]");
    Value z = m + n;
    EXPECT_EQ(Eager::read(z).at(1), 6.0);
    EXPECT_EQ(Eager::read(sum(z * 2.0)).at(0), 14.0);
  }
}

TEST(Eager, AnOpThatThrowsIsNamedAndTheNextOneRuns) {
  Eager eager;
  Value bad = eager.tensor({-1, 2}), good = eager.tensor({1, 2});
  for (int i = 0; i < 2; ++i) {
    try {
      emit(testing::cpu_refuse_negative, {bad});
      FAIL() << "expected an exception";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "refuse_negative");
      EXPECT_EQ(e.problem(), "its body threw: negative input");
    }
    EXPECT_EQ(Eager::read(emit(testing::cpu_refuse_negative, {good})[0]).at(1), 2.0);
  }
}

TEST(Eager, AFailingOpThrowsAndTheNextOneRuns) {
  for (DeviceId device : testing::devices()) {
    Eager eager(device);
    Value logits = eager.tensor(Tensor(f32, {2, 3}));
    Value good = eager.tensor(Tensor(i32, {2})), bad = eager.tensor(Tensor::full(i32, {2}, 3));
    for (int i = 0; i < 2; ++i) {
      try {
        cross_entropy(logits, bad);
        ADD_FAILURE() << "3 is not a class";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), "cross_entropy");
      }
      EXPECT_NEAR(Eager::read(cross_entropy(logits, good)).at(0), std::log(3.0), 1e-6);
    }
  }
}

}  // namespace
}  // namespace graphsink::program_test
