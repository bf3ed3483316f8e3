// sgd and adamw against their formulas in f64, and that a failed step changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "test_ops.h"

namespace graphsink::op_optimizer_test {
namespace {

class OpOptimizer : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OpOptimizer, ::testing::ValuesIn(testing::devices()), device_name);

double initial(std::int64_t parameter, std::int64_t i) { return std::sin(static_cast<double>(3 * parameter + i + 1)); }
double factor(std::int64_t parameter) { return 0.5 + 0.1 * static_cast<double>(parameter % 7); }

// Parameters w_p with the loss sum over p of factor_p / 2 * |w_p|^2, whose gradients are factor_p * w_p.
struct Parameters {
  Graph g;
  std::vector<Variable> variables;
  Value scale = g.input("scale", f32, {});
  Value loss;

  Parameters(int count, std::initializer_list<std::int64_t> sizes, std::initializer_list<DType> dtypes) {
    for (int p = 0; p < count; ++p) {
      auto index = static_cast<std::size_t>(p);
      Tensor w(std::data(dtypes)[index % dtypes.size()], {std::data(sizes)[index % sizes.size()]});
      for (std::int64_t i = 0; i < w.shape().size(); ++i) {
        if (w.dtype() == f32) w.as<float>()[static_cast<std::size_t>(i)] = static_cast<float>(initial(p, i));
        if (w.dtype() == f64) w.as<double>()[static_cast<std::size_t>(i)] = initial(p, i);
      }
      variables.emplace_back("w" + std::to_string(p), w);
      Value value = g.value(variables.back());
      Value term = cast(sum(value * value) * (0.5 * factor(p)), f32);
      loss = loss.valid() ? loss + term : term;
    }
    loss = check_finite(loss * scale);
  }
};

struct Moments {
  double m = 0, v = 0;
};

void expect_tensor(const Tensor& seen, const std::vector<double>& wanted) {
  double tolerance = seen.dtype() == f32 ? 3e-6 : 1e-13;
  ASSERT_EQ(seen.shape().size(), static_cast<std::int64_t>(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(seen.at(static_cast<std::int64_t>(i)), wanted[i], tolerance) << "element " << i;
}

// More tensors than one launch has room for, of both dtypes and many sizes, over several steps.
TEST_P(OpOptimizer, AdamwFollowsItsFormula) {
  constexpr double kLr = 0.01, kBeta1 = 0.8, kBeta2 = 0.95, kEps = 1e-6, kDecay = 0.1;
  Parameters parameters(200, {1, 257, 3, 0, 1024, 1025, 7}, {f32, f32, f64});
  Optimizer optimizer = adamw(parameters.loss, parameters.variables,
                              {.lr = kLr, .beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps, .weight_decay = kDecay});
  Program p = compile(parameters.g);
  p.write(parameters.scale, std::vector<float>{1});
  constexpr int kSteps = 5;
  p.run(interactive, {.steps = 2});
  p.run(interactive, {.steps = kSteps - 2});
  p.sync();
  for (std::size_t index = 0; index < parameters.variables.size(); ++index) {
    SCOPED_TRACE(parameters.variables[index].name());
    auto parameter = static_cast<std::int64_t>(index);
    std::vector<double> w, m, v;
    for (std::int64_t i = 0; i < parameters.variables[index].type().shape.size(); ++i) {
      double x = initial(parameter, i);
      Moments moments;
      for (int t = 1; t <= kSteps; ++t) {
        double g = factor(parameter) * x;
        moments.m = kBeta1 * moments.m + (1 - kBeta1) * g;
        moments.v = kBeta2 * moments.v + (1 - kBeta2) * g * g;
        double m_hat = moments.m / (1 - std::pow(kBeta1, t)), v_hat = moments.v / (1 - std::pow(kBeta2, t));
        x -= kLr * (m_hat / (std::sqrt(v_hat) + kEps) + kDecay * x);
      }
      w.push_back(x);
      m.push_back(moments.m);
      v.push_back(moments.v);
    }
    expect_tensor(parameters.variables[index].read(), w);
    expect_tensor(optimizer.state[2 * index].read(), m);
    expect_tensor(optimizer.state[2 * index + 1].read(), v);
    if (HasFatalFailure()) return;
  }
}

// With g the moments are (1 - beta1) g and (1 - beta2) g^2, which the correction divides by the same factors: what is
// left is lr g / (|g| + eps), up to the rounding of each operation.
TEST_P(OpOptimizer, TheFirstUpdateOfAdamwIsTheLearningRate) {
  constexpr double kLr = 1e-3, kEps = 1e-8;
  const std::vector<float> gradients{1, -1, 0.0625f, 3.7f, -1e-3f, 250};
  for (DType dtype : {f64, f32, f16, bf16}) {
    for (auto [beta1, beta2] : {std::pair{0.9, 0.999}, {0.95, 0.9999}, {0.0, 0.0}}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + ", beta2 " + std::to_string(beta2));
      Graph g;
      Variable w("w", Tensor(dtype, {6}));
      Value loss = sum(cast(g.value(w), f32) * g.constant(Tensor({6}, gradients)));
      Optimizer optimizer =
          adamw(loss, {w}, {.lr = kLr, .beta1 = beta1, .beta2 = beta2, .eps = kEps, .weight_decay = 0});
      Program p = compile(g);
      p.run(interactive);
      p.sync();
      const bool has_master = dtype == f16 || dtype == bf16;
      const Tensor seen = (has_master ? optimizer.state.back() : w).read();
      for (std::int64_t i = 0; i < 6; ++i) {
        const double x = Tensor::full(has_master ? dtype : f32, {}, gradients[static_cast<std::size_t>(i)]).at(0);
        const double wanted = -(dtype == f64 ? kLr : double{static_cast<float>(kLr)}) * x / (std::abs(x) + kEps);
        // In f64, a last bit of beta^1 is one of 1, and the correction 1e-4.
        EXPECT_LE(std::abs(seen.at(i) / wanted - 1), dtype == f64 ? 2e-12 : 1.7e-7) << "gradient " << x;
      }
    }
  }
}

TEST_P(OpOptimizer, SgdFollowsItsFormula) {
  Parameters parameters(300, {1, 257, 0, 1031}, {f32, f64, f32});
  sgd(parameters.loss, parameters.variables, {.lr = 0.25});
  Program p = compile(parameters.g);
  p.write(parameters.scale, std::vector<float>{1});
  p.run(interactive, {.steps = 3});
  p.sync();
  for (std::size_t index = 0; index < parameters.variables.size(); ++index) {
    SCOPED_TRACE(parameters.variables[index].name());
    auto parameter = static_cast<std::int64_t>(index);
    std::vector<double> w;
    for (std::int64_t i = 0; i < parameters.variables[index].type().shape.size(); ++i)
      w.push_back(initial(parameter, i) * std::pow(1 - 0.25 * factor(parameter), 3));
    expect_tensor(parameters.variables[index].read(), w);
    if (HasFatalFailure()) return;
  }
}

// Multiples of 1/8, which are halves.
double gradient_at(std::int64_t i) { return static_cast<double>(i % 13 - 6) / 8; }

struct HalfCase {
  bool is_adamw;
  double momentum;
  GradientOptions gradients;
  double clip;  // what clipping makes of the gradients
};

// The formulas in f64; the gradients do not depend on the parameter.
double updated(const HalfCase& c, double x, double g, int updates) {
  double m = 0, v = 0, lr = static_cast<float>(1e-4);
  for (int t = 1; t <= updates; ++t) {
    if (c.is_adamw) {
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      x -= lr * (m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8) + 0.1 * x);
    } else {
      m = c.momentum * m + g + 0.1 * x;
      x -= lr * m;
    }
  }
  return x;
}

// Updates are smaller than half of a last bit of most parameters: without master copies these would stay.
TEST_P(OpOptimizer, HalvesFollowTheirMasterCopies) {
  double norm = 0;
  for (std::int64_t i = 0; i < 1031; ++i) norm += gradient_at(i) * gradient_at(i);
  GradientOptions clipped{.clip_norm = std::sqrt(norm) / 4};
  GradientOptions scaled{.accumulate = 2, .loss_scale = LossScale{.initial = 1024}};
  for (DType dtype : {f16, bf16}) {
    for (const HalfCase& c : std::initializer_list<HalfCase>{{true, 0, {}, 1},
                                                             {false, 0, clipped, 0.25},
                                                             {false, 0.9, {}, 1},
                                                             {false, 0.9, scaled, 1},
                                                             {true, 0, scaled, 1}}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + (c.is_adamw ? " adamw" : " sgd"));
      std::vector<double> start, wanted;
      std::vector<float> factors;
      for (std::int64_t i = 0; i < 1031; ++i) {
        start.push_back(Tensor::full(dtype, {}, initial(0, i)).at(0));
        factors.push_back(static_cast<float>(gradient_at(i)));
        wanted.push_back(updated(c, start.back(), c.clip * gradient_at(i), 10));
      }
      Graph g;
      Tensor w(dtype, {1031});
      for (std::size_t i = 0; i < start.size(); ++i) {
        if (dtype == f16) w.as<half>()[i] = half(start[i]);
        if (dtype == bf16) w.as<bfloat16>()[i] = bfloat16(start[i]);
      }
      Variable parameter("w", w);
      Value loss = sum(cast(g.value(parameter), f32) * g.constant(Tensor({1031}, factors)));
      Optimizer optimizer =
          c.is_adamw ? adamw(loss, {parameter}, {.lr = 1e-4, .weight_decay = 0.1, .gradients = c.gradients})
                     : sgd(loss, {parameter},
                           {.lr = 1e-4, .momentum = c.momentum, .weight_decay = 0.1, .gradients = c.gradients});
      Program p = compile(g);
      p.run(interactive, {.steps = 10 * c.gradients.accumulate});
      p.sync();
      Variable master = optimizer.state.back();
      EXPECT_EQ(master.name(), c.is_adamw ? "w.adamw.master" : "w.sgd.master");
      expect_tensor(master.read(), wanted);
      Tensor seen = parameter.read(), exact = master.read();
      for (std::int64_t i = 0; i < 1031; ++i)
        ASSERT_EQ(seen.at(i), Tensor::full(dtype, {}, exact.at(i)).at(0)) << "element " << i;
    }
  }
}

TEST_P(OpOptimizer, AGroupMayMixDtypes) {
  Graph g;
  Variable a("a", Tensor({bfloat16(4)})), b("b", Tensor({4.0f})), c("c", Tensor({half(4)}));
  Value loss = sum(cast(g.value(a), f32)) + sum(g.value(b) * 2) + sum(cast(g.value(c), f32) * 4);
  Optimizer optimizer = sgd(loss, {a, b, c}, {.lr = 0.25});
  Program p = compile(g);
  p.run(interactive, {.steps = 2});
  p.sync();
  EXPECT_EQ(a.read().at(0), 3.5);
  EXPECT_EQ(b.read().at(0), 3.0);
  EXPECT_EQ(c.read().at(0), 2.0);
  ASSERT_EQ(optimizer.state.size(), 2u);
  EXPECT_EQ(optimizer.state[0].name(), "a.sgd.master");
  EXPECT_EQ(optimizer.state[1].name(), "c.sgd.master");
}

TEST_P(OpOptimizer, AFailedStepChangesNothing) {
  for (bool is_adamw : {false, true}) {
    Parameters parameters(3, {5, 257}, {f32, f64});
    Optimizer optimizer =
        is_adamw ? adamw(parameters.loss, parameters.variables) : sgd(parameters.loss, parameters.variables);
    std::vector<Variable> all = parameters.variables;
    all.insert(all.end(), optimizer.state.begin(), optimizer.state.end());
    Program p = compile(parameters.g);
    p.write(parameters.scale, std::vector<float>{1});
    p.run(interactive);
    p.sync();
    std::vector<Tensor> before;
    for (const Variable& variable : all) before.push_back(variable.read());
    p.write(parameters.scale, std::vector<float>{std::numeric_limits<float>::infinity()});
    p.run(interactive);
    EXPECT_THROW(p.sync(), Error);
    for (std::size_t i = 0; i < all.size(); ++i) {
      Tensor after = all[i].read();
      EXPECT_EQ(std::memcmp(after.data(), before[i].data(), after.bytes()), 0) << all[i].name();
    }
    EXPECT_EQ(p.steps(), 1);
  }
}

TEST_P(OpOptimizer, LearningRateOfEitherDtype) {
  for (DType dtype : {f32, f64}) {
    Graph g;
    Variable w("w", Tensor({1.0f}));
    sgd(sum(g.value(w) * 2.0), {w}, {.lr = g.constant(Tensor::full(dtype, {}, 0.5))});
    Program p = compile(g);
    p.run(interactive);
    EXPECT_EQ(w.read().at(0), 0.0);
  }
}

}  // namespace
}  // namespace graphsink::op_optimizer_test
