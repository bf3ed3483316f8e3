// Loops and branches that the host drives: what a launch can hold of their bodies is captured once and launched in each
// iteration.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "cuda_ops.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::cuda_body_launches_test {
namespace {

using testing::breaks_op;
using testing::contains;
using testing::cpu_plus_one;
using testing::message_of;
using testing::outside_op;
using testing::waits_op;

using Body = std::function<Value(const Value&)>;

Value on_host(const Value& v) { return emit(cpu_plus_one, {v})[0]; }

// Loops from x until `count` iterations are done.
Value repeat(const Value& x, const Value& count, const Body& body) {
  Value zero = count * 0.0;
  auto [s, n] = while_(
      {x, zero}, [&](Value, Value i) { return i < count; },
      [&](Value state, Value i) {
        return std::array{body(state), i + 1.0};
      });
  return s;
}

// y is what `build` makes of x: f32 [4], and n, a scalar. The total is the sum of y over all steps.
struct Model {
  Graph g;
  Value x = g.input("x", f32, {4}), n = g.input("n", f32, {});
  Variable total{"total", Tensor(f32, {4})};
  explicit Model(const std::function<Value(Graph&, const Value& x, const Value& n)>& build) {
    const Value y = build(g, x, n);
    g.output("y", y);
    assign(total, g.value(total) + y);
  }
  Program compile(CompileOptions options = {}) {
    options.target = cuda(0);
    Program p = graphsink::compile(g, options);
    p.write(x, std::vector<float>{0.5f, -1, 2, 0.25f});
    return p;
  }
};

std::vector<double> values(const Tensor& tensor) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < tensor.shape().size(); ++i) result.push_back(tensor.at(i));
  return result;
}

class CudaBodyLaunches : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }

  struct Row {
    float n = 0;
    std::uint64_t launches = 0;  // of a step
  };
  // In the modes that sink, each step takes so many launches where no ops are fused, and in all modes it has the same
  // bits, fused or not.
  static void expect_launches(const std::function<Value(Graph&, const Value&, const Value&)>& build,
                              const std::vector<Row>& rows) {
    std::vector<std::vector<double>> expected;
    for (Mode mode : kAllModes) {
      if (mode == automatic) continue;
      for (bool fuse : {false, true}) expect_launches(build, rows, mode, fuse, expected);
    }
  }
  static void expect_launches(const std::function<Value(Graph&, const Value&, const Value&)>& build,
                              const std::vector<Row>& rows, Mode mode, bool fuse,
                              std::vector<std::vector<double>>& expected) {
    SCOPED_TRACE(std::string(to_string(mode)) + (fuse ? "" : ", nothing fused"));
    Model model(build);
    Program p = model.compile({.tuning = {.fuse = fuse}});
    std::vector<std::vector<double>> seen;
    p.write(model.n, std::vector<float>{1});
    for (int i = 0; i < 2; ++i) p.run(mode);
    for (const Row& row : rows) {
      p.write(model.n, std::vector<float>{row.n});
      const Counters before = p.counters();
      p.run(mode);
      const Counters after = p.counters();
      const bool sinks = is_sunk(mode);
      const std::uint64_t launches = after.graph_launches - before.graph_launches;
      const std::uint64_t most = sinks ? row.launches : 0, least = fuse ? 0 : most;
      EXPECT_TRUE(launches >= least && launches <= most) << launches << " launches, n is " << row.n << "\n"
                                                         << p.explain();
      EXPECT_EQ(after.captures, before.captures);
      seen.push_back(values(p.output("y")));
      seen.push_back(values(model.total.read()));
    }
    EXPECT_EQ(p.counters().fallbacks, 0u);
    if (expected.empty()) expected = seen;
    EXPECT_EQ(seen, expected);
  }
};

// In a launch that is no body of a conditional node, an op on the host is a host node.
TEST_F(CudaBodyLaunches, ALoopAroundAnOpOnTheHostTakesOneForEachIteration) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        return repeat(x, n, [](const Value& s) { return tanh(on_host(s * 0.5)) + 0.25; });
      },
      {{3, 2 + 3}, {0, 2}, {1, 2 + 1}, {5, 2 + 5}});
}

TEST_F(CudaBodyLaunches, TheHostIssuesWhatCannotBeCapturedBetweenThem) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        return repeat(x, n, [](const Value& s) { return emit(waits_op, {tanh(sum(s) + s)})[0] * 0.5 + s; });
      },
      {{3, 2 + 2 * 3}, {0, 2}, {1, 2 + 2}});
}

TEST_F(CudaBodyLaunches, WhatIsNotAllowedInAConditionalNodeIsInTheLaunch) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        return repeat(x, n, [](const Value& s) { return emit(outside_op, {s * 0.5})[0] + 1.0; });
      },
      {{2, 2 + 2}, {0, 2}});
}

// The last body is one copy, which the host issues with one call.
TEST_F(CudaBodyLaunches, ABranchTakesThoseOfTheBodyThatRuns) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        return if_(
            n > 1.5, [&] { return tanh(on_host(x)) * 2.0; }, [&] { return x; });
      },
      {{2, 2 + 1}, {1, 2}});
}

TEST_F(CudaBodyLaunches, AChoiceTakesThoseOfTheBodyThatRuns) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        return switch_(cast(n, i32), {[&] { return x; }, [&] { return tanh(on_host(x)) * 2.0; },
                                      [&] { return emit(waits_op, {tanh(sum(x) + x)})[0] * 0.5 + x; }});
      },
      {{0, 2}, {1, 2 + 1}, {2, 2 + 2}});
}

// The outer loop launches what is before and after the inner one, which runs twice each time.
TEST_F(CudaBodyLaunches, ALoopInALoopThatTheHostDrivesBoth) {
  expect_launches(
      [](Graph&, const Value& x, const Value& n) {
        const Value two = n * 0.0 + 2.0;
        return repeat(x, n, [&](const Value& s) {
          return tanh(repeat(s * 0.5, two, [](const Value& t) { return on_host(t) * 0.25; })) + 0.125;
        });
      },
      {{3, 2 + 3 * (2 + 2)}, {0, 2}, {1, 2 + 2 + 2}});
}

// A loop and a branch that could be conditional nodes are some, in the launch of the body around them.
TEST_F(CudaBodyLaunches, WhatCanBeAConditionalNodeIsOneInTheLaunch) {
  Model model([](Graph&, const Value& x, const Value& n) {
    return repeat(x, n, [&](const Value& s) {
      Value chosen = if_(
          sum(s) > 1.0, [&] { return s * 0.5; }, [&] { return s + 1.0; });
      return on_host(repeat(chosen, n, [](const Value& t) { return tanh(t) * 1.5; }));
    });
  });
  std::vector<std::vector<double>> seen;
  for (Mode mode : {interactive_serial, sink}) {
    model.total.write(Tensor(f32, {4}));
    Program p = model.compile();
    p.write(model.n, std::vector<float>{3});
    for (int i = 0; i < 3; ++i) p.run(mode);
    seen.push_back(values(model.total.read()));
    if (mode != sink) continue;
    EXPECT_EQ(p.counters().graph_launches, 2 * (2 + 3u)) << p.explain();
    EXPECT_EQ(p.captured()->conditional_nodes, 2);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST_F(CudaBodyLaunches, AVariableThatABodyAssignsIsCommittedOnce) {
  std::vector<double> seen;
  for (Mode mode : {interactive_serial, sink, split_sink}) {
    Graph g;
    Value x = g.input("x", f32, {4}), n = g.input("n", f32, {});
    Variable state("state", Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
    g.output("y", repeat(x, n, [&](const Value& s) {
               assign(state, g.value(state) * 0.5 + on_host(s));
               return s + g.value(state);
             }));
    Program p = compile(g, {.target = cuda(0)});
    p.write(x, std::vector<float>{1, 2, 3, 4});
    p.write(n, std::vector<float>{3});
    for (int i = 0; i < 4; ++i) p.run(mode);
    seen.push_back(state.read().at(2));
    EXPECT_EQ(p.counters().fallbacks, 0u);
    if (mode != interactive_serial) {
      EXPECT_EQ(p.counters().graph_launches, 3 * (2 + 3u));
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

// A step that fails in the middle of its loop commits nothing, and the launches are of use again.
TEST_F(CudaBodyLaunches, AStepThatFailsInALoopCommitsNothing) {
  struct Failing {
    const char* word;
    std::function<Value(const Value& x, const Value& n)> y;
  };
  const Failing rows[] = {
      {"its condition still held after 3 iterations",
       [](const Value& x, const Value& n) {
         return while_(
             {x}, [&](Value s) { return sum(s) < n; }, [](Value s) { return on_host(s) * 1.0; },
             {.max_iterations = 3})[0];
       }},
      {"negative input",
       [](const Value& x, const Value& n) {
         return while_(
             {x}, [&](Value s) { return sum(s) < n; },
             [&](Value s) { return emit(testing::cpu_refuse_negative, {s + (20.0 - n)})[0] + 1.0; })[0];
       }},
  };
  for (const Failing& row : rows) {
    SCOPED_TRACE(row.word);
    Model model([&](Graph&, const Value& x, const Value& n) { return row.y(x, n); });
    Program p = model.compile();
    p.write(model.n, std::vector<float>{10});
    for (int i = 0; i < 3; ++i) p.run(sink);
    const std::vector<double> total = values(model.total.read());
    const std::uint64_t captures = p.counters().captures;
    p.write(model.n, std::vector<float>{30});
    p.run(sink);
    EXPECT_TRUE(contains(message_of([&] { p.sync(); }), row.word));
    EXPECT_EQ(values(model.total.read()), total);
    p.write(model.n, std::vector<float>{10});
    p.run(sink);
    EXPECT_NEAR(model.total.read().at(0), total[0] / 3 * 4, 1e-4);
    EXPECT_EQ(p.counters().captures, captures);
    EXPECT_EQ(p.counters().fallbacks, 0u);
  }
}

// The modes share what is captured of bodies, but that alone is not what sink has captured.
TEST_F(CudaBodyLaunches, WhatSplitSinkHasCapturedDoesNotCountForSink) {
  Model m([](Graph&, const Value& x, const Value& n) {
    return repeat(tanh(on_host(x)), n, [](const Value& s) { return tanh(on_host(s)) * 2.0; });
  });
  Program p = m.compile();
  p.write(m.n, std::vector<float>{2});
  for (int i = 0; i < 2; ++i) p.run(split_sink);
  EXPECT_GT(p.counters().captures, 0u);
  EXPECT_FALSE(p.captured()) << p.explain();
  for (int i = 0; i < 2; ++i) p.run(sink);
  EXPECT_TRUE(p.captured());
}

// What was captured of bodies is dropped with the shapes, and counts towards what a program keeps for them.
TEST_F(CudaBodyLaunches, EachSetOfShapesHasItsOwn) {
  Graph g;
  Value x = g.input("x", f32, {open(4)}), n = g.input("n", f32, {});
  g.output("y", repeat(x, n, [](const Value& s) { return tanh(on_host(s)) * 2.0; }));
  Program p = compile(g, {.target = cuda(0),
                          .tuning = {.capture_after = 1},
                          .limits = {.shape_cache_shapes = 2},
                          .log = [](LogLevel, std::string_view) {}});
  p.write(n, std::vector<float>{2});
  auto run = [&](int size) {
    p.write(x, std::vector<float>(static_cast<std::size_t>(size), 0.5f));
    for (int i = 0; i < 2; ++i) p.run(sink);
    EXPECT_EQ(p.output("y").shape(), Shape({size}));
    return p.counters();
  };
  const Counters first = run(3);
  EXPECT_EQ(first.captures, 3u) << "two islands and a body";
  EXPECT_EQ(first.graph_launches, 2 + 2u);
  EXPECT_GE(static_cast<std::size_t>(p.captured()->bytes), std::size_t{10} << 10);
  const Counters second = run(5);
  EXPECT_EQ(second.captures, 6u);
  EXPECT_EQ(run(3).captures, 6u) << "they are still there";
  const Counters third = run(7);
  EXPECT_EQ(third.captures, 9u);
  EXPECT_EQ(third.evicted_shapes, 1u);
  EXPECT_EQ(run(5).captures, 12u) << "captured again";
  const Counters last = p.counters();
  EXPECT_EQ(last.graph_updates + last.graph_update_refusals, 6u) << "those of dropped shapes, twice";
  EXPECT_EQ(p.counters().fallbacks, 0u);
}

TEST_F(CudaBodyLaunches, ABodyThatCannotBeCapturedAfterAllRunsOpByOpAndSaysWhy) {
  Model model([](Graph&, const Value& x, const Value& n) {
    return repeat(x, n, [](const Value& s) { return emit(breaks_op, {on_host(s)})[0] * 0.5; });
  });
  Program p = model.compile({.log = [](LogLevel, std::string_view) {}});
  p.write(model.n, std::vector<float>{2});
  p.run(interactive_serial);
  const double once = model.total.read().at(0);
  for (int i = 0; i < 5; ++i) p.run(sink);
  EXPECT_EQ(model.total.read().at(0), 6 * once);
  EXPECT_EQ(p.counters().graph_launches, 0u);
  EXPECT_EQ(p.counters().fallbacks, 5u);
  EXPECT_TRUE(contains(p.explain(), "a step runs op by op")) << p.explain();
  EXPECT_TRUE(contains(p.explain(), "breaks")) << p.explain();
}

}  // namespace
}  // namespace graphsink::cuda_body_launches_test
