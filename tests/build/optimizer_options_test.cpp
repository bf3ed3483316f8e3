// Groups, momentum, clipping, accumulation and loss scaling against written-out references over many steps, and in all
// modes alike.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ir/graph_data.h"
#include "test_ops.h"

namespace graphsink::optimizer_options_test {
namespace {

constexpr std::int64_t kSizes[] = {3, 1025, 1};
constexpr std::size_t kParameters = std::size(kSizes);

double initial(std::size_t p, std::size_t i) { return std::sin(static_cast<double>(3 * p + i + 1)); }
double factor(std::size_t p) { return 0.5 + 0.25 * static_cast<double>(p); }
double target(std::int64_t step) { return std::cos(0.7 * static_cast<double>(step)); }

// Parameters w_p, in step s pulled towards target(s): the gradient is factor_p * (w_p - target).
struct Problem {
  Graph g;
  std::vector<Variable> w;
  Value x = g.feed("x", f64, {});
  Value loss;

  explicit Problem(DType dtype = f64) {
    for (std::size_t p = 0; p < kParameters; ++p) {
      Tensor tensor(f64, {kSizes[p]});
      for (std::size_t i = 0; i < tensor.as<double>().size(); ++i) tensor.as<double>()[i] = initial(p, i);
      w.emplace_back("w" + std::to_string(p), tensor.to(dtype));
      Value difference = cast(g.value(w.back()), f64) - x;
      Value term = sum(difference * difference) * (0.5 * factor(p));
      loss = loss.valid() ? loss + term : term;
    }
    g.record("loss", loss);
  }

  void run(Program& program, std::int64_t steps, Mode mode, std::int64_t first = 0) const {
    Tensor targets(f64, {steps});
    for (std::int64_t s = 0; s < steps; ++s) targets.as<double>()[static_cast<std::size_t>(s)] = target(first + s);
    program.write(x, targets);
    program.run(mode, {.steps = steps});
    program.sync();
  }
};

using Vectors = std::vector<std::vector<double>>;
Vectors initial_parameters() {
  Vectors w;
  for (std::size_t p = 0; p < kParameters; ++p) {
    w.emplace_back();
    for (std::size_t i = 0; i < static_cast<std::size_t>(kSizes[p]); ++i) w.back().push_back(initial(p, i));
  }
  return w;
}
Vectors gradients(const Vectors& w, std::int64_t step) {
  Vectors g = w;
  for (std::size_t p = 0; p < w.size(); ++p)
    for (double& x : g[p]) x = factor(p) * (x - target(step));
  return g;
}
double norm(const Vectors& g) {
  double sum = 0;
  for (const auto& vector : g)
    for (double x : vector) sum += x * x;
  return std::sqrt(sum);
}
void scale(Vectors& g, double by) {
  for (auto& vector : g)
    for (double& x : vector) x *= by;
}
void add(Vectors& sum, const Vectors& g) {
  for (std::size_t p = 0; p < g.size(); ++p)
    for (std::size_t i = 0; i < g[p].size(); ++i) sum[p][i] += g[p][i];
}

struct AdamwReference {
  AdamwOptions options;
  double lr;
  Vectors w = initial_parameters();
  Vectors m = initial_parameters(), v = initial_parameters();
  int updates = 0;
  double weight_decay = std::get<double>(options.weight_decay.content());
  AdamwReference(AdamwOptions o, double rate) : options(std::move(o)), lr(rate) { scale(m, 0), scale(v, 0); }

  void update(const Vectors& g) {
    ++updates;
    double c1 = 1 - std::pow(options.beta1, updates), c2 = 1 - std::pow(options.beta2, updates);
    for (std::size_t p = 0; p < w.size(); ++p) {
      for (std::size_t i = 0; i < w[p].size(); ++i) {
        m[p][i] = options.beta1 * m[p][i] + (1 - options.beta1) * g[p][i];
        v[p][i] = options.beta2 * v[p][i] + (1 - options.beta2) * g[p][i] * g[p][i];
        double step = m[p][i] / c1 / (std::sqrt(v[p][i] / c2) + options.eps);
        w[p][i] -= lr * (step + weight_decay * w[p][i]);
      }
    }
  }
};

void expect_parameters(const Problem& problem, const Vectors& wanted, double tolerance = 1e-6) {
  for (std::size_t p = 0; p < wanted.size(); ++p) {
    Tensor seen = problem.w[p].read();
    for (std::size_t i = 0; i < wanted[p].size(); ++i)
      ASSERT_NEAR(seen.at(static_cast<std::int64_t>(i)), wanted[p][i], tolerance) << "w" << p << "[" << i << "]";
  }
}

class OptimizerOptions : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Problem& problem) { return graphsink::compile(problem.g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OptimizerOptions, ::testing::ValuesIn(testing::devices()), device_name);

constexpr double kLr = 0.03125;  // exact in f32

TEST_P(OptimizerOptions, ClippingScalesToTheGlobalNorm) {
  Problem problem;
  AdamwOptions options{.lr = kLr, .gradients = {.clip_norm = 20.0}};
  Optimizer optimizer = adamw(problem.loss, problem.w, options);
  problem.g.record("norm", optimizer.gradient_norm);
  Program program = compile(problem);
  problem.run(program, 10, sink);
  AdamwReference reference(options, kLr);
  std::vector<double> norms = program.records<double>("norm");
  int clipped = 0;
  for (std::int64_t s = 0; s < 10; ++s) {
    Vectors g = gradients(reference.w, s);
    EXPECT_NEAR(norms[static_cast<std::size_t>(s)], norm(g), 1e-5 * norm(g));
    clipped += norm(g) > 20.0 ? 1 : 0;
    if (norm(g) > 20.0) scale(g, 20.0 / norm(g));
    reference.update(g);
  }
  EXPECT_GT(clipped, 0);
  EXPECT_LT(clipped, 10);  // both happen
  expect_parameters(problem, reference.w);
}

TEST_P(OptimizerOptions, AccumulationUpdatesWithTheMeanOfItsSteps) {
  Problem problem;
  AdamwOptions options{.lr = kLr, .gradients = {.clip_norm = 9.0, .accumulate = 3}};
  Optimizer optimizer = adamw(problem.loss, problem.w, options);
  Program program = compile(problem);
  problem.run(program, 4, interactive);
  problem.run(program, 6, sink, 4);
  AdamwReference reference(options, kLr);
  Vectors sum = gradients(reference.w, 0);
  scale(sum, 0);
  for (std::int64_t s = 0; s < 10; ++s) {
    add(sum, gradients(reference.w, s));
    if (s % 3 != 2) continue;
    scale(sum, 1.0 / 3);
    if (norm(sum) > 9.0) scale(sum, 9.0 / norm(sum));
    reference.update(sum);
    scale(sum, 0);
  }
  EXPECT_EQ(reference.updates, 3);
  expect_parameters(problem, reference.w);
  ASSERT_EQ(optimizer.state[kParameters].name(), "adamw.updates");
  EXPECT_EQ(optimizer.state[kParameters].read().at(0), 3.0);
}

TEST_P(OptimizerOptions, GroupsHaveTheirOwnOptionsAndOthersAreFrozen) {
  Problem problem;
  Optimizer optimizer =
      sgd(problem.loss, std::vector<ParameterGroup>{{{problem.w[0]}}, {{problem.w[2]}, 0.5, 0.25}}, {.lr = kLr});
  ASSERT_EQ(optimizer.group_lr.size(), 2u);
  EXPECT_FALSE(optimizer.group_lr[0].valid());
  Program program = compile(problem);
  problem.run(program, 2, interactive);
  optimizer.group_lr[1].write(Tensor::scalar(0.125));
  problem.run(program, 1, sink, 2);
  Vectors w = initial_parameters();
  for (std::int64_t s = 0; s < 3; ++s) {
    Vectors g = gradients(w, s);
    for (std::size_t i = 0; i < w[0].size(); ++i) w[0][i] -= kLr * g[0][i];
    w[2][0] -= (s < 2 ? 0.5 : 0.125) * (g[2][0] + 0.25 * w[2][0]);
  }
  expect_parameters(problem, w, 1e-12);
}

TEST_P(OptimizerOptions, MomentumFollowsItsFormula) {
  for (bool nesterov : {false, true}) {
    Problem problem;
    sgd(problem.loss, problem.w, {.lr = kLr, .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01});
    Program program = compile(problem);
    problem.run(program, 10, sink);
    Vectors w = initial_parameters(), velocity = w;
    scale(velocity, 0);
    for (std::int64_t s = 0; s < 10; ++s) {
      Vectors g = gradients(w, s);
      for (std::size_t p = 0; p < w.size(); ++p) {
        for (std::size_t i = 0; i < w[p].size(); ++i) {
          double d = g[p][i] + 0.01 * w[p][i];
          velocity[p][i] = 0.9 * velocity[p][i] + d;
          w[p][i] -= kLr * (nesterov ? d + 0.9 * velocity[p][i] : velocity[p][i]);
        }
      }
    }
    expect_parameters(problem, w, 1e-12);
  }
}

// An op of the library that has no gradient says why, and not what its author should do.
TEST(OptimizerOptions, TheNormHasNoGradient) {
  Problem problem;
  Optimizer optimizer = sgd(problem.loss, problem.w, {.lr = kLr, .gradients = {.clip_norm = 20.0}});
  try {
    (void)grad(optimizer.gradient_norm, {problem.x});
    FAIL() << "no Error";
  } catch (const Error& e) {
    EXPECT_NE(e.problem().find("what an optimizer computes is not differentiated"), std::string::npos) << e.what();
    EXPECT_EQ(e.remedy().find("OpDef"), std::string::npos) << e.what();
  }
}

// A scale so large that f32 overflows: updates are skipped until it has come down, and it grows again later.
TEST_P(OptimizerOptions, AnOverflowSkipsTheUpdateAndLowersTheLossScale) {
  Problem problem(f32);
  AdamwOptions options{.lr = kLr, .gradients = {.loss_scale = LossScale{.initial = 0x1p125, .interval = 3}}};
  Optimizer optimizer = adamw(problem.loss, problem.w, options);
  problem.g.record("scale", optimizer.loss_scale);
  problem.g.record("norm", optimizer.gradient_norm);
  Program program = compile(problem);
  problem.run(program, 10, sink);
  std::vector<double> scales = program.records<double>("scale"), norms = program.records<double>("norm");
  AdamwReference reference(options, kLr);
  double loss_scale = 0x1p125;
  int skipped = 0, since_change = 0;
  for (std::int64_t s = 0; s < 10; ++s) {
    EXPECT_EQ(scales[static_cast<std::size_t>(s)], loss_scale) << s;
    Vectors g = gradients(reference.w, s);
    if (!std::isfinite(norms[static_cast<std::size_t>(s)])) {
      ++skipped;
      loss_scale /= 2;
      since_change = 0;
      continue;
    }
    EXPECT_NEAR(norms[static_cast<std::size_t>(s)], norm(g), 1e-4 * norm(g));
    reference.update(g);
    if (++since_change == 3) {
      loss_scale *= 2;
      since_change = 0;
    }
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 8);
  EXPECT_EQ(program.steps(), 10);  // a skipped update is no failed step
  expect_parameters(problem, reference.w, 1e-5);
}

TEST_P(OptimizerOptions, AllModesGiveTheSameBits) {
  std::vector<std::vector<Tensor>> results;
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
    Problem problem(f32);
    Optimizer optimizer =
        adamw(problem.loss, std::vector<ParameterGroup>{{{problem.w[0], problem.w[1]}}, {{problem.w[2]}, 0.5}},
              {.lr = kLr, .gradients = {.clip_norm = 5.0, .accumulate = 2, .loss_scale = LossScale{.interval = 2}}});
    Program program = compile(problem);
    problem.run(program, 7, mode);
    results.emplace_back();
    for (const Variable& variable : problem.w) results.back().push_back(variable.read());
    for (const Variable& variable : optimizer.variables()) results.back().push_back(variable.read());
  }
  for (const auto& result : results) {
    ASSERT_EQ(result.size(), results[0].size());
    for (std::size_t i = 0; i < result.size(); ++i)
      EXPECT_EQ(std::memcmp(result[i].data(), results[0][i].data(), result[i].bytes()), 0) << i;
  }
}

TEST(OptimizerErrors, SayWhatToDo) {
  Problem problem;
  EXPECT_THROW(adamw(problem.loss, problem.w, {.gradients = {.accumulate = 0}}), Error);
  EXPECT_THROW(sgd(problem.loss, std::vector<ParameterGroup>{{{problem.w[0]}}, {{problem.w[0]}}}), Error);
}

struct BadOption {
  std::string option;
  std::function<void(const Problem&)> call;
};

const std::vector<BadOption>& bad_options() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  static const std::vector<BadOption> kRows = [=] {
    std::vector<BadOption> rows;
    auto add_sgd = [&](const char* option, SgdOptions options) {
      rows.push_back({option, [=](const Problem& p) { sgd(p.loss, p.w, options); }});
    };
    auto add_adamw = [&](const char* option, AdamwOptions options) {
      rows.push_back({option, [=](const Problem& p) { adamw(p.loss, p.w, options); }});
    };
    auto add_gradients = [&](const char* option, const GradientOptions& gradients) {
      add_sgd(option, {.gradients = gradients});
    };
    for (double bad : {kNan, kInfinity, -1e-3, 1e39}) {
      add_sgd("lr", {.lr = bad});
      add_adamw("lr", {.lr = bad});
      add_sgd("weight_decay", {.weight_decay = bad});
      add_adamw("weight_decay", {.weight_decay = bad});
      add_gradients("loss_scale.initial", {.loss_scale = LossScale{.initial = bad}});
      add_gradients("loss_scale.growth", {.loss_scale = LossScale{.growth = bad}});
      rows.push_back({"lr", [=](const Problem& p) { sgd(p.loss, {{.parameters = p.w, .lr = Arg(bad)}}); }});
      rows.push_back({"weight_decay of a group",
                      [=](const Problem& p) { adamw(p.loss, {{.parameters = p.w, .weight_decay = bad}}); }});
    }
    for (double bad : {kNan, kInfinity, -0.1, 1.0, 1.5}) {
      add_sgd("momentum", {.momentum = bad});
      add_adamw("beta1", {.beta1 = bad});
      add_adamw("beta2", {.beta2 = bad});
    }
    for (double bad : {kNan, kInfinity, -1e-8}) add_adamw("eps", {.eps = bad});
    add_adamw("beta2", {.beta2 = 1 - 1e-12});  // 1 as f32: nothing would ever change
    add_sgd("nesterov", {.nesterov = true});
    for (double bad : {kNan, -1.0, 1e-60}) add_gradients("clip_norm", {.clip_norm = bad});
    add_gradients("loss_scale.initial", {.loss_scale = LossScale{.initial = 0}});
    add_gradients("loss_scale.growth", {.loss_scale = LossScale{.growth = 0.5}});
    for (double bad : {kNan, kInfinity, 0.0, 1.0, -0.5})
      add_gradients("loss_scale.backoff", {.loss_scale = LossScale{.backoff = bad}});
    for (int bad : {0, -1}) add_gradients("loss_scale.interval", {.loss_scale = LossScale{.interval = bad}});
    for (int bad : {0, -1}) add_gradients("accumulate", {.accumulate = bad});
    return rows;
  }();
  return kRows;
}

TEST(OptimizerOptions, OutOfRangeAreRefused) {
  for (const BadOption& row : bad_options()) {
    Problem problem;
    std::size_t nodes = problem.g.data()->nodes.size();
    try {
      row.call(problem);
      ADD_FAILURE() << "no error for " << row.option;
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find(row.option), std::string::npos) << e.what() << ", expected " << row.option;
      EXPECT_FALSE(e.remedy().empty());
      EXPECT_NE(e.where().line(), 0u) << e.what();
    }
    EXPECT_EQ(problem.g.data()->nodes.size(), nodes) << row.option << ": the graph has changed";
  }
}

TEST(OptimizerOptions, AtTheirLimitsAreTaken) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Problem a, b;
  sgd(a.loss, a.w,
      {.lr = 0.0, .gradients = {.clip_norm = kInfinity, .loss_scale = LossScale{.growth = 1, .interval = 1}}});
  Optimizer adam = adamw(b.loss, b.w, {.lr = 0, .beta1 = 0, .beta2 = 0, .eps = 0, .weight_decay = 0});
  EXPECT_TRUE(adam.lr.valid());
  Program p = compile(a.g);
  a.run(p, 3, sink);
  EXPECT_EQ(a.w[0].read().at(0), initial(0, 0));
}

}  // namespace
}  // namespace graphsink::optimizer_options_test
