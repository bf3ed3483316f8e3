// What loops keep: states that nothing needs are dropped, and stacks are cleared only where iterations leave gaps.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graphsink/graphsink.h"
#include "ir/system_ops.h"
#include "kernels/runtime/stack.h"
#include "passes/passes.h"
#include "test_ops.h"

namespace graphsink::loop_state_test {
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
  EXPECT_EQ(copies(plan), 2) << "s and n, into the loop: " << plan.explain();
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

// --- stacks

Scan scan_of(const Value& x) {
  return scan({sum(x, {0})}, {x}, [](const Values& s, const Values& row) {
    return Scan{{tanh(s[0] + row[0])}, {s[0] * 2.0}};
  });
}

TEST(Stacks, OfAScanAreNotCleared) {
  Graph g;
  g.output("kept", scan_of(g.input("x", f32, {5, 4})).outputs[0]);
  Plan plan = plan_for(g);
  EXPECT_EQ(calls_of(plan, "store_at"), 1);
  EXPECT_EQ(calls_of(plan, "clear"), 0) << plan.explain();
}

// The gradient takes slices from the last to the first.
TEST(Stacks, OfTheGradientOfAScanAreNotCleared) {
  Graph g;
  Value x = g.input("x", f32, {5, 4});
  g.output("gradient", grad(sum(scan_of(x).outputs[0]), {x})[0]);
  Plan plan = plan_for(g);
  EXPECT_GE(calls_of(plan, "store_at"), 2);
  EXPECT_EQ(calls_of(plan, "clear"), 0) << plan.explain();
}

// A gradient of which each iteration takes three slices: the state s, the products of each iteration, and what the
// gradients of the outputs are.
Scan products_of(Graph& g, const Value& x) {
  const Value w = g.value(Variable("w", Tensor::full(f32, {4, 4}, 0.1)));
  return scan({reshape(sum(x, {0}), {1, 4})}, {reshape(x, {5, 1, 4})}, [&](const Values& s, const Values& row) {
    const Value next = tanh(matmul(row[0], w) + matmul(s[0], w)) * s[0];
    return Scan{{next}, {next * 2.0}};
  });
}
int ops_in(const Plan& plan, int sequence, std::string_view op) {
  int count = 0;
  for (const Task& task : plan.tasks_of(sequence))
    count += task.kind == TaskKind::call && plan.nodes[static_cast<std::size_t>(task.node)].op->name == op;
  return count;
}
int copies_in(const Plan& plan, int sequence) {
  int count = 0;
  for (const Task& task : plan.tasks_of(sequence)) count += task.kind == TaskKind::copy;
  return count;
}

TEST(Stacks, OfOneLoopAreWrittenAndReadTogether) {
  Graph g;
  Value x = g.input("x", f32, {5, 4});
  g.output("gradient", grad(sum(products_of(g, x).outputs[0]), {x})[0]);
  const Plan plan = plan_for(g);
  ASSERT_EQ(plan.sequences.size(), 3u) << "two loops";
  EXPECT_EQ(ops_in(plan, 1, "store_at"), 2) << "the state at the beginning, and what is computed: " << plan.explain();
  EXPECT_EQ(ops_in(plan, 2, "slice_at"), 1) << plan.explain();
  EXPECT_EQ(ops_in(plan, 2, "store_at"), 1) << plan.explain();
}

// The state is stored before the next one is computed, which may then take its place.
TEST(Stacks, OfStatesNeedNoCopiesOfThem) {
  Graph g;
  Value x = g.input("x", f32, {5, 4});
  g.output("gradient", grad(sum(products_of(g, x).outputs[0]), {x})[0]);
  const Plan plan = plan_for(g);
  for (int body : {1, 2}) EXPECT_EQ(copies_in(plan, body), 0) << plan.explain();
}

// Not if the slice would lie in memory for long, nor if the stack is not there yet.
TEST(Stacks, AreReadTogetherWhereThatIsOfUse) {
  struct Case {
    int ops_between;
    bool is_made_between, has_other_place;
    int nodes;
  };
  for (const Case& c : {Case{3, false, false, 1}, {40, false, false, 2}, {3, true, false, 2}, {3, false, true, 2}}) {
    Graph g;
    Value x = g.input("x", f32, {5, 4}), place = g.input("place", i32, {});
    const Value first = emit(slice_at_op, {x, place})[0];
    Value y = first;
    for (int i = 0; i < c.ops_between; ++i) y = cumsum(y, 0);
    const Value stack =
        c.is_made_between ? reshape(concat(std::vector<Arg>(5, y), 0), {5, 4}) : g.input("z", f32, {5, 4});
    g.output("y", y + emit(slice_at_op, {stack, c.has_other_place ? place + 1 : place})[0]);
    const Plan plan = plan_for(g);
    EXPECT_EQ(calls_of(plan, "slice_at"), c.nodes) << plan.explain();
  }
}

// How often a scan runs is known: nothing is compared before its first iteration, nor before that of its gradient.
TEST(Scans, BeginWithoutAComparison) {
  Graph g;
  Value x = g.input("x", f32, {5, 4});
  g.output("gradient", grad(sum(scan_of(x).outputs[0]), {x})[0]);
  const Plan plan = plan_for(g);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(ops_in(plan, 0, "less"), 0) << plan.explain();
  EXPECT_EQ(ops_in(plan, 0, "sub"), 0) << plan.explain();
  for (int body : {1, 2}) EXPECT_EQ(ops_in(plan, body, "less"), 1) << plan.explain();
}

TEST(Stacks, OfALoopThatMayEndSoonerAreCleared) {
  Graph g;
  Value x = g.input("x", f32, {4});
  Variable w("w", Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
  auto [y] = while_(
      {x}, [](Value s) { return sum(s) < 100.0; }, [&](Value s) { return tanh(s) * w; }, {.max_iterations = 6});
  g.output("gradient", grad(sum(y), {w})[0]);
  Plan plan = plan_for(g);
  EXPECT_GE(calls_of(plan, "store_at"), 1);
  EXPECT_EQ(calls_of(plan, "clear"), calls_of(plan, "store_at")) << plan.explain();
}

TEST(Stacks, BelowTheLimitAreCleared) {
  for (int iterations : {5, 6}) {
    Graph g;
    Value x = g.input("x", f32, {4});
    Variable w("w", Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
    auto r = while_(
        {x, g.constant(Tensor::scalar(0))}, [&](Value, Value i) { return i < iterations; },
        [&](Value s, Value i) {
          return std::array{tanh(s) * w, i + 1};
        },
        {.max_iterations = 6});
    g.output("gradient", grad(sum(r[0]), {w})[0]);
    Plan plan = plan_for(g);
    EXPECT_GE(calls_of(plan, "store_at"), 1);
    EXPECT_EQ(calls_of(plan, "clear") > 0, iterations < 6) << plan.explain();
  }
}

TEST(Stacks, OfMoreIterationsThanThePlannerCountsAreCleared) {
  Graph g;
  g.output("kept", scan_of(g.input("x", f32, {1025, 4})).outputs[0]);
  EXPECT_EQ(calls_of(plan_for(g), "clear"), 1);
}

// Nothing writes it before the loop, and no value of the body may take its memory in an iteration.
TEST(Stacks, ThatAreNotClearedLiveAsLongAsTheLoop) {
  Graph g;
  Value x = g.input("x", f32, {5, 4});
  Scan made = scan({sum(x, {0})}, {x}, [](const Values& s, const Values& row) {
    Value early = concat(std::vector<Arg>(100, s[0]), 0);  // not needed any more when the slice is stored
    return Scan{{row[0] * sum(early)}, {s[0] * sum(early)}};
  });
  g.output("kept", made.outputs[0]);
  Plan plan = plan_for(g);
  ASSERT_EQ(plan.controls.size(), 1u);
  ASSERT_EQ(plan.controls[0].filled.size(), 1u);
  const int stack = plan.controls[0].filled[0];
  const auto loop =
      std::find_if(plan.tasks.begin(), plan.tasks.end(), [](const Task& task) { return task.kind == TaskKind::loop; });
  ASSERT_NE(loop, plan.tasks.end());
  Touched touched_by_loop = touched(plan, *loop);
  std::vector<int> buffers = touched_by_loop.reads;
  buffers.insert(buffers.end(), touched_by_loop.writes.begin(), touched_by_loop.writes.end());
  const Buffer& kept = plan.buffers[static_cast<std::size_t>(stack)];
  int others = 0;
  for (int buffer : buffers) {
    const Buffer& other = plan.buffers[static_cast<std::size_t>(buffer)];
    if (buffer == stack || other.storage != Storage::arena) continue;
    ++others;
    EXPECT_TRUE(other.offset + other.bytes <= kept.offset || kept.offset + kept.bytes <= other.offset)
        << plan.explain();
  }
  EXPECT_GT(others, 3);
}

}  // namespace
}  // namespace graphsink::loop_state_test
