// The rules by which plans compute ops together (ir/fusion_rules.h): they alone decide it, and an op of one's own may
// have rules.
#include <gtest/gtest.h>

#include <set>

#include "base/at.h"
#include "ir/fused.h"
#include "ir/system_ops.h"
#include "plan_text.h"
#include "test_ops.h"

namespace graphsink::fusion_rules_test {
namespace {

using testing::cpu_plus_one;
using testing::infer_like_first;
using testing::ops_of;
using testing::plus_one;

Value emitted(const OpDef& op, const Value& x) { return emit(op, {x})[0]; }

// The plan for the CPU by the rules of the library and by `further` ones.
Plan plan_with(const Graph& g, std::span<const FusionRule> further) {
  std::vector<std::span<const FusionRule>> rules(system_ops().rules.begin(), system_ops().rules.end());
  rules.push_back(further);
  SystemOps system = system_ops();
  system.rules = rules;
  return make_plan(g, Target::host(), system);
}

TEST(FusionRules, WithoutThemOpsStaySeparate) {
  Graph g;
  Value x = g.input("x", f32, {2, 3, 4, 8});
  Value heads = permute(x, {0, 2, 1, 3});
  g.output("y", permute(attention(heads, heads, heads), {0, 2, 1, 3}));
  g.output("z", sum(exp(relu(matmul(x, x, {.transpose_b = true}))), {3}));
  SystemOps system = system_ops();
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system)), "strided_attention matmul_relu [exp sum]");
  system.rules = {};
  EXPECT_EQ(ops_of(make_plan(g, Target::host(), system)), "permute attention permute matmul [relu exp] sum");
}

const OpDef first_op{.name = "first", .infer = infer_like_first, .bodies = {plus_one}};
const OpDef both_op{.name = "both", .bodies = {plus_one}};
const OpDef all_three_op{.name = "all_three", .bodies = {plus_one}};

template <const OpDef& next, const OpDef& both>
Fused fuse_with(const FuseArgs& a) {
  return &a.next == &next ? Fused{&both, {}} : Fused{};
}

TEST(FusionRules, SeveralRulesOfAnOpAreTriedInOrder) {
  Graph g;
  Value x = g.input("x", f32, {4});
  g.output("y", emitted(cpu_plus_one, emitted(first_op, x)));
  EXPECT_EQ(ops_of(plan_with(g, {})), "first cpu_plus_one");
  const FusionRule fits_not{.op = &first_op, .fuse = fuse_with<first_op, all_three_op>};
  const FusionRule fits{.op = &first_op, .fuse = fuse_with<cpu_plus_one, both_op>};
  const FusionRule fits_too{.op = &first_op, .fuse = fuse_with<cpu_plus_one, all_three_op>};
  EXPECT_EQ(ops_of(plan_with(g, std::array{fits_not})), "first cpu_plus_one");
  EXPECT_EQ(ops_of(plan_with(g, std::array{fits_not, fits})), "both");
  EXPECT_EQ(ops_of(plan_with(g, std::array{fits, fits_too})), "both");
  EXPECT_EQ(ops_of(plan_with(g, std::array{fits_too, fits})), "all_three");
}

TEST(FusionRules, AFusedOpMayHaveRulesOfItsOwn) {
  Graph g;
  Value y = emitted(cpu_plus_one, emitted(first_op, g.input("x", f32, {4})));
  g.output("z", emitted(cpu_plus_one, y));
  const FusionRule rules[] = {{.op = &first_op, .fuse = fuse_with<cpu_plus_one, both_op>},
                              {.op = &both_op, .fuse = fuse_with<cpu_plus_one, all_three_op>}};
  EXPECT_EQ(ops_of(plan_with(g, rules)), "all_three");
}

// The attributes of the op that reads and writes parts of other tensors.
struct Places {
  std::vector<Strided> operands;
};
const OpDef strided_op{.name = "strided", .bodies = {plus_one}};

TEST(FusionRules, AnOpWithARuleReadsPartsOfOtherTensors) {
  Graph g;
  Value x = g.input("x", f32, {2, 3, 4});
  g.output("y", emitted(first_op, permute(x, {1, 0, 2})));
  EXPECT_EQ(ops_of(plan_with(g, {})), "permute first");
  const FusionRule rule{.op = &first_op, .strided = [](const StridedArgs& a) {
                          return Fused{&strided_op, Places{{a.operands.begin(), a.operands.end()}}};
                        }};
  const Plan plan = plan_with(g, {&rule, 1});
  ASSERT_EQ(ops_of(plan), "strided");
  EXPECT_EQ(plan.avoided_copies.ops, 1u);
  for (const PlanNode& node : plan.nodes) {
    const auto* places = node.attrs.get_if<Places>();
    if (!places) continue;
    ASSERT_EQ(places->operands.size(), 2u);
    EXPECT_EQ(places->operands[0].strides[0], 4);
    EXPECT_EQ(places->operands[0].strides[1], 12);
    EXPECT_EQ(places->operands[1].strides[0], 8);
  }
}

void infer_rows(InferArgs& a) { a.out(a.in(0).dtype, {a.in(0).shape[0]}); }
const OpDef rows_op{.name = "rows", .infer = infer_rows, .bodies = {[](const CpuArgs&) {}}};

TEST(FusionRules, AnOpWithARuleReducesTheRowsOfAGroup) {
  Graph g;
  g.output("y", emitted(rows_op, tanh(exp(g.input("x", f32, {8, 16})))));
  EXPECT_EQ(ops_of(plan_with(g, {})), "[exp tanh] rows");
  const FusionRule rule{.op = &rows_op,
                        .rows = {.width = [](const TensorType& operand, const Attrs&) { return operand.shape[-1]; },
                                 .run = [](const CpuArgs&, std::int64_t, const void*, void*) {}}};
  const Plan plan = plan_with(g, {&rule, 1});
  ASSERT_EQ(ops_of(plan), "[exp tanh rows]");
  for (const PlanNode& node : plan.nodes) {
    const auto* group = node.attrs.get_if<FusedAttrs>();
    if (!group) continue;
    EXPECT_EQ(group->width, 16);
    EXPECT_EQ(group->ops[0].rows, nullptr);
    EXPECT_EQ(group->ops[2].rows, &rule.rows);
  }
}

// A second one would take the place of the first without a word.
TEST(FusionRules, NoBuiltInOpHasTwoRulesOfAKindThatAllowsOne) {
  std::set<const OpDef*> strided, rows;
  for (std::span<const FusionRule> rules : system_ops().rules) {
    for (const FusionRule& rule : rules) {
      ASSERT_NE(rule.op, nullptr);
      EXPECT_EQ((rule.fuse != nullptr) + (rule.strided != nullptr) + (rule.rows.width != nullptr), 1) << rule.op->name;
      if (rule.strided) {
        EXPECT_TRUE(strided.insert(rule.op).second) << rule.op->name;
      }
      if (rule.rows.width) {
        EXPECT_TRUE(rows.insert(rule.op).second && rule.rows.run) << rule.op->name;
      }
    }
  }
  EXPECT_FALSE(strided.empty());
  EXPECT_FALSE(rows.empty());
}

}  // namespace
}  // namespace graphsink::fusion_rules_test
