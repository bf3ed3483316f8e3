// Scope: who carries the names of scopes, and from when to when.
#include "graphsink/scope.h"

#include <algorithm>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "api/plan_of.h"
#include "messages.h"
#include "program_fixture.h"

namespace graphsink::scope_test {
namespace {

using testing::contains;
using testing::message_of;
using testing::OnDevice;

static_assert(std::is_trivially_copyable_v<Where> && std::is_trivially_destructible_v<Where>, "nvcc needs it");
static_assert(!std::is_copy_constructible_v<Scope> && !std::is_move_constructible_v<Scope>);

std::string here() { return std::string(Where::current().scope()); }

// All of its layers share these lines.
Value layer(const Value& x) {
  const Variable w("w", Tensor::full(f32, {2, 2}, 0.5));
  return tanh(matmul(x, w));
}

void refuse(const CpuArgs&) {
  const Scope scope("inside");
  throw Error("refuses", Where::current(), "it always does", "leave it out");
}

std::vector<std::string> scopes_of(const Program& p, std::string_view op) {
  std::vector<std::string> scopes;
  for (const PlanNode& node : plan_of(p).nodes)
    if (node.op->name == op) scopes.emplace_back(node.where.scope());
  std::sort(scopes.begin(), scopes.end());
  return scopes;
}

TEST(ScopeTest, NestsAndEnds) {
  EXPECT_EQ(here(), "");
  {
    const Scope encoder("encoder");
    EXPECT_EQ(here(), "encoder");
    for (const char* name : {"layer0", "layer1"}) {
      const Scope inner(name);
      EXPECT_EQ(here(), std::string("encoder/") + name);
    }
    EXPECT_THROW(
        {
          const Scope left("left by an exception");
          throw Error("op", Where(), "problem", "remedy");
        },
        Error);
    EXPECT_EQ(here(), "encoder");
    std::string elsewhere;
    std::thread([&] { elsewhere = here(); }).join();
    EXPECT_EQ(elsewhere, "") << "a scope is that of its thread";
  }
  EXPECT_EQ(here(), "");
}

TEST(ScopeTest, APlaceKeepsItsScope) {
  Where where;
  {
    const Scope scope("layer3");
    where = Where::current();
  }
  EXPECT_EQ(where.scope(), "layer3");
  EXPECT_TRUE(to_string(where).ends_with(" in layer3")) << to_string(where);
  EXPECT_EQ(Where().scope(), "");
  EXPECT_EQ(to_string(Where()), "");
}

TEST(ScopeTest, ErrorsOfTheGraphCarryIt) {
  Graph g;
  const Value x = g.input("x", f32, {4, 3});
  const Scope encoder("encoder");
  const Scope inner("layer1");
  const std::string message = message_of([&] { layer(x); });
  EXPECT_TRUE(contains(message, " in encoder/layer1: matmul: ")) << message;
}

TEST(ScopeTest, ControlCharactersAreEscaped) {
  const Scope scope("a\nb");
  const std::string message = message_of([] { (void)Value().type(); });
  EXPECT_TRUE(contains(message, " in a\\nb: Value: ")) << message;
}

TEST(ScopeTest, NamesOfVariablesBeginWithIt) {
  EXPECT_EQ(Variable("w", Tensor({1.0f})).name(), "w");
  const Scope scope("layer3");
  EXPECT_EQ(Variable("w", Tensor({1.0f})).name(), "layer3/w");
}

TEST(ScopeTest, NamesOfInputsAndOutputsDoNot) {
  Graph g;
  const Scope scope("layer3");
  const Value x = g.input("x", f32, {2});
  g.output("y", x * 2.0);
  g.record("z", sum(x));
  Program p = compile(g);
  p.write(x, Tensor({1.0f, 2.0f}));
  p.run();
  EXPECT_EQ(p.output("y").at(1), 4.0);
  EXPECT_EQ(p.records<float>("z").at(0), 3.0f);
}

// What an optimizer keeps for a parameter is named after the parameter; the rest begins with the scope of its call, so
// that the state of two optimizers fits into one checkpoint.
TEST(ScopeTest, OptimizersOfOneKindAreToldApart) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  std::vector<Variable> all;
  for (const char* name : {"generator", "critic"}) {
    const Scope scope(name);
    const Variable w("w", Tensor({1.0f, 2.0f}));
    Optimizer optimizer;
    {
      const Scope update("update");
      optimizer = adamw(sum(x * w), {w}, {.lr = 0.1});
    }
    all.push_back(w);
    all.insert(all.end(), optimizer.state.begin(), optimizer.state.end());
    EXPECT_EQ(optimizer.lr.name(), std::string(name) + "/update/adamw.lr");
    for (const Variable& state : optimizer.state) {
      const bool is_of_parameter = state.name().starts_with(std::string(name) + "/w.");
      EXPECT_TRUE(is_of_parameter || state.name().starts_with(std::string(name) + "/update/adamw.")) << state.name();
    }
  }
  EXPECT_NO_THROW(snapshot(all));
}

TEST_P(OnDevice, EveryOpOfALayerCarriesItsScope) {
  Graph g;
  const Value x = g.input("x", f32, {2, 2});
  Value y = x;
  for (const char* name : {"layer0", "layer1"}) {
    const Scope scope(name);
    y = layer(y);
  }
  g.output("y", sum(y));
  Program p = compile(g, {.tuning = {.fuse = false}});
  EXPECT_EQ(scopes_of(p, "tanh"), (std::vector<std::string>{"layer0", "layer1"}));
  EXPECT_EQ(scopes_of(p, "sum"), std::vector<std::string>{""});
  const std::string text = p.explain();
  EXPECT_TRUE(contains(text, " in layer0\n") && contains(text, " in layer1\n")) << text;
  p.write(x, Tensor::full(f32, {2, 2}, 1.0));
  p.run();
  std::vector<std::string> timed;
  for (const OpTime& op : p.time_ops(1))
    if (op.op == "matmul") timed.emplace_back(op.where.scope());
  EXPECT_EQ(timed, (std::vector<std::string>{"layer0", "layer1"}));
}

TEST_P(OnDevice, AGradientBelongsToTheScopeOfItsOp) {
  Graph g;
  const Value x = g.input("x", f32, {2, 2});
  const Variable w("w", Tensor::full(f32, {2, 2}, 1.0));
  Value y;
  {
    const Scope forward("forward");
    y = tanh(matmul(x, w));
  }
  const Scope backward("backward");
  g.output("by_w", grad(sum(y), {w})[0]);
  Program p = compile(g, {.tuning = {.fuse = false}});
  EXPECT_EQ(scopes_of(p, "matmul"), (std::vector<std::string>{"forward", "forward"}));
}

TEST_P(OnDevice, BodiesBelongToTheScopesAroundThem) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const Scope outer("outer");
  const auto [y] = while_(
      {x}, [](Value v) { return sum(v) < 100.0; },
      [](Value v) {
        const Scope inner("body");
        return tanh(v) + 50.0;
      });
  g.output("y", y);
  Program p = compile(g, {.tuning = {.fuse = false}});
  for (const std::string& condition : scopes_of(p, "sum")) EXPECT_EQ(condition, "outer");
  EXPECT_EQ(scopes_of(p, "tanh"), std::vector<std::string>{"outer/body"});
}

TEST_P(OnDevice, AFailedStepNamesTheScope) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  Value y = x;
  for (const char* name : {"layer0", "layer1"}) {
    const Scope scope(name);
    y = emit(testing::cpu_refuse_negative, {y - 1.0})[0];
  }
  g.output("y", y);
  Program p = compile(g);
  p.write(x, Tensor::full(f32, {4}, 1.5));
  const std::string message = message_of([&] {
    p.run();
    p.sync();
  });
  EXPECT_TRUE(contains(message, " in layer1: ")) << message;
}

// The body of a user's op throws an Error of the library, whose place may have a scope, too.
TEST_P(OnDevice, AnErrorThrownByABodyKeepsItsScope) {
  static const OpDef refuses{.name = "refuses", .infer = testing::infer_like_first, .bodies = {refuse}};
  Graph g;
  const Value x = g.input("x", f32, {4});
  g.output("y", emit(refuses, {x})[0]);
  Program p = compile(g);
  p.write(x, Tensor::full(f32, {4}, 1.0));
  const std::string message = message_of([&] {
    p.run();
    p.sync();
  });
  EXPECT_TRUE(contains(message, " in inside: refuses: it always does")) << message;
}

}  // namespace
}  // namespace graphsink::scope_test
