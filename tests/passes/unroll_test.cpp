// Which loops the planner unrolls, which it leaves as they are, and what it says of both.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/flush_denormals.h"
#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "plan_ops.h"

namespace graphsink::unroll_test {
namespace {

using testing::cpu_plus_one;
using testing::planned_outside;
using testing::planned_waits;

Value on_host(const Value& v) { return emit(cpu_plus_one, {v})[0]; }

Plan plan_for(const Graph& g, const Target& target = Target::cuda13()) { return make_plan(g, target, system_ops()); }

std::ptrdiff_t tasks_of_kind(const Plan& plan, TaskKind kind) {
  return std::count_if(plan.tasks.begin(), plan.tasks.end(), [&](const Task& task) { return task.kind == kind; });
}
std::ptrdiff_t calls_of(const Plan& plan, std::string_view op) {
  return std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& node) { return node.op->name == op; });
}
const Reason* reason_of(const Plan& plan, std::string_view what) {
  for (const Reason& reason : plan.reasons)
    if (reason.what.find(what) != std::string::npos) return &reason;
  return nullptr;
}

// One state, `iterations` times.
Plan scan_plan(std::int64_t iterations, const std::function<Value(const Value&)>& body,
               const Target& target = Target::cuda13(), const PlanOptions& options = {}) {
  Graph g;
  Value x = g.input("x", f32, {4});
  auto scan_body = [&](const Values& state, const Values&) { return Scan{{body(state[0])}, {}}; };
  g.output("y", scan({x}, {}, scan_body, {.iterations = iterations}).state[0]);
  return make_plan(g, target, system_ops(), {}, options);
}

TEST(Unroll, AScanAroundAnOpOnTheHostIsOneLaunch) {
  Plan plan = scan_plan(4, [](const Value& v) { return on_host(v) * 2.0; });
  EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 0);
  EXPECT_EQ(calls_of(plan, "cpu_plus_one"), 4);
  EXPECT_EQ(calls_of(plan, "mul"), 4);
  EXPECT_EQ(calls_of(plan, "less"), 0) << "the condition is not computed: " << plan.explain();
  EXPECT_EQ(calls_of(plan, "add"), 0) << "nor is the counter";
  const Reason* reason = reason_of(plan, "a loop of 4 iterations is unrolled");
  ASSERT_NE(reason, nullptr) << plan.explain();
  EXPECT_NE(to_string(reason->where).find("unroll_test.cpp"), std::string::npos);
  EXPECT_EQ(reason->why,
            "cpu_plus_one in its body runs on the host, and a conditional node may not hold host nodes "
            "(unroll_test.cpp:21)");
  EXPECT_EQ(reason->cost,
            "the launch holds its body 4 times; this saves a wait for each predicate, and one more launch");
  EXPECT_EQ(reason->remedy, "give its OpDef a CUDA body, so that the loop is a WHILE node");
  const Reason* on_host = reason_of(plan, "cpu_plus_one runs on the host");
  ASSERT_NE(on_host, nullptr);
  EXPECT_EQ(on_host->cost, "4 host nodes in every launch, 48 B to the host, 16 B to the host if new, 64 B back");
}

TEST(Unroll, NothingForcesItOnTheCpu) {
  Plan plan = scan_plan(4, on_host, Target::host());
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 1);
  EXPECT_TRUE(sinks_whole(plan));
  EXPECT_TRUE(plan.reasons.empty()) << plan.explain();
}

TEST(Unroll, ABodyThatAConditionalNodeHoldsStaysALoop) {
  Plan plan = scan_plan(2, [](const Value& v) { return v * 2.0; });
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 1);
  EXPECT_TRUE(plan.reasons.empty()) << plan.explain();
}

TEST(Unroll, AtMostSixteenIterations) {
  for (int iterations : {1, 16}) EXPECT_TRUE(sinks_whole(scan_plan(iterations, on_host))) << iterations;
  Plan plan = scan_plan(17, on_host);
  EXPECT_FALSE(sinks_whole(plan));
  const Reason* reason = reason_of(plan, "a loop is driven by the host");
  ASSERT_NE(reason, nullptr) << plan.explain();
  EXPECT_NE(reason->why.find("; its 17 iterations are more than the 16 that are unrolled"), std::string::npos)
      << reason->why;
}

TEST(Unroll, AnOpThatIsNotAllowedInBodies) {
  Plan plan = scan_plan(3, [](const Value& v) { return emit(planned_outside, {v})[0] * 2.0; });
  EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
  EXPECT_EQ(calls_of(plan, "outside"), 3);
  ASSERT_NE(reason_of(plan, "a loop of 3 iterations is unrolled"), nullptr);
}

// An op that cannot be captured ends the launch wherever it stands.
TEST(Unroll, NotAroundAnOpThatCannotBeCaptured) {
  Plan plan = scan_plan(3, [](const Value& v) { return emit(planned_waits, {v})[0]; });
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 1);
  EXPECT_NE(reason_of(plan, "a loop is driven by the host"), nullptr);
}

TEST(Unroll, WhereTheDriverHasNoConditionalNodes) {
  Target old = Target::cuda13();
  old.conditional_nodes = false;
  Plan plan = scan_plan(
      3, [](const Value& v) { return v * 2.0; }, old);
  EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
  EXPECT_EQ(calls_of(plan, "mul"), 3);
  const Reason* reason = reason_of(plan, "a loop of 3 iterations is unrolled");
  ASSERT_NE(reason, nullptr) << plan.explain();
  EXPECT_EQ(reason->why, "this driver has no conditional nodes");
  EXPECT_EQ(reason->remedy, "use a driver of CUDA 12.8 or newer, so that the loop is a WHILE node");
}

// With Tuning::unroll_loops: which part of the iterations a run of the body is.
TEST(UnrollLoops, ARunIsADivisorOfTheIterations) {
  const PlanOptions options{.fuse = false, .unroll_loops = true};
  for (const auto& [iterations, copies] :
       {std::pair(64, 8), {30, 6}, {12, 6}, {10, 5}, {9, 3}, {22, 2}, {17, 1}, {1024, 8}}) {
    SCOPED_TRACE(iterations);
    const Plan plan = scan_plan(
        iterations, [](const Value& v) { return tanh(v); }, Target::cuda13(), options);
    EXPECT_TRUE(plan.reasons.empty()) << plan.explain();
    ASSERT_EQ(plan.controls.size(), 1u);
    EXPECT_EQ(plan.controls[0].iterations, iterations);
    EXPECT_EQ(plan.controls[0].iterations_in_body, copies);
    EXPECT_EQ(calls_of(plan, "tanh"), copies);
    EXPECT_EQ(calls_of(plan, "less"), 1) << "the other conditions hold";
    const std::string text = "WHILE node, " + std::to_string(iterations) + " iterations";
    const std::string runs = copies > 1 ? ", " + std::to_string(copies) + " in a run of the body" : "";
    EXPECT_NE(plan.explain().find(text + runs + " arena"), std::string::npos) << plan.explain();
    EXPECT_NE(plan.explain().find(copies > 1 ? "each run of the body: " : "each iteration: "), std::string::npos);
  }
}

TEST(UnrollLoops, AFewIterationsNeedNoLoop) {
  for (int iterations : {1, 2, 7, 8}) {
    const Plan plan = scan_plan(iterations, [](const Value& v) { return tanh(v); }, Target::cuda13(),
                                {.fuse = false, .unroll_loops = true});
    EXPECT_TRUE(plan.controls.empty()) << plan.explain();
    EXPECT_TRUE(plan.reasons.empty()) << plan.explain();
    EXPECT_EQ(calls_of(plan, "tanh"), iterations);
    EXPECT_EQ(calls_of(plan, "less"), 0);
  }
}

TEST(UnrollLoops, ALargeBodyHasFewerIterations) {
  const auto copies = [](int ops) {
    const auto body = [&](Value v) {
      for (int i = 0; i < ops; ++i) v = tanh(v);
      return v;
    };
    const Plan plan = scan_plan(64, body, Target::cuda13(), {.fuse = false, .unroll_loops = true});
    return plan.controls.at(0).iterations_in_body;
  };
  EXPECT_EQ(copies(29), 8);  // and two for the counter and its condition
  EXPECT_EQ(copies(31), 4);
  EXPECT_EQ(copies(120), 2);
  EXPECT_EQ(copies(127), 1);
}

TEST(UnrollLoops, WhatStaysALoop) {
  const auto copies = [](Graph& g, const Value& y, const Target& target, int control = 0) {
    g.output("y", y);
    const Plan plan = make_plan(g, target, system_ops(), {}, {.unroll_loops = true});
    EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
    return plan.controls.at(static_cast<std::size_t>(control)).iterations_in_body;
  };
  const auto ten_of = [](const Value& x, const std::function<Value(const Value&)>& body) {
    auto scan_body = [&](const Values& state, const Values&) { return Scan{{body(state[0])}, {}}; };
    return scan({x}, {}, scan_body, {.iterations = 10}).state[0];
  };
  const auto is_twice = [](const Value& v) { return v * 2.0; };
  {
    SCOPED_TRACE("on the CPU, where nothing is gained");
    Graph g;
    EXPECT_EQ(copies(g, ten_of(g.input("x", f32, {4}), is_twice), Target::host()), 1);
  }
  {
    SCOPED_TRACE("a loop with a branch inside");
    Graph g;
    const Value x = g.input("x", f32, {4}), p = g.input("p", DType::boolean, {});
    const auto branch = [&](const Value& v) {
      return if_(
          p, [&] { return v * 2.0; }, [&] { return v + 1.0; });
    };
    EXPECT_EQ(copies(g, ten_of(x, branch), Target::cuda13()), 1);
  }
  {
    SCOPED_TRACE("the inner loop alone is unrolled");
    Graph g;
    const Value x = g.input("x", f32, {4});
    g.output("y", ten_of(x, [&](const Value& v) { return ten_of(v, is_twice); }));
    const Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {.unroll_loops = true});
    ASSERT_EQ(plan.controls.size(), 2u);
    EXPECT_EQ(plan.controls[0].iterations_in_body * plan.controls[1].iterations_in_body, 5) << plan.explain();
  }
  {
    SCOPED_TRACE("the number of iterations depends on data");
    Graph g;
    const Value x = g.input("x", f32, {});
    const Value y = while_(
        Values{x}, [](const Values& s) { return s[0] < 100.0; }, [](const Values& s) { return Values{s[0] * 2.0}; })[0];
    EXPECT_EQ(copies(g, y, Target::cuda13()), 1);
  }
}

// A Variable that the body assigns is a state of the loop.
TEST(UnrollLoops, ABodyMayAssignVariables) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const Variable v("v", Tensor::full(f32, {4}, 1.0));
  const auto body = [&](const Values& state, const Values&) {
    assign(v, tanh(g.value(v) + state[0]));
    return Scan{{tanh(state[0])}, {}};
  };
  g.output("y", scan({x}, {}, body, {.iterations = 12}).state[0]);
  const Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {.fuse = false, .unroll_loops = true});
  ASSERT_EQ(plan.controls.size(), 1u);
  EXPECT_EQ(plan.controls[0].iterations_in_body, 6);
}

// Each copy of the body writes its slice of a stack, which is one piece of memory.
TEST(UnrollLoops, StacksAreWrittenSliceBySlice) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const auto body = [](const Values& state, const Values&) {
    const Value next = tanh(state[0]);
    return Scan{{next}, {next}};
  };
  g.output("y", scan({x}, {}, body, {.iterations = 30}).outputs[0]);
  const Plan plan = make_plan(g, Target::cuda13(), system_ops(), {}, {.fuse = false, .unroll_loops = true});
  ASSERT_EQ(plan.controls.size(), 1u);
  EXPECT_EQ(plan.controls[0].iterations_in_body, 6);
  EXPECT_EQ(plan.controls[0].filled.size(), 1u);
  EXPECT_EQ(calls_of(plan, "store_at"), 6);
  EXPECT_EQ(calls_of(plan, "clear"), 0);
}

// Loops of while_() whose counters begin with a constant and are compared with one.
struct WhileRow {
  const char* name;
  int iterations;  // -1: not known
  std::function<Value(Graph&, const Value&)> loop;
};
void PrintTo(const WhileRow& row, std::ostream* out) { *out << row.name; }

template <class Condition, class Next>
Value counted(const Value& x, const Arg& first, const Condition& condition, const Next& next,
              const WhileOptions& options = {}) {
  return while_(
      {x, first}, [&](Value s, Value i) { return condition(s, i); },
      [&](Value s, Value i) {
        return std::array{on_host(s), Value(next(i))};
      },
      options)[0];
}

const WhileRow kWhiles[] = {
    {"Integers", 3,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(0)), [](Value, Value i) { return i < 3; }, [](Value i) { return i + 1; });
     }},
    {"Floats", 3,
     [](Graph&, const Value& x) {
       return counted(
           x, 0.5, [](Value, Value i) { return i <= 1.0; }, [](Value i) { return i + 0.25; });
     }},
    {"Downwards", 5,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(5)), [](Value, Value i) { return i > 0; }, [](Value i) { return i - 1; });
     }},
    {"Doubling", 4,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(1)), [](Value, Value i) { return not_equal(i, 16); },
           [](Value i) { return i * 2; });
     }},
    {"OfALimitThatIsNotReached", 3,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(0)), [](Value, Value i) { return i < 3; }, [](Value i) { return i + 1; },
           {.max_iterations = 9});
     }},
    {"None", 0,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(7)), [](Value, Value i) { return i < 3; }, [](Value i) { return i + 1; });
     }},
    {"ToZeroPastAllDenormals", 1,
     [](Graph& g, const Value& x) {
       Value tiny = g.constant(Tensor::scalar(1e-30f));
       return counted(
           x, tiny, [](Value, Value i) { return i > 0; }, [&](Value i) { return i * tiny; });
     }},
    // Devices differ: host ops may read and write denormals as zeros, and kernels compute with them.
    {"AResultBecomesDenormal", -1,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(1.5e-38f)), [](Value, Value i) { return i > 0; },
           [](Value i) { return i * 0.5; });
     }},
    {"ADenormalConstant", -1,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(1e-40f)), [](Value, Value i) { return i > 0; }, [](Value i) { return i * 0; });
     }},
    {"ADenormalDouble", -1,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(1e-310)), [](Value, Value i) { return i > 0; }, [](Value i) { return i * 0; });
     }},
    // 0x1.fffffep-127 is rounded to the smallest normal number, or a zero is written in its place.
    {"AResultIsRoundedToANormal", -1,
     [](Graph& g, const Value& x) {
       Value factor = g.constant(Tensor::scalar(0x1.fffffep-2f));
       return counted(
           x, g.constant(Tensor::scalar(0x1p-125f)), [](Value, Value i) { return i > 0; },
           [&](Value i) { return (i * factor) * 0; });
     }},
    {"TheStateDecides", -1,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(0)), [](Value s, Value i) { return logical_and(i < 3, sum(s) < 100.0); },
           [](Value i) { return i + 1; });
     }},
    {"AnInputDecides", -1,
     [](Graph& g, const Value& x) {
       Value bound = g.input("bound", i32, {});
       return counted(
           x, g.constant(Tensor::scalar(0)), [&](Value, Value i) { return i < bound; }, [](Value i) { return i + 1; });
     }},
    {"TheStateMayEndItSooner", -1,
     [](Graph&, const Value& x) {
       return while_(
           {x}, [](Value s) { return sum(s) < 100.0; }, [](Value s) { return on_host(s); }, {.max_iterations = 4})[0];
     }},
    {"ForEver", -1,
     [](Graph& g, const Value& x) {
       return counted(
           x, g.constant(Tensor::scalar(0)), [](Value, Value i) { return i < 3; }, [](Value i) { return i * 1; });
     }},
};

class UnrollWhile : public ::testing::TestWithParam<WhileRow> {};
INSTANTIATE_TEST_SUITE_P(Rows, UnrollWhile, ::testing::ValuesIn(kWhiles),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(UnrollWhile, WhoseCounterIsKnown) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", GetParam().loop(g, x));
  Plan plan = plan_for(g);
  const int iterations = GetParam().iterations;
  EXPECT_EQ(sinks_whole(plan), iterations >= 0) << plan.explain();
  EXPECT_EQ(calls_of(plan, "cpu_plus_one"), iterations >= 0 ? iterations : 1) << plan.explain();
  const Plan on_cpu = plan_for(g, Target::host());
  ASSERT_EQ(on_cpu.controls.size(), 1u);
  EXPECT_EQ(on_cpu.controls[0].iterations, iterations);
  if (iterations >= 0) return;
  ASSERT_NE(reason_of(plan, "a loop is driven by the host"), nullptr);
  EXPECT_NE(reason_of(plan, "a loop is driven by the host")->why.find("how often it runs is not known"),
            std::string::npos);
}

// The thread that compiles may have told its processor to flush.
TEST_P(UnrollWhile, WhoseCounterIsKnownOnAnyThread) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", GetParam().loop(g, x));
  const FlushDenormals flushed(true);
  const Plan plan = plan_for(g, Target::host());
  EXPECT_EQ(plan.controls[0].iterations, GetParam().iterations);
}

TEST(Unroll, LoopsInLoops) {
  Plan plan = scan_plan(3, [](const Value& v) {
    auto inner = [](const Values& state, const Values&) { return Scan{{on_host(state[0])}, {}}; };
    return scan({v}, {}, inner, {.iterations = 2}).state[0] * 2.0;
  });
  EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
  EXPECT_EQ(calls_of(plan, "cpu_plus_one"), 6);
  EXPECT_EQ(calls_of(plan, "mul"), 3);
  EXPECT_NE(reason_of(plan, "a loop of 2 iterations is unrolled"), nullptr);
  EXPECT_NE(reason_of(plan, "a loop of 3 iterations is unrolled"), nullptr);
}

// Bodies in an unrolled body that conditional nodes can hold are such nodes, one for each iteration.
TEST(Unroll, WhatIsLegalInItIsStillANode) {
  Plan plan = scan_plan(3, [](const Value& v) {
    Value s = while_(
        {v}, [](Value t) { return sum(t) < 10.0; }, [](Value t) { return t * 2.0; })[0];
    return on_host(if_(
        sum(s) > 50.0, [&] { return s * 0.5; }, [&] { return s; }));
  });
  EXPECT_TRUE(sinks_whole(plan)) << plan.explain();
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 3);
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::branch), 3);
}

// The host drives a branch around an op on the host, so a launch could not hold the copies of the body either.
TEST(Unroll, NotAroundABranchThatTheHostDrives) {
  auto branch = [](const Value& v) {
    return if_(
        sum(v) > 5.0, [&] { return on_host(v); }, [&] { return v * 2.0; });
  };
  Plan plan = scan_plan(3, branch);
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 1);
  EXPECT_EQ(reason_of(plan, "unrolled"), nullptr) << plan.explain();
}

TEST(Unroll, NotInALoopThatTheHostDrives) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", while_(
                    {x}, [](Value s) { return sum(s) < 100.0; },
                    [](Value s) {
                      auto inner = [](const Values& state, const Values&) { return Scan{{on_host(state[0])}, {}}; };
                      return scan({s}, {}, inner, {.iterations = 2}).state[0];
                    })[0]);
  Plan plan = plan_for(g);
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 2);
  for (const PlanControl& control : plan.controls) {
    ASSERT_GE(control.reason, 0);
    EXPECT_EQ(plan.reasons[static_cast<std::size_t>(control.reason)].what, "a loop is driven by the host");
  }
}

// Nested loops multiply: 16 * 16 * 16 bodies are too many.
TEST(Unroll, NotToThousandsOfNodes) {
  auto nested = [](const Value& v, const std::function<Value(const Value&)>& body) {
    auto scan_body = [&](const Values& state, const Values&) { return Scan{{body(state[0])}, {}}; };
    return scan({v}, {}, scan_body, {.iterations = 16}).state[0];
  };
  Plan plan =
      scan_plan(16, [&](const Value& v) { return nested(v, [&](const Value& u) { return nested(u, on_host); }); });
  EXPECT_EQ(tasks_of_kind(plan, TaskKind::loop), 3);
  EXPECT_EQ(reason_of(plan, "unrolled"), nullptr);
}

}  // namespace
}  // namespace graphsink::unroll_test
