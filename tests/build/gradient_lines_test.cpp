// The nodes that the .grad of an op makes stand for the line that uses the op, whatever .grad is made of.
#include <gtest/gtest.h>

#include "graphsink/grad.h"
#include "graphsink/ops.h"
#include "ir/plan.h"
#include "ir/system_ops.h"
#include "test_ops.h"

namespace graphsink::gradient_lines_test {
namespace {

std::vector<Value> grad_by_operators(const GradArgs& a) { return {a.grads[0] * a.outputs[0] + exp(a.inputs[0])}; }

const OpDef with_operators{.name = "with_operators",
                           .infer = testing::infer_like_first,
                           .bodies = {[](const CpuArgs&) {}},
                           .grad = grad_by_operators};

TEST(GradientLines, AreThoseOfTheUsersOp) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value y = emit(with_operators, {x})[0];
  g.output("dx", grad(sum(y), {x})[0]);
  Plan plan = make_plan(g, Target::host(), system_ops(), {}, {.fuse = false});
  std::uint32_t line = 0;
  for (const PlanNode& node : plan.nodes)
    if (node.op == &with_operators) line = node.where.line();
  ASSERT_NE(line, 0u) << plan.explain();
  int checked = 0;
  for (const PlanNode& node : plan.nodes) {
    if (node.op->name != "mul" && node.op->name != "exp" && node.op->name != "add") continue;
    EXPECT_EQ(node.where.line(), line) << plan.explain();
    ++checked;
  }
  EXPECT_EQ(checked, 3) << plan.explain();
}

}  // namespace
}  // namespace graphsink::gradient_lines_test
