// Groups that read operands and write results where these lie within larger tensors, so that slices, splits and concats
// around them are not computed.
#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

#include "fusion_fixture.h"
#include "ir/fused.h"
#include "ir/plan.h"

namespace graphsink::testing::cuda_fused_places_test {
namespace {

Value variable(Graph& g, const char* name, const Shape& shape, std::uint64_t seed, DType dtype = f32) {
  return g.value(Variable(name, Tensor::uniform(shape, seed, -2.0f, 2.0f).to(dtype)));
}

std::set<std::string_view> ops_in(const Plan& plan) {
  std::set<std::string_view> names;
  for (const PlanNode& node : plan.nodes) names.insert(node.op->name);
  return names;
}

class FusedPlaces : public Fusion {
 protected:
  // The bits are those of separate ops, which are one group, and none of the movers is in the plan.
  Plan expect_without(const std::vector<std::string_view>& movers, const std::function<void(Graph&)>& make) {
    Plan plan = expect_same_bits(make);
    for (std::string_view mover : movers) EXPECT_FALSE(ops_in(plan).contains(mover)) << mover << "\n" << plan.explain();
    EXPECT_EQ(plan.fusion.nodes, 1u) << plan.explain();
    return plan;
  }
};

TEST_F(FusedPlaces, SlicesAreReadWhereTheyAre) {
  for (DType dtype : {f32, f64, bf16, i64}) {
    SCOPED_TRACE(to_string(dtype));
    expect_without({"slice"}, [&](Graph& g) {
      Value x = variable(g, "x", {9, 7}, 1, dtype);
      Value up = slice(x, {0, 1}, {7, 6}), down = slice(x, {2, 1}, {9, 6}), left = slice(x, {1, 0}, {8, 5});
      g.output("y", maximum(up + down, left) * 2.0);
    });
  }
}

TEST_F(FusedPlaces, PartsOfASplitAreReadAndPartsOfAConcatAreWritten) {
  expect_without({"split", "concat"}, [](Graph& g) {
    Value x = variable(g, "x", {6, 12}, 1), z = variable(g, "z", {6, 4}, 2);
    std::vector<Value> parts = split(x, 3, 1);
    Value a = tanh(parts[0]) * z, b = a + parts[1], c = b * parts[2];
    g.output("y", matmul(concat({c, a, b}, 1), variable(g, "w", {12, 2}, 3)));
  });
}

TEST_F(FusedPlaces, AnOperandMayBeReadWholeAndInPart) {
  expect_without({"slice"}, [](Graph& g) {
    Value x = variable(g, "x", {4, 6}, 1), row = variable(g, "row", {1, 12}, 2);
    g.output("y", (x + slice(row, {0, 3}, {1, 9})) * slice(row, {0, 6}, {1, 12}));
  });
}

// Two axes of the result are one of the operand, and the reverse.
TEST_F(FusedPlaces, AxesOfTheResultNeedNotBeThoseOfTheTensor) {
  expect_without({"slice"}, [](Graph& g) {
    Value x = variable(g, "x", {6, 10}, 1), y = variable(g, "y", {2, 3, 4}, 2);
    g.output("z", reshape(slice(x, {0, 4}, {6, 8}), {2, 3, 4}) * y + 0.5);
  });
}

TEST_F(FusedPlaces, OneElementOfALargerTensor) {
  expect_without({"slice"}, [](Graph& g) {
    Value x = variable(g, "x", {4}, 1), y = variable(g, "y", {}, 2);
    g.output("z", reshape(slice(x, {2}, {3}), {}) * y + 0.5);
  });
}

// Another op reads the slice, too, so it is there in any case.
TEST_F(FusedPlaces, ASliceThatIsNeededElsewhereIsComputed) {
  Plan plan = expect_same_bits([](Graph& g) {
    Value x = variable(g, "x", {8, 8}, 1), part = slice(x, {0, 2}, {8, 6});
    g.output("y", tanh(part) * 2.0);
    g.output("sorted", sort(part, 1).values);
  });
  EXPECT_TRUE(ops_in(plan).contains("slice")) << plan.explain();
}

TEST_F(FusedPlaces, InTheBodyOfALoop) {
  Plan plan = expect_same_bits([](Graph& g) {
    Value x = variable(g, "x", {6, 8}, 1);
    Value y = while_(
        {x}, [](Value s) { return sum(abs(s)) < 1e4; },
        [](Value s) {
          std::vector<Value> halves = split(s, 2, 1);
          return concat({halves[0] * 1.5 + halves[1], halves[1] * 2.0}, 1);
        })[0];
    g.output("y", y);
  });
  EXPECT_FALSE(ops_in(plan).contains("split")) << plan.explain();
  EXPECT_FALSE(ops_in(plan).contains("concat")) << plan.explain();
}

// The type in which the kernel of a group computes an op is asked for when the kernel is compiled.
TEST_F(FusedPlaces, ATypeThatThrowsIsAnErrorOfTheOp) {
  static const OpDef without_type{.name = "without_type",
                                  .infer = [](InferArgs& a) { a.out(a.in(0).dtype, a.in(0).shape); },
                                  .elements = {.text = "x + 1.0f",
                                               .type = [](std::span<const TensorType>) -> std::string_view {
                                                 throw std::runtime_error("no type");
                                               }},
                                  .bodies = {[](const CpuArgs&) {}, [](CudaArgs&) {}}};
  Graph g;
  g.output("y", emit(without_type, {variable(g, "x", {1003}, 1) * 3.0})[0] * 2.0);
  try {
    Program program = compile(g, {.target = cuda(0)});
    program.run(sink);
    program.sync();
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "without_type") << e.what();
    EXPECT_EQ(e.problem(), "its Elements::type threw: no type");
    EXPECT_GT(e.where().line(), 0u) << e.what();
  }
}

}  // namespace
}  // namespace graphsink::testing::cuda_fused_places_test
