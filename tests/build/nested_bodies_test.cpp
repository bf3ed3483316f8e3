// How deep bodies of loops and branches nest, and that long chains of ops are no recursion.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "default_stack.h"
#include "graphsink/graphsink.h"
#include "ir/graph_data.h"
#include "ir/plan.h"
#include "ir/system_ops.h"
#include "messages.h"

namespace graphsink::nested_bodies_test {
namespace {

using testing::contains;
using testing::DefaultStack;
using testing::message_of;

using Nest = std::function<Value(const Value& x, int depth)>;

// Functions that nest `depth` bodies of one kind. They have the names of the ops.
std::map<std::string, Nest> nests() {
  static std::map<std::string, Nest> all;
  const auto inside = [](const char* op, const Value& x, int depth) {
    return depth == 1 ? x * 2.0 : all[op](x, depth - 1);
  };
  all["if_"] = [=](const Value& x, int depth) {
    return if_(
        sum(x) > 0.0, [&] { return inside("if_", x + 1.0, depth); }, [&] { return x; });
  };
  all["switch_"] = [=](const Value& x, int depth) {
    return switch_(argmax(x, 0), {[&] { return x; }, [&] { return inside("switch_", x, depth); }});
  };
  all["while_"] = [=](const Value& x, int depth) {
    return while_(
        {x}, [](const Value& s) { return sum(s) < 100.0; },
        [&](const Value& s) { return inside("while_", s, depth); })[0];
  };
  all["scan"] = [=](const Value& x, int depth) {
    auto body = [&](const Values& state, const Values&) { return Scan{{inside("scan", state[0], depth)}, {}}; };
    return scan({x}, {}, body, {.iterations = 2}).state[0];
  };
  return all;
}

// Frames of instrumented code are several times as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kFrames = 8;
#else
constexpr std::size_t kFrames = 1;
#endif

// What is local to threads lies on their stacks, too: of the software device more than half a MiB.
#if defined(GRAPHSINK_EMULATED)
constexpr std::size_t kThreadLocal = std::size_t{1} << 20;
#else
constexpr std::size_t kThreadLocal = 0;
#endif

// Calls f on a thread with a stack of `bytes`.
void on_small_stack(std::size_t bytes, const std::function<void()>& f) {
  const DefaultStack small(kFrames * bytes + kThreadLocal);
  std::thread(f).join();
}

Value input(Graph& g) { return g.input("x", f32, {2}); }

TEST(NestedBodies, AreRefusedWhereTheyNestTooDeep) {
  for (const auto& [op, nest] : nests()) {
    Graph g;
    const Value x = input(g);
    EXPECT_NO_THROW((void)nest(x, kMaxNestedBodies)) << op;
    for (int depth : {kMaxNestedBodies + 1, 20'000}) {
      const std::string message = message_of([&] { (void)nest(x, depth); });
      EXPECT_TRUE(contains(message, "nested_bodies_test.cpp:")) << message;
      EXPECT_TRUE(contains(message, ": " + op + ": its body would be 65 deep")) << message;
      EXPECT_TRUE(contains(message, "64 is the most; remedy: nest fewer")) << message;
    }
    EXPECT_NO_THROW((void)nest(x, kMaxNestedBodies)) << op << ": a refusal leaves the graph as it was";
  }
}

TEST(NestedBodies, OfALoopWithRecomputeAreTwo) {
  Graph g;
  const Value x = input(g);
  const std::function<Value(const Value&, int)> nest = [&](const Value& s, int depth) -> Value {
    if (depth == 0) return s * 2.0;
    return while_(
        {s}, [](const Value& now) { return sum(now) < 100.0; }, [&](const Value& now) { return nest(now, depth - 1); },
        {.max_iterations = 9, .recompute = true})[0];
  };
  EXPECT_NO_THROW((void)nest(x, kMaxNestedBodies / 2));
  EXPECT_TRUE(
      contains(message_of([&] { (void)nest(x, kMaxNestedBodies / 2 + 1); }), "while_: its body would be 65 deep"));
}

// The gradient of a branch is a branch, with copies of its bodies, in the body that calls grad().
TEST(NestedBodies, OfAGradientAreRefusedWhereTheyNestTooDeep) {
  Graph g;
  const Value x = input(g);
  const Value y = sum(nests()["if_"](x, 40));
  const std::function<Value(int)> gradient = [&](int depth) -> Value {
    if (depth == 0) return grad(y, {x})[0];
    return if_(
        sum(x) > 1.0, [&] { return gradient(depth - 1); }, [&] { return x; });
  };
  EXPECT_NO_THROW((void)gradient(kMaxNestedBodies - 40));
  EXPECT_TRUE(contains(message_of([&] { (void)gradient(kMaxNestedBodies - 39); }), "if_: its body would be 65 deep"));
}

// A caller may catch the Error and build something else.
TEST(NestedBodies, ThatAreRefusedAssignNothing) {
  Graph g;
  Variable v("v", Tensor({1.0f, 2.0f}));
  const Value x = input(g);
  const auto assign_and_nest = [&] {
    assign(v, x * 3.0);
    return nests()["if_"](x, kMaxNestedBodies);
  };
  const auto in_a_branch = [&] { (void)if_(sum(x) > 0.0, assign_and_nest, [&] { return x; }); };
  const auto in_a_loop = [&] {
    (void)while_(
        {x}, [](const Value& s) { return sum(s) < 10.0; }, [&](const Value&) { return assign_and_nest(); });
  };
  for (const std::function<void()>& build : {std::function<void()>(in_a_branch), std::function<void()>(in_a_loop)}) {
    EXPECT_TRUE(contains(message_of(build), "65 deep"));
    g.output("y" + std::to_string(g.data()->outputs.size()), x + v);
    const Plan plan = make_plan(g, Target::host(), system_ops());
    EXPECT_EQ(plan.variable_written, std::vector<bool>{false}) << plan.explain();
  }
}

// What is done with bodies behind compile(). While a graph is built, the caller's own functions need a stack, too.
TEST(NestedBodies, FitASmallStack) {
  for (const auto& [op, nest] : nests()) {
    Graph g;
    const Value x = input(g);
    const Value y = sum(nest(x, kMaxNestedBodies));
    g.output("y", y);
    if (op != "while_") g.output("dx", grad(y, {x})[0]);
    on_small_stack(std::size_t{1} << 20, [&] {
      for (const Target& target : {Target::host(), Target::cuda13()}) {
        const Plan plan = make_plan(g, target, system_ops());
        EXPECT_FALSE(plan.explain().empty() || plan.explain_json().empty() || plan.explain_dot().empty());
      }
    });
  }
}

TEST(NestedBodies, RunOnASmallStack) {
  const std::map<std::string, std::vector<double>> expected{
      {"if_", {130, 132}}, {"switch_", {2, 4}}, {"while_", {64, 128}}};
  for (const auto& [name, values] : expected) {
    Graph g;
    const Value x = input(g);
    g.output("y", nests()[name](x, kMaxNestedBodies));
    on_small_stack(std::size_t{1} << 20, [&, &op = name, &wanted = values] {
      for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
        Program p = compile(g, {.target = cpu()});
        p.write(x, std::vector<float>{1, 2});
        for (int i = 0; i < 2; ++i) p.run(mode);
        const Tensor y = p.output("y");
        EXPECT_EQ((std::vector<double>{y.at(0), y.at(1)}), wanted) << op << ", " << to_string(mode);
      }
    });
  }
}

TEST(LongChain, OfLoopsAndBranchesFitsASmallStack) {
  on_small_stack(std::size_t{256} << 10, [] {
    Graph g;
    const Value x = input(g);
    Value y = x;
    for (int i = 0; i < 10'000; ++i) y = nests()[i < 5'000 ? "while_" : "if_"](y, 1);
    g.output("y", y);
    EXPECT_FALSE(make_plan(g, Target::cuda13(), system_ops()).explain().empty());
  });
}

TEST(LongChain, FitsASmallStack) {
  on_small_stack(std::size_t{1} << 20, [] {
    constexpr int kOps = 100'000;
    Graph g;
    const Value x = input(g);
    Value y = x;
    for (int i = 0; i < kOps; ++i) y = i % 2 == 0 ? y * 0.5 : cumsum(y, 0);
    y = sum(y);
    g.output("y", y);
    g.output("dx", grad(y, {x})[0]);
    for (const Target& target : {Target::host(), Target::cuda13()}) {
      const Plan plan = make_plan(g, target, system_ops());
      EXPECT_GT(plan.nodes.size(), std::size_t{2 * kOps});
      EXPECT_FALSE(plan.explain().empty());
    }
  });
}

}  // namespace
}  // namespace graphsink::nested_bodies_test
