// What loops keep: states that nothing needs are dropped.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink {
namespace {

Plan plan_for(const Graph& g) { return make_plan(g, Target::cuda13(), system_ops()); }

std::ptrdiff_t calls_of(const Plan& plan, std::string_view op) {
  return std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const PlanNode& node) { return node.op->name == op; });
}
std::ptrdiff_t copies(const Plan& plan) {
  return std::count_if(plan.tasks.begin(), plan.tasks.end(),
                       [](const Task& task) { return task.kind == TaskKind::copy; });
}

void no_body(CudaArgs&) {}
const OpDef effect_op{
    .name = "effect", .infer = testing::infer_like_first, .traits = {.host_effect = true}, .bodies = {no_body}};

// A loop with the states (s, t, u, n): s is used behind it, n by the condition, t by nothing but itself, and u by t.
Values loop_of(Graph& g, bool has_effect = false, const WhileOptions& options = {}) {
  Value x = g.input("x", f32, {4}), bound = g.input("bound", i32, {});
  auto r = while_(
      {x, x, x, g.constant(Tensor::scalar(0))}, [&](Value, Value, Value, Value n) { return n < bound; },
      [&](Value s, Value t, Value u, Value n) {
        if (has_effect) emit(effect_op, {t});
        return std::array{s * 2.0, tanh(t + u), exp(u), n + 1};
      },
      options);
  return {r.begin(), r.end()};
}

TEST(LoopStates, ThatNothingUsesAreDropped) {
  Graph g;
  g.output("s", loop_of(g)[0]);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "mul"), 1);
  EXPECT_EQ(calls_of(plan, "tanh"), 0) << plan.explain();
  EXPECT_EQ(calls_of(plan, "exp"), 0) << plan.explain();
  EXPECT_EQ(copies(plan), 2 * 3) << "s, n and the predicate, into the loop and in it: " << plan.explain();
}

TEST(LoopStates, ThatAUsedStateUsesStay) {
  Graph g;
  g.output("t", loop_of(g)[1]);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "mul"), 0) << plan.explain();
  EXPECT_EQ(calls_of(plan, "tanh"), 1);
  EXPECT_EQ(calls_of(plan, "exp"), 1) << "t is computed from u";
}

TEST(LoopStates, ThatTheConditionUsesStay) {
  Graph g;
  g.output("u", loop_of(g)[2]);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "exp"), 1);
  EXPECT_EQ(calls_of(plan, "tanh"), 0);
  EXPECT_EQ(calls_of(plan, "less"), 2) << plan.explain();
}

TEST(LoopStates, ThatAnEffectUsesStay) {
  Graph g;
  loop_of(g, true);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "effect"), 1);
  EXPECT_EQ(calls_of(plan, "tanh"), 1) << "the effect reads t";
  EXPECT_EQ(calls_of(plan, "exp"), 1);
  EXPECT_EQ(calls_of(plan, "mul"), 0) << plan.explain();
}

TEST(LoopStates, OfALoopInALoopAreDropped) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Scan outer = scan({x, x}, {},
                    [](const Values& s, const Values&) {
                      Scan inner = scan({s[0], s[1]}, {},
                                        [](const Values& t, const Values&) {
                                          return Scan{{t[0] * 2.0, exp(t[1])}, {}};
                                        },
                                        {.iterations = 3});
                      return Scan{inner.state, {}};
                    },
                    {.iterations = 2});
  g.output("y", outer.state[0]);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "mul"), 1);
  EXPECT_EQ(calls_of(plan, "exp"), 0) << plan.explain();
}

}  // namespace
}  // namespace graphsink
