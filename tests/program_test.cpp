// Programs on every device of the build: all modes give the same bits, and the hard cases hold.
#include "graphsink/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink {
namespace {

using testing::cpu_plus_one;
using testing::cpu_refuse_negative;

constexpr Mode kModes[] = {Mode::interactive_serial, Mode::interactive_parallel, Mode::sink};

class OnDevice : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g, CompileOptions options = {}) {
    options.target = GetParam();
    return graphsink::compile(g, options);
  }
  bool is_cuda() const { return GetParam().kind == DeviceKind::cuda; }
};

std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::ValuesIn(testing::devices()), device_name);

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

// 10 steps, `per_run` of them in each run.
Outcome train(DeviceId device, Mode mode, std::int64_t per_run) {
  Training m;
  Program p = compile(m.g, {.target = device});
  p.write(m.x, images(per_run));
  p.write(m.t, labels(per_run));
  for (std::int64_t done = 0; done < 10; done += per_run) p.run(mode, {.steps = per_run});
  return {p.read<double>("loss"), m.w1.read(), m.w2.read()};
}

TEST_P(OnDevice, AllModesGiveTheSameBits) {
  for (std::int64_t per_run : {1, 5, 10}) {
    Outcome first = train(GetParam(), Mode::interactive_serial, per_run);
    ASSERT_EQ(first.losses.size(), 10u);
    if (per_run == 1) {
      EXPECT_LT(first.losses.back(), first.losses.front()) << "the same batch again and again";
    }
    for (Mode mode : {Mode::interactive_parallel, Mode::sink}) {
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
  p.run(sink);  // the first step is real and interactive
  p.run(sink);
  Counters before = p.counters();
  p.run(sink);
  Counters after = p.counters();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  EXPECT_LE(after.api_calls - before.api_calls, 3u);
  EXPECT_EQ(after.fallbacks, 0u);
  EXPECT_EQ(after.recordings, 1u);
  ASSERT_TRUE(p.recording().has_value());
  EXPECT_EQ(p.recording()->conditional_nodes, 0);
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
  ASSERT_TRUE(p.recording(true).has_value());
  EXPECT_EQ(p.recording(true)->conditional_nodes, 1);
  EXPECT_EQ(p.steps(), 16);
  EXPECT_EQ(p.read("loss").size(), 16u);
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
      Program p = compile(g);
      EXPECT_EQ(p.plan().streams, std::min(5, p.target().max_streams));
      p.write(x, Tensor::uniform({6, 300}, 9));
      if (per_run == 1) p.write(x, Tensor::uniform({300}, 9));
      for (std::int64_t done = 0; done < 6; done += per_run) p.run(mode, {.steps = per_run});
      sums.push_back(p.read<double>("sum"));
      ASSERT_EQ(sums.back().size(), 6u);
      if (mode == Mode::sink) {
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
    EXPECT_EQ(p.read("x"), (std::vector<float>{1, 2, 3, 4})) << to_string(mode);
    EXPECT_EQ(total.read().at(0), 1234.0) << to_string(mode);
  }
}

TEST_P(OnDevice, LoopIsAConditionalNode) {
  Graph g;
  Value u0 = g.input("u0", f32, {3});
  Value limit = g.input("limit", f32, {});
  Value zero = g.constant(Tensor::scalar(0));
  auto [u, n] = while_(
      {u0, zero}, [&](Value s, Value) { return sum(s) < limit; },
      [](Value s, Value i) {
        return std::array{s * 2.0, i + 1};
      });
  g.output("u", u);
  g.output("n", n);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    p.write(u0, std::vector<float>{1, 2, 3});
    for (auto [bound, wanted] : {std::pair{100.0f, 5}, {1.0f, 0}, {7.0f, 1}}) {
      p.write(limit, std::vector<float>{bound});
      p.run(mode);
      p.run(mode);
      EXPECT_EQ(p.read_output("n").at(0), wanted);
      EXPECT_EQ(p.read_output("u").at(2), 3.0 * std::pow(2.0, wanted));
    }
    if (mode == Mode::sink) {
      EXPECT_EQ(p.recording()->conditional_nodes, 1);
      EXPECT_EQ(p.counters().fallbacks, 0u);
      EXPECT_EQ(p.counters().graph_launches, 5u);
    }
  }
}

TEST_P(OnDevice, LoopStateMaySwap) {
  Graph g;
  Value a = g.input("a", f32, {2}), b = g.input("b", f32, {2});
  Value zero = g.constant(Tensor::scalar(0));
  auto [x, y, n] = while_(
      {a, b, zero}, [](Value, Value, Value i) { return i < 3; },
      [](Value s, Value t, Value i) {
        return std::array{t, s, i + 1};
      });
  g.output("x", x);
  g.output("y", y);
  for (Mode mode : kModes) {
    Program p = compile(g);
    p.write(a, std::vector<float>{1, 2});
    p.write(b, std::vector<float>{3, 4});
    for (int i = 0; i < 2; ++i) p.run(mode);
    EXPECT_EQ(p.read_output("x").at(0), 3.0) << to_string(mode);
    EXPECT_EQ(p.read_output("y").at(1), 2.0) << to_string(mode);
  }
}

TEST_P(OnDevice, BranchIsAConditionalNode) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Value y = if_(
      sum(x) > 0.0, [&] { return x * 2.0; }, [&] { return tanh(x) - 1.0; });
  g.output("y", y);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float sign : {1.0f, -1.0f, 1.0f}) {
      p.write(x, std::vector<float>(4, sign));
      p.run(mode);
      EXPECT_NEAR(p.read_output("y").at(3), sign > 0 ? 2.0 : std::tanh(-1.0) - 1.0, 1e-6);
    }
    if (mode == Mode::sink) {
      EXPECT_EQ(p.recording()->conditional_nodes, 1);
      EXPECT_EQ(p.counters().fallbacks, 0u);
    }
  }
}

TEST_P(OnDevice, BranchInsideALoop) {
  Graph g;
  Value x = g.input("x", f32, {});
  Value zero = g.constant(Tensor::scalar(0));
  // Collatz: steps until 1.
  auto [last, n] = while_(
      {x, zero}, [](Value v, Value) { return v > 1.0; },
      [](Value v, Value i) {
        Value half = v * 0.5;
        Value is_even = equal(cast(cast(half, i32), f32), half);
        Value next = if_(
            is_even, [&] { return half * 1.0; }, [&] { return v * 3.0 + 1.0; });
        return std::array{next, i + 1};
      });
  g.output("n", n);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (auto [start, wanted] : {std::pair{6.0f, 8}, {27.0f, 111}, {1.0f, 0}}) {
      p.write(x, std::vector<float>{start});
      p.run(mode);
      EXPECT_EQ(p.read_output("n").at(0), wanted);
    }
    if (mode == Mode::sink) {
      EXPECT_EQ(p.recording()->conditional_nodes, 2);
    }
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
      EXPECT_EQ(p.read_output("y").at(299), (v * 2 + 1) * 3);
    }
    if (mode == Mode::sink) {
      EXPECT_EQ(p.counters().graph_launches, 2u);
      EXPECT_EQ(p.counters().fallbacks, 0u);
      EXPECT_EQ(p.recording()->host_nodes, is_cuda() ? 1 : 0);
      EXPECT_EQ(p.recording()->copies, is_cuda() ? 2 : 0);
    }
  }
}

TEST_P(OnDevice, CpuOnlyOpInALoopIsDrivenByTheHost) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto [y] = while_(
      {x * 1.0}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0] * 1.5; });
  g.output("y", y + 0.25);
  std::vector<double> results;
  for (Mode mode : kModes) {
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 3; ++i) p.run(mode);
    results.push_back(p.read_output("y").at(1));
    if (mode == Mode::sink && is_cuda()) {
      EXPECT_EQ(p.counters().graph_launches, 4u) << "two islands, twice";
    }
  }
  EXPECT_GT(results[0], 10.0);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(OnDevice, RequireWholeGraphTurnsTheReasonIntoAnError) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0]; });
  g.output("y", y);
  if (!is_cuda()) {
    EXPECT_NO_THROW(compile(g, {.require_whole_graph = true}));
    return;
  }
  try {
    compile(g, {.require_whole_graph = true});
    FAIL() << "a loop driven by the host is not one launch";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cpu_plus_one"), std::string::npos) << e.what();
    EXPECT_FALSE(e.remedy().empty());
  }
}

TEST_P(OnDevice, AnIslandMayEndWithWorkOnSeveralStreams) {
  std::vector<double> results;
  for (Mode mode : kModes) {
    Graph g;
    Value x = g.input("x", f32, {2});
    Value a = x * 1.0, b = x * 2.0;
    for (int i = 0; i < 4; ++i) {
      a = tanh(a);
      b = tanh(b);
    }
    auto [y] = while_(
        {x * 3.0}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0] * 1.5; });
    g.output("sum", a + b + y);
    Program p = compile(g);
    EXPECT_EQ(p.plan().streams, 2);
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 3; ++i) p.run(mode);
    results.push_back(p.read_output("sum").at(1));
    EXPECT_EQ(p.counters().fallbacks, 0u) << to_string(mode);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(OnDevice, OneInputWithTwoShapes) {
  Graph g;
  Value x = g.input("x", f32, {open(4), 3});
  g.output("mean", mean(x * 2.0, {0}));
  for (Mode mode : kModes) {
    Program p = compile(g);
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t n : {4, 50}) {
        Tensor t = Tensor::full(f32, {n, 3}, static_cast<double>(n + round));
        p.write(x, t);
        p.run(mode);
        EXPECT_EQ(p.read_output("mean").at(2), 2.0 * static_cast<double>(n + round)) << to_string(mode);
      }
    }
    if (mode == Mode::sink) {
      EXPECT_EQ(p.counters().recordings, 2u);
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
    EXPECT_NEAR(p.read_output("loss").at(0), std::log(2.0), 1e-6);
  }
  p.write(x, Tensor(f32, {5, 2}));
  EXPECT_THROW(p.run(), Error) << "t still has 7 rows";
  p.write(t, Tensor(i32, {5}));
  p.run();
  EXPECT_NEAR(p.read_output("loss").at(0), std::log(2.0), 1e-6);
}

TEST_P(OnDevice, ThrowingCpuOpFailsTheStepAndCommitsNothing) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.input("x", f32, {1});
    Variable w("w", Tensor({10.0f}));
    assign(w, g.value(w) + emit(cpu_refuse_negative, {x})[0]);
    Program p = compile(g);
    for (int i = 0; i < 3; ++i) {
      p.write(x, std::vector<float>{1});
      p.run(mode);
    }
    p.sync();
    p.write(x, std::vector<float>{-1});
    p.run(mode);
    try {
      p.sync();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "refuse_negative");
      EXPECT_NE(std::string(e.what()).find("negative input"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("program_test.cpp"), std::string::npos) << e.what();
    }
    EXPECT_EQ(w.read().at(0), 13.0);
    EXPECT_EQ(p.steps(), 3);
    p.write(x, std::vector<float>{2});
    p.run(mode);
    p.sync();
    EXPECT_EQ(w.read().at(0), 15.0);
    EXPECT_EQ(p.steps(), 4);
  }
}

TEST_P(OnDevice, NonFiniteValueFailsTheStepAndNamesTheOp) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Graph g;
    Value x = g.feed("x", f32, {4});
    Variable w("w", Tensor({1.0f, 1.0f, 1.0f, 1.0f}));
    assign(w, exp(x) * w);
    g.record("s", sum(x));
    Program p = compile(g, {.check_finite = true});
    p.write(x, std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 0});
    p.run(mode, {.steps = 4});
    try {
      p.sync();
      FAIL() << "the failure was not reported";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "exp");
      EXPECT_NE(std::string(e.what()).find("step 2"), std::string::npos) << e.what();
    }
    EXPECT_EQ(p.steps(), 2) << "the failed step and those after it in the launch commit nothing";
    EXPECT_EQ(w.read().at(0), 1.0);
    p.write(x, std::vector<float>{0, 0, 0, 0});
    p.run(mode);
    p.sync();
    EXPECT_EQ(p.steps(), 3);
  }
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
  Tensor before = test.read_output("logits");
  for (int i = 0; i < 5; ++i) train.run();
  test.run();
  EXPECT_FALSE(same_bits(before, test.read_output("logits")));
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
  EXPECT_EQ(p.read("n"), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(p.read("n").empty());
  p.run(sink, {.steps = 2});
  p.run(interactive);
  EXPECT_EQ(p.read("n"), (std::vector<float>{4, 5, 6}));
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
  EXPECT_EQ(interactive_pushes, p.plan().nodes.size() + 1) << "one for each node, and the launch parameters";
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

}  // namespace
}  // namespace graphsink
