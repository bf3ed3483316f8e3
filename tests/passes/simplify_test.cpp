// What the planner computes once although the graph computes it several times, and what it must not.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "graphsink/graphsink.h"
#include "ir/plan.h"
#include "ir/system_ops.h"
#include "test_ops.h"

namespace graphsink::simplify_test {
namespace {

// An op whose attributes cannot be compared.
struct Opaque {
  int x;
};
void no_body(const CpuArgs&) {}
const OpDef opaque_op{.name = "opaque", .infer = testing::infer_like_first, .bodies = {no_body}};
const OpDef effect_op{
    .name = "effect", .infer = testing::infer_like_first, .traits = {.host_effect = true}, .bodies = {no_body}};

const OpDef random_op{
    .name = "random", .infer = testing::infer_like_first, .traits = {.random = true}, .bodies = {no_body}};

struct Case {
  const char* name;
  std::function<void(Graph&, const Value&)> build;  // of x, f32 [4, 4]
  const char* op;
  int times;  // that this op is in the plan
};

void add_up(Graph& g, const Value& a, const Value& b) { g.output("y", concat({a, b}, 0)); }

const Case kCases[] = {
    {"EqualOps", [](Graph& g, const Value& x) { add_up(g, exp(x), exp(x)); }, "exp", 1},
    {"EqualChains", [](Graph& g, const Value& x) { add_up(g, exp(tanh(x)), exp(tanh(x))); }, "exp", 1},
    {"EqualAttributes",
     [](Graph& g, const Value& x) { add_up(g, sum(x, {0}, {.keep_axes = true}), sum(x, {0}, {.keep_axes = true})); },
     "sum", 1},
    {"EqualShapes",
     [](Graph& g, const Value& x) {
       add_up(g, exp(reshape(x, {2, 8})), exp(reshape(x, {2, 8})));
     },
     "exp", 1},
    {"OtherShapes",
     [](Graph& g, const Value& x) {
       add_up(g, exp(reshape(x, {2, -1})), exp(reshape(x, {2, 8})));
     },
     "exp", 2},
    {"EqualConstants",
     [](Graph& g, const Value& x) {
       add_up(g, x * g.constant(Tensor({2.0f, 3.0f, 4.0f, 5.0f})), x * g.constant(Tensor({2.0f, 3.0f, 4.0f, 5.0f})));
     },
     "mul", 1},
    {"ConstantsThatDifferAtTheEnd",
     [](Graph& g, const Value& x) {
       add_up(g, x * g.constant(Tensor({2.0f, 3.0f, 4.0f, 5.0f})), x * g.constant(Tensor({2.0f, 3.0f, 4.0f, 6.0f})));
     },
     "mul", 2},
    {"ZerosOfBothSigns", [](Graph& g, const Value& x) { add_up(g, x * 0.0, x * -0.0); }, "mul", 2},
    {"ConstantsOfOtherTypes",
     [](Graph& g, const Value& x) {
       add_up(g, x * cast(g.constant(Tensor({0})), f32), x * cast(g.constant(Tensor({0.0f})), f32));
     },
     "mul", 2},
    {"EqualNumbersAsAttributes", [](Graph& g, const Value& x) { add_up(g, clamp(x, 0.0, 1.0), clamp(x, 0.0, 1.0)); },
     "clamp", 1},
    {"ZerosOfBothSignsAsAttributes",
     [](Graph& g, const Value& x) { add_up(g, clamp(x, 0.0, 1.0), clamp(x, -0.0, 1.0)); }, "clamp", 2},
    {"GradientsThatAreAskedForTwice",
     [](Graph& g, const Value& x) {
       const Value targets = g.input("t", i32, {4});
       const Value loss = cross_entropy(matmul(x, x), targets);
       add_up(g, grad(loss, {x})[0], grad(loss, {x})[0]);
     },
     "cross_entropy_grad", 1},
    {"OtherAttributes", [](Graph& g, const Value& x) { add_up(g, sum(x, {0}), sum(x, {1})); }, "sum", 2},
    {"OtherInputs", [](Graph& g, const Value& x) { add_up(g, exp(x), exp(tanh(x))); }, "exp", 2},
    {"OrderOfInputs", [](Graph& g, const Value& x) { add_up(g, x - tanh(x), tanh(x) - x); }, "sub", 2},
    {"OtherPlacements", [](Graph& g, const Value& x) { add_up(g, exp(x, on_cpu), exp(x, on_device)); }, "exp", 2},
    {"RandomOps", [](Graph& g, const Value& x) { add_up(g, emit(random_op, {x})[0], emit(random_op, {x})[0]); },
     "random", 2},
    {"Effects", [](Graph& g, const Value& x) { add_up(g, emit(effect_op, {x})[0], emit(effect_op, {x})[0]); }, "effect",
     2},
    {"AttributesThatCannotBeCompared",
     [](Graph& g, const Value& x) {
       add_up(g, emit(opaque_op, {x}, Opaque{1})[0], emit(opaque_op, {x}, Opaque{1})[0]);
     },
     "opaque", 2},
    {"InABodyAndOutside",
     [](Graph& g, const Value& x) {
       Value y = if_(
           sum(x) > 0.0, [&] { return exp(x) + exp(x); }, [&] { return x; });
       add_up(g, y, exp(x));
     },
     "exp", 2},
    {"OperandsOfWhichOnlyTheTypeIsUsed", [](Graph& g, const Value& x) { add_up(g, arange(x, 0), arange(exp(x), 0)); },
     "arange", 1},
    {"OtherTypesOfSuchOperands",
     [](Graph& g, const Value& x) {
       add_up(g, arange(x, 0), arange(concat({x, x}, 0), 0));
     },
     "arange", 2},
    {"ASumToItsOwnShape", [](Graph& g, const Value& x) { add_up(g, sum_like(exp(x), x), x); }, "sum_like", 0},
    {"ASumToItsOwnSizeInAnotherShape",
     [](Graph& g, const Value& x) {
       Value wider = reshape(x, {1, 4, 4});
       add_up(g, sum_like(exp(wider), x), x);
     },
     "sum_like", 1},
    {"TwoOutputs",
     [](Graph& g, const Value& x) {
       auto a = split(x, 2, 0), b = split(x, 2, 0);
       add_up(g, a[0], b[1]);
     },
     "split", 1},
};

class Simplify : public ::testing::TestWithParam<Case> {};

TEST_P(Simplify, ComputesOnceWhatIsEqual) {
  Graph g;
  GetParam().build(g, g.input("x", f32, {4, 4}));
  Plan plan = make_plan(g, Target::cuda13(), system_ops());
  int times = 0;
  for (const PlanNode& node : plan.nodes) times += node.op->name == GetParam().op ? 1 : 0;
  EXPECT_EQ(times, GetParam().times) << plan.explain();
}

INSTANTIATE_TEST_SUITE_P(All, Simplify, ::testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

TEST(Simplify, EveryHandleAndNameCanBeRead) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value a = exp(x), b = exp(x);
  g.output("a", a);
  g.output("b", b);
  g.record("sum", sum(b));
  Program program = compile(g, {.target = cpu()});
  program.write(x, std::vector<float>{0, 1});
  program.run(sink);
  EXPECT_EQ(program.output("a").at(1), program.output("b").at(1));
  EXPECT_EQ(program.output("b").at(0), 1);
  EXPECT_EQ(program.records("sum").size(), 1u);
}

}  // namespace
}  // namespace graphsink::simplify_test
