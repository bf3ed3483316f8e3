// Ops that take over what follows them: where they may, and that nothing but the number of kernels changes.
#include <cstring>
#include <functional>

#include "api/plan_of.h"
#include "ir/fused.h"
#include "program_fixture.h"
#include "same_outputs.h"

namespace graphsink::fuse_test {
namespace {

using testing::device_name;
using testing::expect_same_outputs;
using testing::OnDevice;

// The ops of the step without those that begin and end it, and without what produces inputs. Groups of element-wise
// ops (fuse_elementwise_test.cpp) are listed op by op.
std::string ops_of(const Plan& plan) {
  std::string names;
  auto add = [&](const OpDef* op) { names += (names.empty() ? "" : " ") + std::string(op->name); };
  for (const PlanNode& node : plan.nodes) {
    if (node.id < 0) continue;
    const auto* group = node.attrs.get_if<FusedAttrs>();
    if (!group) add(node.op);
    for (std::size_t k = 0; group && k < group->ops.size(); ++k) add(group->ops[k].op);
  }
  return names;
}

struct Operands {
  Value x, w, b;  // [3, 4], [4, 5], [5]
};

struct Case {
  const char* name;
  std::function<void(Graph&, const Operands&)> build;
  const char* ops;
};

void output(Graph& g, const Value& y) { g.output("y", y); }

const Case kCases[] = {
    {"Bias", [](Graph& g, const Operands& o) { output(g, matmul(o.x, o.w) + o.b); }, "matmul_bias"},
    {"BiasFirst", [](Graph& g, const Operands& o) { output(g, o.b + matmul(o.x, o.w)); }, "matmul_bias"},
    {"BiasOfARow",
     [](Graph& g, const Operands& o) {
       output(g, matmul(o.x, o.w) + reshape(o.b, {1, 5}));
     },
     "matmul_bias"},
    {"Relu", [](Graph& g, const Operands& o) { output(g, relu(matmul(o.x, o.w))); }, "matmul_relu"},
    {"BiasGelu", [](Graph& g, const Operands& o) { output(g, gelu(matmul(o.x, o.w) + o.b)); }, "matmul_bias_gelu"},
    {"BiasTanh", [](Graph& g, const Operands& o) { output(g, tanh(matmul(o.x, o.w) + o.b)); }, "matmul_bias_tanh"},
    {"BiasSilu", [](Graph& g, const Operands& o) { output(g, silu(matmul(o.x, o.w) + o.b)); }, "matmul_bias_silu"},
    {"BiasSigmoid", [](Graph& g, const Operands& o) { output(g, sigmoid(matmul(o.x, o.w) + o.b)); },
     "matmul_bias_sigmoid"},
    {"BiasRelu", [](Graph& g, const Operands& o) { output(g, relu(matmul(o.x, o.w) + o.b)); }, "matmul_bias_relu"},
    {"AnotherActivation", [](Graph& g, const Operands& o) { output(g, exp(matmul(o.x, o.w) + o.b)); },
     "matmul_bias exp"},
    {"SumIsAnOutputToo",
     [](Graph& g, const Operands& o) {
       Value sum = matmul(o.x, o.w) + o.b;
       output(g, gelu(sum));
       g.output("sum", sum);
     },
     "matmul_bias_gelu"},
    {"SumIsUsedLater",
     [](Graph& g, const Operands& o) {
       Value sum = matmul(o.x, o.w) + o.b;
       output(g, gelu(sum) * sum);
     },
     "matmul_bias_gelu mul"},
    {"SumIsUsedBefore",
     [](Graph& g, const Operands& o) {
       Value sum = matmul(o.x, o.w) + o.b;
       Value other = sum * 2.0;
       output(g, gelu(sum) * other);
     },
     "matmul_bias mul gelu mul"},
    {"ProductIsUsedTwice",
     [](Graph& g, const Operands& o) {
       Value product = matmul(o.x, o.w);
       output(g, (product + o.b) * product);
     },
     "matmul add mul"},
    {"ProductAddedToItself",
     [](Graph& g, const Operands& o) {
       Value product = matmul(o.x, o.w);
       output(g, product + product);
     },
     "matmul add"},
    {"TwoProducts",
     [](Graph& g, const Operands& o) {
       Value product = matmul(o.x, o.w), other = matmul(o.x, relu(o.w));
       output(g, product + other);
     },
     "matmul relu matmul add"},
    {"TwoProductsOfARow",
     [](Graph& g, const Operands& o) {
       Value row = slice(o.x, {0, 0}, {1, 4}), other = slice(o.x, {1, 0}, {2, 4});
       output(g, tanh(matmul(row, o.w) + matmul(other, o.w)));
     },
     "slice slice matmul matmul_bias_tanh"},
    {"ColumnIsNoBias",
     [](Graph& g, const Operands& o) {
       Value column = slice(o.x, {0, 0}, {3, 1});
       output(g, matmul(o.x, o.w) + column);
     },
     "slice matmul add"},
    {"ScalarIsNoBias", [](Graph& g, const Operands& o) { output(g, matmul(o.x, o.w) + 1.0); }, "matmul add"},
    {"SumOfHigherRank",
     [](Graph& g, const Operands& o) {
       Value bias = reshape(o.b, {1, 1, 5});
       output(g, matmul(o.x, o.w) + bias);
     },
     "matmul add"},
    {"Batches",
     [](Graph& g, const Operands& o) {
       output(g, gelu(matmul(reshape(o.x, {3, 1, 4}), o.w) + o.b));
     },
     "matmul_bias_gelu"},
    {"Transposed",
     [](Graph& g, const Operands& o) {
       Value bias = slice(o.b, {0}, {3});
       output(g, relu(matmul(o.w, o.x, {.transpose_a = true, .transpose_b = true}) + bias));
     },
     "slice matmul_bias_relu"},
    {"Gradients",
     [](Graph& g, const Operands& o) {
       Value loss = sum(gelu(matmul(o.x, o.w) + o.b));
       std::vector<Value> grads = grad(loss, {o.x, o.w, o.b});
       for (std::size_t i = 0; i < 3; ++i) g.output("g" + std::to_string(i), grads[i]);
     },
     nullptr},
    {"InABody",
     [](Graph& g, const Operands& o) {
       auto [y] = while_(
           {o.x}, [](Value s) { return sum(s * s) < 1e3; },
           [&](Value s) { return matmul(relu(matmul(s, o.w) + o.b), o.w, {.transpose_b = true}) + s + 1.0; });
       output(g, sum(y));
     },
     nullptr},
    {"AcrossABody",
     [](Graph& g, const Operands& o) {
       Value product = matmul(o.x, o.w);
       Value y = if_(
           sum(o.x) > 0.0, [&] { return relu(product); }, [&] { return product; });
       output(g, y);
     },
     nullptr},
    {"ReturnedByABodyBefore",
     [](Graph& g, const Operands& o) {
       Value sum = matmul(o.x, o.w) + o.b;
       Value y = if_(
           mean(o.x) > 0.0, [&] { return sum; }, [&] { return sum; });
       output(g, gelu(sum) + y);
     },
     nullptr},
    {"ReturnedByALoopBefore",
     [](Graph& g, const Operands& o) {
       Value sum = matmul(o.x, o.w) + o.b;
       auto [i, y] = while_(
           {g.constant(Tensor::full(i32, {}, 0)), matmul(o.x, o.w)}, [](Value i, Value) { return i < 2; },
           [&](Value i, Value) {
             return std::vector<Value>{i + 1, sum};
           });
       output(g, gelu(sum) + y);
     },
     nullptr},
};

class FuseCase : public OnDevice {};

void build(Graph& g, const Case& c, DType dtype) {
  Operands o{g.value(Variable("x", Tensor::uniform({3, 4}, 1, -1.0f, 1.0f).to(dtype))),
             g.value(Variable("w", Tensor::uniform({4, 5}, 2, -1.0f, 1.0f).to(dtype))),
             g.value(Variable("b", Tensor::uniform({5}, 3, -1.0f, 1.0f).to(dtype)))};
  c.build(g, o);
}

TEST(Fuse, JoinsWhatItMay) {
  for (const Case& c : kCases) {
    if (!c.ops) continue;
    SCOPED_TRACE(c.name);
    Graph g;
    build(g, c, f32);
    EXPECT_EQ(ops_of(plan_of(graphsink::compile(g, {.target = cpu()}))), c.ops);
  }
}

TEST_P(FuseCase, ChangesNoBits) {
  for (const Case& c : kCases) {
    for (DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(to_string(dtype)));
      Graph g;
      build(g, c, dtype);
      Program separate = compile(g, {.tuning = {.fuse = false}});
      Program fused = compile(g);
      expect_same_outputs(separate, fused);
    }
  }
}

// A width that is a whole number of packs, and of vectors, with a rest.
TEST_P(FuseCase, WideRowsChangeNoBits) {
  for (std::int64_t columns : {8, 64, 67}) {
    SCOPED_TRACE(columns);
    Graph g;
    Variable x("x", Tensor::uniform({7, 9}, 1, -1.0f, 1.0f)), w("w", Tensor::uniform({9, columns}, 2, -1.0f, 1.0f));
    Variable b("b", Tensor::uniform({columns}, 3, -1.0f, 1.0f));
    Value sum = matmul(g.value(x), w) + b;
    g.output("y", gelu(sum));
    g.output("sum", sum);
    Program separate = compile(g, {.tuning = {.fuse = false}}), fused = compile(g);
    separate.run(sink);
    fused.run(sink);
    for (const char* name : {"y", "sum"}) {
      Tensor a = separate.output(name), c = fused.output(name);
      EXPECT_EQ(std::memcmp(a.data(), c.data(), a.bytes()), 0) << name;
    }
  }
}

TEST_P(FuseCase, OpsOnTwoDevicesStayApart) {
  Graph g;
  Value x = g.value(Variable("x", Tensor::uniform({3, 4}, 1)));
  g.output("y", relu(matmul(x, x, {.transpose_b = true}), on_cpu));
  bool is_one_device = GetParam().kind == DeviceKind::cpu;
  EXPECT_EQ(ops_of(plan_of(compile(g))), is_one_device ? "matmul_relu" : "matmul relu");
}

TEST_P(FuseCase, EmptyProducts) {
  Graph g;
  Value x = g.value(Variable("x", Tensor(f32, {0, 4}))), w = g.value(Variable("w", Tensor::full(f32, {4, 5}, 1)));
  Value none = g.value(Variable("none", Tensor(f32, {3, 0}))), rows = g.value(Variable("rows", Tensor(f32, {0, 5})));
  Value b = g.value(Variable("b", Tensor::full(f32, {5}, 2)));
  g.output("no_rows", gelu(matmul(x, w) + b));
  g.output("no_terms", relu(matmul(none, rows) + b));
  Program program = compile(g);
  program.run(sink);
  EXPECT_EQ(program.output("no_rows").bytes(), 0u);
  Tensor y = program.output("no_terms");
  for (std::int64_t i = 0; i < 15; ++i) EXPECT_EQ(y.at(i), 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, FuseCase, ::testing::ValuesIn(testing::devices()), device_name);

}  // namespace
}  // namespace graphsink::fuse_test
