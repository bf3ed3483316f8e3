// Loops and branches of programs. They become conditional nodes if the bodies allow it; otherwise the host drives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "api/plan_of.h"
#include "program_fixture.h"

namespace graphsink::control_flow_test {
namespace {

using testing::cpu_plus_one;
using testing::kModes;
using testing::OnDevice;

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
      EXPECT_EQ(p.output("n").at(0), wanted);
      EXPECT_EQ(p.output("u").at(2), 3.0 * std::pow(2.0, wanted));
    }
    if (mode == sink) {
      EXPECT_EQ(p.captured()->conditional_nodes, 1);
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
    EXPECT_EQ(p.output("x").at(0), 3.0) << to_string(mode);
    EXPECT_EQ(p.output("y").at(1), 2.0) << to_string(mode);
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
      EXPECT_NEAR(p.output("y").at(3), sign > 0 ? 2.0 : std::tanh(-1.0) - 1.0, 1e-6);
    }
    if (mode == sink) {
      EXPECT_EQ(p.captured()->conditional_nodes, 1);
      EXPECT_EQ(p.counters().fallbacks, 0u);
    }
  }
}

// The memory of a body must not overlap the memory of its results, nor that of values that are still needed afterwards.
TEST_P(OnDevice, ValuesLiveOnBesideABranchAndALoop) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Value before = x * 3.0, also = x + 7.0;
  Value chosen = if_(
      sum(x) > 0.0, [&] { return tanh(x * 2.0) + before; }, [&] { return before - also * 2.0; });
  Value zero = g.constant(Tensor::scalar(0));
  auto [sum_of_squares, n] = while_(
      {chosen, zero}, [](Value, Value i) { return i < 3; },
      [&](Value s, Value i) {
        Value next = if_(
            i > 0, [&] { return s * s + also; }, [&] { return s + before * 2.0; });
        return std::array{next, i + 1};
      });
  g.output("y", sum_of_squares + chosen + before + also);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float v : {0.5f, -1.0f, 0.25f}) {
      p.write(x, std::vector<float>(4, v));
      p.run(mode);
      double b = v * 3, a = v + 7, c = v > 0 ? std::tanh(v * 2) + b : b - a * 2, s = c + b * 2;
      for (int i = 0; i < 2; ++i) s = s * s + a;
      EXPECT_NEAR(p.output("y").at(3), s + c + b + a, 1e-5 * std::abs(s));
    }
  }
}

TEST_P(OnDevice, BranchInsideALoop) {
  Graph g;
  Value x = g.input("x", f32, {});
  Value zero = g.constant(Tensor::scalar(0));
  // The Collatz sequence: counts the iterations until 1.
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
      EXPECT_EQ(p.output("n").at(0), wanted);
    }
    if (mode == sink) {
      EXPECT_EQ(p.captured()->conditional_nodes, 2);
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
    results.push_back(p.output("y").at(1));
    if (mode == sink && is_cuda()) {
      EXPECT_EQ(p.counters().graph_launches, 2 * (2 + 3u)) << "two islands and three iterations, twice";
    }
  }
  EXPECT_GT(results[0], 10.0);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// What a body copies to the host exists there only if the body runs.
TEST_P(OnDevice, CpuOnlyOpsInABranchAndAfterItUseTheSameValue) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value doubled = x * 2.0;
  Value inside = if_(
      sum(x) > 0.0, [&] { return emit(cpu_plus_one, {doubled})[0]; }, [&] { return doubled * 1.0; });
  g.output("sum", inside + emit(cpu_plus_one, {doubled})[0]);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float v : {-1.0f, 2.0f, -3.0f}) {
      p.write(x, std::vector<float>{v, v});
      p.run(mode);
      EXPECT_EQ(p.output("sum").at(1), v * 4 + (v > 0 ? 2 : 1));
    }
  }
}

TEST_P(OnDevice, CpuOnlyOpsInALoopAndAfterItUseTheSameValue) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value doubled = x * 2.0;
  auto [looped] = while_(
      {x * 1.0}, [](Value s) { return sum(s) < 0.0; }, [&](Value s) { return s - emit(cpu_plus_one, {doubled})[0]; });
  g.output("sum", looped + emit(cpu_plus_one, {doubled})[0]);
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float v : {3.0f, -2.0f, 5.0f}) {
      p.write(x, std::vector<float>{v, v});
      p.run(mode);
      EXPECT_EQ(p.output("sum").at(1), v > 0 ? v * 3 + 1 : v) << "no iteration, or one";
    }
  }
}

TEST_P(OnDevice, RequireWholeGraphTurnsAllReasonsIntoAnError) {
  Graph g;
  Value x = g.input("x", f32, {2});
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 20.0; }, [](Value s) { return emit(cpu_plus_one, {s})[0]; });
  auto [z] = while_(
      {x}, [](Value s) { return sum(s) < 10.0; }, [](Value s) { return emit(cpu_plus_one, {s * 2.0})[0]; });
  g.output("y", y);
  g.output("z", z);
  if (!is_cuda()) {
    EXPECT_NO_THROW(compile(g, {.require_whole_graph = true}));
    return;
  }
  try {
    compile(g, {.require_whole_graph = true});
    FAIL() << "a loop driven by the host is not one launch";
  } catch (const Error& e) {
    std::string what = e.what();
    std::size_t first = what.find("a loop is driven by the host");
    ASSERT_NE(first, std::string::npos) << what;
    EXPECT_NE(what.find("a loop is driven by the host", first + 1), std::string::npos) << "every reason: " << what;
    EXPECT_NE(what.find("cpu_plus_one in its body runs on the host"), std::string::npos) << what;
    EXPECT_EQ(e.remedy(), "give its OpDef a CUDA body");
  }
}

void count_call(const CpuArgs& a) {
  ++*a.attrs<std::shared_ptr<int>>();
  std::copy_n(a.in<float>(0), a.in_type(0).shape.size(), a.out<float>(0));
}
const OpDef counts_calls{.name = "counts_calls",
                         .infer = testing::infer_like_first,
                         .traits = {.host_effect = true},
                         .bodies = {count_call}};

// No node uses the results of these ops.
TEST_P(OnDevice, EffectsInBodiesAreNotDropped) {
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    auto calls = std::make_shared<int>(0);
    Graph g;
    Value x = g.input("x", f32, {2});
    auto call = [&](const Value& v) { return emit(counts_calls, {v}, calls)[0]; };
    if_(
        sum(x) > 0.0, [&] { return call(x); }, [&] { return x * 2.0; });
    Value zero = g.constant(Tensor::scalar(0));
    while_(
        {x, zero}, [](Value, Value i) { return i < 3; },
        [&](Value u, Value i) {
          Value next = if_(
              i < 2, [&] { return call(u); }, [&] { return u * 2.0; });
          return std::array{next, i + 1};
        });
    g.output("x", x);
    Program p = compile(g);
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 2; ++i) p.run(mode);
    p.sync();
    EXPECT_EQ(*calls, 6);
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
    Program p = compile(g, {.tuning = {.fuse = false}});
    EXPECT_EQ(plan_of(p).streams, is_cuda() ? 4 : 2) << "there also for the loop, and for what it waits for";
    p.write(x, std::vector<float>{1, 2});
    for (int i = 0; i < 3; ++i) p.run(mode);
    results.push_back(p.output("sum").at(1));
    EXPECT_EQ(p.counters().fallbacks, 0u) << to_string(mode);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// A loop may run as many iterations as its limit allows. If the limit is smaller by one, the step fails, and the error
// names the loop.
TEST_P(OnDevice, ALoopThatReachesItsLimitFailsTheStep) {
  Graph g;
  Value x = g.input("x", f32, {});
  Variable w("w", Tensor::scalar(0.0f));
  auto [y] = while_(
      {x}, [](Value s) { return s < 8.0; }, [](Value s) { return s * 2.0; }, {.max_iterations = 3});
  assign(w, y);
  auto write = [&](Program& p, float start) { p.write(x, std::vector<float>{start}); };
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    for (float start : {1.0f, 4.0f, 9.0f}) {
      write(p, start);
      p.run(mode);
      EXPECT_EQ(w.read().at(0), std::max(8.0f, start));
    }
    for (float start : {0.5f, -1.0f}) {  // without the limit, the second would never end
      write(p, start);
      p.run(mode);
      try {
        p.sync();
        FAIL() << "the limit was not seen";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), "while_");
        EXPECT_NE(std::string(e.what()).find("control_flow_test.cpp"), std::string::npos) << e.what();
        EXPECT_NE(e.problem().find("its condition still held after 3 iterations, in step 3"), std::string::npos)
            << e.what();
      }
      EXPECT_EQ(w.read().at(0), 9.0);
    }
    write(p, 2);
    p.run(mode);
    EXPECT_EQ(w.read().at(0), 8.0);
  }
}

// A condition that draws is evaluated once for each state: the draw that ended the loop is the last one.
TEST_P(OnDevice, TheDrawOfAConditionDecides) {
  int longest = 0, refused = 0;
  // The number of iterations; nothing if the step failed.
  auto iterations = [&](std::uint32_t seed, Mode mode, const WhileOptions& options) {
    Graph g;
    Variable draws("draws", Tensor::scalar(0.0)), last("last", Tensor::scalar(0.0));
    auto [n] = while_(
        {g.constant(Tensor::scalar(0.0))},
        [&](Value i) {
          Value draw = random_uniform(i);
          assign(draws, g.value(draws) + 1.0);
          assign(last, draw);
          return draw < 0.5;
        },
        [](Value i) { return i + 1.0; }, options);
    g.record("n", n);
    g.record("draws", g.value(draws));
    g.record("last", g.value(last));
    Program p = compile(g, {.seed = seed});
    p.run(mode, {.steps = 1});
    try {
      p.sync();
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find("still held after 2 iterations"), std::string::npos) << e.what();
      EXPECT_EQ(options.max_iterations, 2);
      return std::optional<int>();
    }
    const double ran = p.records<double>("n")[0];
    EXPECT_EQ(p.records<double>("draws")[0], ran + 1);
    EXPECT_GE(p.records<double>("last")[0], 0.5);
    return std::optional<int>(static_cast<int>(ran));
  };
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    for (Mode mode : {interactive_serial, sink}) {
      const std::optional<int> ran = iterations(seed, mode, {.max_iterations = 1000});
      ASSERT_TRUE(ran);
      longest = std::max(longest, *ran);
      EXPECT_TRUE(iterations(seed, mode, {}));
      EXPECT_TRUE(iterations(seed, mode, {.max_iterations = 1000, .recompute = true}));
      // The same loop draws the same numbers.
      const std::optional<int> cut = iterations(seed, mode, {.max_iterations = 2});
      EXPECT_EQ(cut, *ran > 2 ? std::nullopt : ran);
      refused += !cut;
    }
  }
  EXPECT_GT(longest, 2);
  EXPECT_GT(refused, 0);
}

// The planner writes out loops that it can count, and the check of the limit with them.
TEST_P(OnDevice, ALimitThatIsReachedByCountingFailsTheStep) {
  for (bool recompute : {false, true})
    for (int bound : {3, 5, 6}) {
      Graph g;
      Variable w("w", Tensor::scalar(0.0f));
      auto [n] = while_(
          {g.constant(Tensor::scalar(0.0f))}, [&](Value i) { return i < bound; }, [](Value i) { return i + 1.0; },
          {.max_iterations = 5, .recompute = recompute});
      assign(w, n);
      Program p = compile(g);
      p.run(sink);
      if (bound > 5) {
        EXPECT_THROW(p.sync(), Error);
      } else {
        EXPECT_EQ(w.read().at(0), bound);
      }
    }
}

TEST_P(OnDevice, AnIndexOfNoBodyFailsTheStep) {
  Graph g;
  Value i = g.input("i", i32, {}), x = g.input("x", f32, {});
  Variable w("w", Tensor::scalar(0.0f));
  assign(w, switch_(i, {[&] { return x; }, [&] { return x * 2.0; }, [&] { return x * 3.0; }}));
  for (Mode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Program p = compile(g);
    p.write(x, std::vector<float>{5});
    auto run = [&](std::int32_t index) {
      p.write(i, std::vector<std::int32_t>{index});
      p.run(mode);
    };
    for (std::int32_t index : {0, 2, 1}) {
      run(index);
      EXPECT_EQ(w.read().at(0), 5.0 * (index + 1));
    }
    for (std::int32_t index : {3, -1}) {
      run(index);
      try {
        p.sync();
        FAIL() << "index " << index << " was taken";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), "switch_");
        EXPECT_NE(std::string(e.what()).find("control_flow_test.cpp"), std::string::npos) << e.what();
        EXPECT_NE(e.problem().find("index " + std::to_string(index) + " is the number of none of its bodies"),
                  std::string::npos)
            << e.what();
      }
      EXPECT_EQ(w.read().at(0), 10.0) << "the failed step committed";
    }
    run(2);
    EXPECT_EQ(w.read().at(0), 15.0);
  }
}

TEST_P(OnDevice, AnIndexOfEveryIntegerTypeChooses) {
  for (DType dtype : {i32, i64, u8}) {
    SCOPED_TRACE(to_string(dtype));
    Graph g;
    Value i = g.input("i", dtype, {}), x = g.input("x", f64, {});
    Value y = switch_(i, {[&] { return x * 2.0; }, [&] { return x * 5.0; }});
    g.output("y", y);
    g.output("slope", grad(y, {x})[0]);
    Program p = compile(g);
    p.write(x, Tensor::scalar(3.0));
    for (Mode mode : kModes) {
      SCOPED_TRACE(to_string(mode));
      for (int index : {1, 0}) {
        p.write(i, Tensor::full(dtype, {}, index));
        p.run(mode);
        EXPECT_EQ(p.output("y").at(0), index == 1 ? 15 : 6);
        EXPECT_EQ(p.output("slope").at(0), index == 1 ? 5 : 2);
      }
      // Numbers whose low bits are those of a body choose none.
      for (double index : {0x1p32, 0x1p32 + 1, -0x1p40, 255.0}) {
        if (dtype == u8 ? index > 255 || index < 0 : dtype == i32 && std::abs(index) > 255) continue;
        p.write(i, Tensor::full(dtype, {}, index));
        p.run(mode);
        try {
          p.sync();
          FAIL() << "index " << index << " was taken";
        } catch (const Error& e) {
          EXPECT_EQ(e.op(), "switch_");
          const std::string wanted = "index " + std::to_string(static_cast<std::int64_t>(index)) + " is the number";
          EXPECT_NE(e.problem().find(wanted), std::string::npos) << e.what();
        }
      }
    }
  }
}

TEST_P(OnDevice, TheLimitOfALoopIsChecked) {
  Graph g;
  Value x = g.input("x", f32, {});
  auto loop = [&](std::int64_t limit) {
    while_(
        {x}, [](Value s) { return s < 8.0; }, [](Value s) { return s * 2.0; }, {.max_iterations = limit});
  };
  EXPECT_THROW(loop(-1), Error);
  EXPECT_THROW(loop(std::int64_t{1} << 31), Error);
}

TEST(LoopsWithALimit, RefuseWhatOthersRefuse) {
  auto problem = [](const WhileOptions& options, bool is_boolean) {
    Graph g;
    try {
      while_(
          {g.input("x", f32, {})}, [&](Value s) { return is_boolean ? s < 8.0 : s; },
          [](Value s) { return cast(s, f64); }, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), "while_");
      return e.problem();
    }
    return std::string();
  };
  for (const WhileOptions& options :
       {WhileOptions{}, {.max_iterations = 9}, {.max_iterations = 9, .recompute = true}}) {
    EXPECT_EQ(problem(options, false), "the predicate is f32[], not one bool");
    EXPECT_EQ(problem(options, true), "state 0 is f32[], the body returned f64[]");
  }
}

}  // namespace
}  // namespace graphsink::control_flow_test
