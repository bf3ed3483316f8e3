// The gradients of ops that have a Formula as their gradient.
#include <gtest/gtest.h>

#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::formula_test {
namespace {

// An op whose gradient is that of its formula: of both inputs, which may be one value.
std::vector<Value> product_formula(std::span<const Value> in, const Attrs&) { return {in[0] * in[1]}; }
std::vector<Value> sum_formula(std::span<const Value> in, const Attrs&) { return {sum(in[0])}; }

void infer_like_both(InferArgs& a) {
  a.expect_inputs(2);
  a.out(a.in(0).dtype, a.in(0).shape);
}
const OpDef with_formula{
    .name = "with_formula", .infer = infer_like_both, .bodies = {[](const CpuArgs&) {}}, .grad = product_formula};
const OpDef with_wrong_formula{.name = "with_wrong_formula",
                               .infer = testing::infer_like_first,
                               .bodies = {[](const CpuArgs&) {}},
                               .grad = sum_formula};

TEST(Formulas, GiveGradients) {
  for (DType dtype : {f32, f16}) {
    Graph g;
    Value x = g.constant(Tensor({3.0f, 5.0f}).to(dtype)), y = g.constant(Tensor({7.0f, 11.0f}).to(dtype));
    g.output("of_x", grad(sum(emit(with_formula, {x, y})[0]), {x})[0]);
    g.output("of_square", grad(sum(emit(with_formula, {x, x})[0]), {x})[0]);
    Program p = compile(g, {.target = cpu()});
    p.run(interactive);
    EXPECT_EQ(p.output("of_x").dtype(), dtype);
    EXPECT_EQ(p.output("of_x").at(1), 11.0);
    EXPECT_EQ(p.output("of_square").at(1), 10.0);
  }
}

TEST(Formulas, MustReturnTheOutputs) {
  Graph g;
  Value x = g.input("x", f32, {2});
  Value loss = sum(emit(with_wrong_formula, {x})[0]);
  try {
    (void)grad(loss, {x});
    FAIL() << "no Error";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "with_wrong_formula");
    EXPECT_NE(e.remedy().find("f32[2]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace graphsink::formula_test
