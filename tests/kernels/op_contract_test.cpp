// What ops promise beyond their values: failing steps, open dimensions, gradients of gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "test_ops.h"

namespace graphsink {
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
    EXPECT_THROW((void)p.read_output("rows"), Error);
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
  EXPECT_TRUE(std::isnan(p.read_output("loss").at(0)));
  EXPECT_TRUE(std::isnan(p.read_output("mean").at(0)));
  EXPECT_EQ(p.read_output("sum").at(0), 0.0);
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
  EXPECT_EQ(p.read_output("loss").at(0), 2000.0);
  EXPECT_EQ(p.read_output("grad").at(0), 1.0);
  EXPECT_EQ(p.read_output("grad").at(1), -1.0);
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
  EXPECT_EQ(p.read_output("add").at(0), -2.0);
  EXPECT_EQ(p.read_output("mul").at(1), 1.0);
  EXPECT_EQ(p.read_output("sum").at(0), -2.0);
  EXPECT_TRUE(std::isnan(p.read_output("relu").at(0)));
  EXPECT_EQ(p.read_output("relu").at(1), 0.0);
  EXPECT_EQ(p.read_output("equal").at(0), 0.0);
  EXPECT_EQ(p.read_output("equal").at(1), 1.0);
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
  Value loss = cross_entropy(centred, t) + mean(flat * flat) + sum(mean(exp(h), {0}, true));
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
      return p.read_output("loss").at(0);
    };
    loss_now();
    Tensor gw = p.read_output("gw"), gb = p.read_output("gb");
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
    EXPECT_NEAR(p.read_output("cube").at(i), 6 * at, 1e-12);
    EXPECT_NEAR(p.read_output("exp").at(i), std::exp(at) / 3, 1e-12);
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
  EXPECT_EQ(p.read_output("n").dtype(), i32);
  EXPECT_EQ(p.read_output("n").at(2), 5.0);
  EXPECT_EQ(p.read_output("x").dtype(), f64);
  EXPECT_EQ(p.read_output("x").at(0), 2.0);
  EXPECT_EQ(p.read_output("less").at(0), 1.0);
  EXPECT_EQ(p.read_output("less").at(1), 0.0);
}

}  // namespace
}  // namespace graphsink
