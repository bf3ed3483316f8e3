// What ops promise beyond their values: failing steps, open dimensions, gradients of gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "test_ops.h"

namespace graphsink::op_contract_test {
namespace {

class OpContract : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OpContract, ::testing::ValuesIn(testing::devices()), device_name);

// Runs a step with an assign in it that must not happen.
void expect_failed_step(Graph& g, Program& p, const Variable& kept, const std::string& op) {
  p.run(interactive);
  try {
    p.sync();
    ADD_FAILURE() << "the step did not fail";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), op) << e.what();
  }
  EXPECT_EQ(kept.read().at(0), 1.0);
  EXPECT_EQ(p.steps(), 0);
  (void)g;
}

TEST_P(OpContract, AnIndexOutsideTheTableFailsTheStep) {
  for (std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    Graph g;
    Value indices = g.input("i", i32, {3});
    Variable table("table", Tensor::full(f32, {3, 2}, 1.0));
    Value rows = embedding(table, indices);
    assign(table, g.value(table) + grad(sum(rows * rows), {table})[0]);
    g.output("rows", rows);
    Program p = compile(g);
    p.write(indices, std::vector<std::int32_t>{0, bad, 2});
    expect_failed_step(g, p, table, "embedding");
    EXPECT_THROW((void)p.output("rows"), Error);
    p.write(indices, std::vector<std::int32_t>{0, 2, 2});
    p.run(interactive);
    p.sync();
    Tensor after = table.read();
    EXPECT_EQ(after.at(0), 3.0);
    EXPECT_EQ(after.at(2), 1.0);
    EXPECT_EQ(after.at(5), 5.0);
  }
}

TEST_P(OpContract, ATargetThatIsNoClassFailsTheStep) {
  for (std::int32_t bad : {-1, 4}) {
    Graph g;
    Value targets = g.input("t", i32, {3});
    Variable logits("logits", Tensor::full(f32, {3, 4}, 1.0));
    Value loss = cross_entropy(logits, targets);
    assign(logits, g.value(logits) + grad(loss, {logits})[0]);
    Program p = compile(g);
    p.write(targets, std::vector<std::int32_t>{0, bad, 3});
    expect_failed_step(g, p, logits, "cross_entropy");
  }
}

TEST_P(OpContract, CheckFiniteFailsTheStep) {
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()}) {
    for (DType dtype : {f32, f64}) {
      Graph g;
      Value x = g.input("x", dtype, {1031});
      Variable sum_of_x("s", Tensor::full(dtype, {1}, 1.0));
      assign(sum_of_x, reshape(sum(check_finite(x)), {1}));
      Program p = compile(g);
      Tensor data = Tensor::full(dtype, {1031}, 0.5);
      if (dtype == f32) data.as<float>()[1030] = static_cast<float>(bad);
      if (dtype == f64) data.as<double>()[1030] = bad;
      p.write(x, data);
      expect_failed_step(g, p, sum_of_x, "check_finite");
      p.write(x, Tensor::full(dtype, {1031}, 2.0));
      p.run(interactive);
      EXPECT_EQ(sum_of_x.read().at(0), 2062.0);
    }
  }
}

TEST_P(OpContract, AnEmptyBatchHasNoLoss) {
  Graph g;
  Value logits = g.constant(Tensor(f32, {0, 4})), targets = g.constant(Tensor(i32, {0}));
  g.output("loss", cross_entropy(logits, targets));
  g.output("mean", mean(logits));
  g.output("sum", sum(logits));
  Program p = compile(g);
  p.run(interactive);
  EXPECT_TRUE(std::isnan(p.output("loss").at(0)));
  EXPECT_TRUE(std::isnan(p.output("mean").at(0)));
  EXPECT_EQ(p.output("sum").at(0), 0.0);
}

TEST_P(OpContract, LargeLogitsDoNotOverflow) {
  Graph g;
  Value logits = g.constant(Tensor({2}, std::vector<float>{1000.0f, -1000.0f}));
  Value rows = reshape(logits, {1, 2});
  Value loss = cross_entropy(rows, g.constant(Tensor({1})));
  g.output("loss", loss);
  g.output("grad", grad(loss, {rows})[0]);
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("loss").at(0), 2000.0);
  EXPECT_EQ(p.output("grad").at(0), 1.0);
  EXPECT_EQ(p.output("grad").at(1), -1.0);
}

TEST_P(OpContract, IntegersWrapAndNansStay) {
  Graph g;
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  Value n = g.constant(Tensor({kMost, kMost}));
  g.output("add", n + n);
  g.output("mul", n * n);
  g.output("sum", sum(n));
  Value x = g.constant(Tensor({std::numeric_limits<float>::quiet_NaN(), -0.0f}));
  g.output("relu", relu(x));
  g.output("equal", equal(x, x));
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("add").at(0), -2.0);
  EXPECT_EQ(p.output("mul").at(1), 1.0);
  EXPECT_EQ(p.output("sum").at(0), -2.0);
  EXPECT_TRUE(std::isnan(p.output("relu").at(0)));
  EXPECT_EQ(p.output("relu").at(1), 0.0);
  EXPECT_EQ(p.output("equal").at(0), 0.0);
  EXPECT_EQ(p.output("equal").at(1), 1.0);
}

// Built with a batch of 4, run with others: no gradient may have kept the 4.
TEST_P(OpContract, GradientsFollowOpenDimensions) {
  Graph g;
  Value x = g.input("x", f64, {open(4), 3});
  Value t = cast(sum(x, {1}) > 0.0, i32);
  Variable w("w", Tensor({3, 2}, std::vector<double>{0.1, -0.2, 0.3, 0.4, -0.5, 0.6}));
  Variable b("b", Tensor({0.05, -0.05}));
  Value h = tanh(matmul(x, w) + b);
  Value row_means = mean(h, {1});  // [batch]
  Value centred = h - reshape(row_means, {-1, 1});
  Value flat = reshape(transpose(centred), {-1});
  Value loss = cross_entropy(centred, t) + mean(flat * flat) + sum(mean(exp(h), {0}, {.keep_axes = true}));
  std::vector<Value> grads = grad(loss, {w, b});
  g.output("loss", loss);
  g.output("gw", grads[0]);
  g.output("gb", grads[1]);
  Program p = compile(g);
  for (std::int64_t batch : {4, 7, 1, 33}) {
    SCOPED_TRACE(batch);
    Tensor data(f64, {batch, 3});
    for (std::size_t i = 0; i < data.as<double>().size(); ++i)
      data.as<double>()[i] = std::sin(static_cast<double>(i) + 1.0);
    p.write(x, data);
    auto loss_now = [&] {
      p.run(interactive);
      return p.output("loss").at(0);
    };
    loss_now();
    Tensor gw = p.output("gw"), gb = p.output("gb");
    for (auto& [variable, gradient] : {std::pair{w, gw}, {b, gb}}) {
      for (std::size_t i = 0; i < gradient.as<double>().size(); ++i) {
        constexpr double kStep = 1e-5;
        Tensor original = variable.read(), moved = original;
        Variable handle = variable;
        moved.as<double>()[i] += kStep;
        handle.write(moved);
        double up = loss_now();
        moved.as<double>()[i] -= 2 * kStep;
        handle.write(moved);
        double down = loss_now();
        handle.write(original);
        EXPECT_NEAR(gradient.as<double>()[i], (up - down) / (2 * kStep), 1e-8);
      }
    }
  }
}

Value square_of(const Value& x) { return x * x; }

TEST_P(OpContract, GradientsOfGradients) {
  Graph g;
  Value x = g.constant(Tensor({0.5, -1.0, 2.0}));
  Value first = grad(sum(mul(x * x, x)), {x})[0];
  g.output("cube", grad(sum(first), {x})[0]);  // 6 x
  Value y = mean(exp(x));
  Value slope = grad(y, {x})[0];
  g.output("exp", grad(sum(slope), {x})[0]);  // exp(x) / 3
  Program p = compile(g);
  p.run(interactive);
  for (std::int64_t i = 0; i < 3; ++i) {
    double at = std::array{0.5, -1.0, 2.0}[static_cast<std::size_t>(i)];
    EXPECT_NEAR(p.output("cube").at(i), 6 * at, 1e-12);
    EXPECT_NEAR(p.output("exp").at(i), std::exp(at) / 3, 1e-12);
  }
}

// d/dx sum(d/dx sum(f(x))).
Value second_derivative(const Value& x, const std::function<Value(const Value&)>& f) {
  return grad(sum(grad(sum(f(x)), {x})[0]), {x})[0];
}

// Where a function has a kink, is constant or is not a number, and one value that is both operands.
TEST_P(OpContract, SecondDerivativesAtSpecialValues) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  struct Special {
    const char* name;
    std::function<Value(const Value&)> f;
    std::vector<double> x, wanted;
  };
  const std::vector<Special> specials{
      {"relu", [](const Value& x) { return relu(x) * relu(x); }, {0.0, -1.0, 2.0, kNan}, {0.0, 0.0, 2.0, 2.0}},
      {"abs", [](const Value& x) { return abs(x) * abs(x); }, {0.0, -1.0, 2.0, kNan}, {0.0, 2.0, 2.0, kNan}},
      {"clamp", [](const Value& x) { return clamp(x * x, 1, 4); }, {0.5, 1.5, 2.0, kInf}, {0.0, 2.0, 2.0, 0.0}},
      {"tanh", [](const Value& x) { return tanh(x); }, {-kInf, 0.0, kInf}, {0.0, 0.0, 0.0}},
      {"sigmoid", [](const Value& x) { return sigmoid(x); }, {-kInf, 0.0, kInf}, {0.0, 0.0, 0.0}},
      {"erf", [](const Value& x) { return erf(x); }, {-kInf, 0.0, 1e200, kInf}, {0.0, 0.0, 0.0, 0.0}},
      {"gelu", [](const Value& x) { return gelu(x); }, {-kInf, -1e200, 1e200, kInf}, {0.0, 0.0, 0.0, 0.0}},
      {"sqrt", [](const Value& x) { return sqrt(x); }, {0.0, 4.0, kInf}, {-kInf, -1.0 / 32, 0.0}},
      {"pow 0", [](const Value& x) { return pow(x, 0.0); }, {0.0, -1.0, 2.0}, {0.0, 0.0, 0.0}},
      {"pow 1", [](const Value& x) { return pow(x, 1.0); }, {0.0, -1.0, 2.0}, {0.0, 0.0, 0.0}},
      {"pow 2", [](const Value& x) { return pow(x, 2.0); }, {0.0, -1.0, 2.0}, {2.0, 2.0, 2.0}},
      {"pow x", [](const Value& x) { return pow(x, x); }, {1.0}, {2.0}},
      {"prod", [](const Value& x) { return prod(x); }, {0.0, 2.0, 0.0, 3.0}, {6.0, 0.0, 6.0, 0.0}},
      {"logsumexp", [](const Value& x) { return logsumexp(x); }, {-kInf, 1.0, 1.0}, {0.0, 0.0, 0.0}},
      {"max", [](const Value& x) { return max(x) * max(x); }, {2.0, 2.0, 1.0}, {1.0, 1.0, 0.0}},
  };
  for (const auto& [name, f, at, wanted] : specials) {
    SCOPED_TRACE(name);
    Graph g;
    Value x = g.constant(Tensor({static_cast<std::int64_t>(at.size())}, at));
    g.output("second", second_derivative(x, f));
    Program p = compile(g);
    p.run(interactive);
    const Tensor seen = p.output("second");
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double value = seen.at(static_cast<std::int64_t>(i));
      if (std::isnan(wanted[i])) {
        EXPECT_TRUE(std::isnan(value)) << at[i] << ": " << value;
      } else if (std::isinf(wanted[i])) {
        EXPECT_EQ(value, wanted[i]) << at[i];
      } else {
        EXPECT_NEAR(value, wanted[i], 1e-12) << at[i];
      }
    }
  }
}

// A row that does not count has no derivatives, whatever its logits are, and a mean over no rows has none at all.
TEST_P(OpContract, IgnoredRowsHaveNoSecondDerivatives) {
  for (bool counts : {true, false}) {
    Graph g;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Value x = g.constant(Tensor({2, 2}, std::vector<double>{nan, 1.0, 0.5, 0.5}));
    Value targets = g.constant(Tensor({7, counts ? 0 : 7}));
    Value squared = square_of(grad(cross_entropy(x, targets, {.ignore_index = 7}), {x})[0]);
    g.output("second", grad(sum(squared), {x})[0]);
    Program p = compile(g);
    p.run(interactive);
    const Tensor second = p.output("second");
    // The gradient of the other row is (-1/2, 1/2), and its derivative 1/4 (1, -1; -1, 1).
    for (std::int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(second.at(i), !counts || i < 2 ? 0.0 : i == 2 ? -0.5 : 0.5, 1e-12) << i;
  }
}

// Second derivatives may be differentiated, too.
TEST_P(OpContract, ThirdDerivatives) {
  Graph g;
  Value x = g.constant(Tensor({0.3, -0.7}));
  Value second = second_derivative(x, [](const Value& v) { return tanh(v); });
  g.output("tanh", grad(sum(second), {x})[0]);
  Program p = compile(g);
  p.run(interactive);
  for (std::int64_t i = 0; i < 2; ++i) {
    double y = std::tanh(std::array{0.3, -0.7}[static_cast<std::size_t>(i)]);
    EXPECT_NEAR(p.output("tanh").at(i), (1 - y * y) * (6 * y * y - 2), 1e-12);
  }
}

// Built with a batch of 4, run with others, as above.
TEST_P(OpContract, SecondDerivativesFollowOpenDimensions) {
  Graph g;
  Value x = g.input("x", f64, {open(4), 3});
  Value targets = g.input("t", i32, {open(4)});
  Value scores = softmax(x) + layer_norm(x, g.constant(Tensor({1.0, 2.0, 3.0})), g.constant(Tensor({0.0, 0.0, 0.0})));
  Value heads = reshape(x, {1, 1, -1, 3});
  Value loss = cross_entropy(scores, targets) + sum(prod(x, {0, 1})) +
               sum(square_of(attention(heads, heads, heads, {.causal = true})));
  Value slopes = sum(square_of(grad(loss, {x})[0]));
  g.output("slopes", slopes);
  g.output("second", grad(slopes, {x})[0]);
  // The scores that are -inf are not what an op of the user's returns.
  Program p = graphsink::compile(g, {.target = GetParam(), .check_finite = true});
  for (std::int64_t batch : {4, 7, 1}) {
    SCOPED_TRACE(batch);
    Tensor data(f64, {batch, 3}), classes(i32, {batch});
    for (std::size_t i = 0; i < data.as<double>().size(); ++i)
      data.as<double>()[i] = 1 + 0.3 * std::sin(static_cast<double>(i) + 1.0);
    p.write(targets, classes);
    auto slopes_at = [&](const Tensor& at) {
      p.write(x, at);
      p.run(interactive);
      return p.output("slopes").at(0);
    };
    slopes_at(data);
    const Tensor second = p.output("second");
    for (std::size_t i = 0; i < data.as<double>().size(); ++i) {
      constexpr double kStep = 1e-5;
      Tensor up = data, down = data;
      up.as<double>()[i] += kStep;
      down.as<double>()[i] -= kStep;
      const double wanted = (slopes_at(up) - slopes_at(down)) / (2 * kStep);
      EXPECT_NEAR(second.as<double>()[i], wanted, 1e-6 * std::max(1.0, std::abs(wanted)));
    }
  }
}

// Feeds are loaded from slices at any alignment, and assigned values stored, to the last byte.
TEST_P(OpContract, FeedsAndStoresCopyEveryByte) {
  Graph g;
  std::vector<Value> feeds;
  std::vector<Variable> variables;
  std::vector<Tensor> slices;  // three
  constexpr std::int64_t kSteps = 3;
  for (std::int64_t n : {0, 1, 3, 4, 5, 31, 257, 16411}) {
    for (DType dtype : {f64, f32, i32, boolean, f16, u8}) {
      feeds.push_back(g.feed("x" + std::to_string(feeds.size()), dtype, {n}));
      variables.emplace_back("v" + std::to_string(feeds.size()), Tensor(dtype, {n}));
      assign(variables.back(), feeds.back());
      slices.emplace_back(dtype, Shape{kSteps, n});
      for (std::size_t i = 0; i < slices.back().bytes(); ++i)
        slices.back().data()[i] = static_cast<std::byte>(dtype == boolean ? i % 3 == 0 : i * 37 % 127);
    }
  }
  Program p = compile(g);
  for (std::size_t f = 0; f < feeds.size(); ++f) p.write(feeds[f], slices[f]);
  p.run(interactive, {.steps = kSteps});
  p.sync();
  for (std::size_t f = 0; f < feeds.size(); ++f) {
    Tensor last = variables[f].read();
    ASSERT_TRUE(std::equal(last.data(), last.data() + last.bytes(), slices[f].data() + 2 * last.bytes()))
        << to_string(last.type());
  }
}

TEST_P(OpContract, NumbersTakeTheDtypeOfTheOtherOperand) {
  Graph g;
  Value n = g.constant(Tensor({1, 2, 3}));
  Value x = g.constant(Tensor({0.5, 1.5}));
  g.output("n", 2 * n - 1);
  g.output("x", 1.0 / x);
  g.output("less", n < 2);
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("n").dtype(), i32);
  EXPECT_EQ(p.output("n").at(2), 5.0);
  EXPECT_EQ(p.output("x").dtype(), f64);
  EXPECT_EQ(p.output("x").at(0), 2.0);
  EXPECT_EQ(p.output("less").at(0), 1.0);
  EXPECT_EQ(p.output("less").at(1), 0.0);
}

}  // namespace
}  // namespace graphsink::op_contract_test
