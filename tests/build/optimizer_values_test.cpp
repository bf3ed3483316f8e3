// Weight decay and the limit of the norm as Values: read in every step, so that the host may change them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "messages.h"
#include "test_ops.h"

namespace graphsink::optimizer_values_test {
namespace {

using testing::contains;
using testing::message_of;

class OptimizerValues : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OptimizerValues, ::testing::ValuesIn(testing::devices()), device_name);

// One parameter of each kind.
struct Problem {
  Graph g;
  std::vector<Variable> parameters{Variable("a", Tensor({0.3f, -1.7f, 2.1f})), Variable("b", Tensor({1.1, -0.2})),
                                   Variable("c", Tensor({bfloat16(0.75), bfloat16(3)}))};
  Value loss;
  Problem() {
    for (const Variable& parameter : parameters) {
      const Value x = cast(g.value(parameter), f64);
      loss = loss.valid() ? loss + sum(x * x) : sum(x * x);
    }
  }
};

enum class Method { sgd, momentum, adamw };

Optimizer optimize(const Problem& problem, Method method, const Arg& decay, const Arg& clip) {
  const GradientOptions gradients{.clip_norm = clip};
  if (method == Method::adamw)
    return adamw(problem.loss, problem.parameters, {.lr = 0.1, .weight_decay = decay, .gradients = gradients});
  const double momentum = method == Method::momentum ? 0.5 : 0;
  return sgd(problem.loss, problem.parameters,
             {.lr = 0.1, .momentum = momentum, .weight_decay = decay, .gradients = gradients});
}

std::vector<Tensor> after(Program& program, const Problem& problem, const Optimizer& optimizer, Mode mode, int steps) {
  program.run(mode, {.steps = steps});
  program.sync();
  std::vector<Tensor> state;
  for (const Variable& variable : problem.parameters) state.push_back(variable.read());
  for (const Variable& variable : optimizer.variables()) state.push_back(variable.read());
  return state;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].bytes()), 0) << "Variable " << i;
}

TEST_P(OptimizerValues, HaveTheBitsOfTheSameNumbers) {
  for (Method method : {Method::sgd, Method::momentum, Method::adamw}) {
    for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(method)) + " " + std::string(to_string(mode)));
      Problem numbers, values, variables;
      const Optimizer of_numbers = optimize(numbers, method, 0.3, 1.7);
      const Optimizer of_values = optimize(values, method, values.g.constant(Tensor::scalar(0.3)),
                                           values.g.constant(Tensor::scalar(1.7f)) * 1.0);
      const Variable decay("decay", Tensor::scalar(0.3)), clip("clip", Tensor({1.7}));
      const Optimizer of_variables = optimize(variables, method, decay, clip);
      auto run = [&](const Problem& problem, const Optimizer& optimizer) {
        Program p = compile(problem.g, {.target = GetParam()});
        return after(p, problem, optimizer, mode, 4);
      };
      const std::vector<Tensor> expected = run(numbers, of_numbers);
      expect_same_bits(run(values, of_values), expected);
      expect_same_bits(run(variables, of_variables), expected);
    }
  }
}

// Of one number that the loss pulls by 1.
double next(double w, double decay, double clip) { return w - 0.5 * (std::min(1.0, clip) + decay * w); }

TEST_P(OptimizerValues, ALimitTooSmallForF32IsNotNone) {
  Graph g;
  const Variable w("w", Tensor::scalar(8.0)), clip("clip", Tensor::scalar(1e-60));
  sgd(g.value(w), {w}, {.lr = 0.5, .gradients = {.clip_norm = clip}});
  Program p = compile(g, {.target = GetParam()});
  p.run();
  EXPECT_NEAR(w.read().at(0), 8.0, 1e-12);
}

// One gradient that is no number makes the norm none: the others are not updated as if there were no limit.
TEST_P(OptimizerValues, ANormThatIsNoNumberIsNotUnlimited) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (const float limit : {0.5f, 0.0f, kInfinity}) {
    SCOPED_TRACE(limit);
    Graph g;
    const Variable bad("bad", Tensor::scalar(1.0f)), good("good", Tensor::scalar(8.0f));
    const Variable clip("clip", Tensor::scalar(limit));
    sgd(g.value(bad) * kNone + g.value(good) * 4.0, {bad, good}, {.lr = 0.5, .gradients = {.clip_norm = clip}});
    Program p = compile(g, {.target = GetParam()});
    p.run();
    EXPECT_TRUE(std::isnan(bad.read().at(0)));
    if (limit == 0.5f) {
      EXPECT_TRUE(std::isnan(good.read().at(0)));
    } else {
      EXPECT_EQ(good.read().at(0), 6.0);
    }
  }
}

TEST_P(OptimizerValues, AreReadInEveryStep) {
  for (Mode mode : {interactive, sink}) {
    Graph g;
    Variable w("w", Tensor::scalar(8.0)), decay("decay", Tensor::scalar(0.5f)), clip("clip", Tensor::scalar(0.25f));
    sgd(g.value(w), {w}, {.lr = 0.5, .weight_decay = decay, .gradients = {.clip_norm = g.value(clip)}});
    Program p = compile(g, {.target = GetParam()});
    double expected = 8;
    auto run = [&](double decay_now, double limit) {
      p.run(mode, {.steps = 3});
      for (int i = 0; i < 3; ++i) expected = next(expected, decay_now, limit);
      EXPECT_EQ(w.read().at(0), expected);
    };
    run(0.5, 0.25);
    decay.write(Tensor::scalar(0.0f));
    clip.write(Tensor::scalar(0.5f));
    run(0, 0.5);
    clip.write(Tensor::scalar(0.0f));
    run(0, 1);
    clip.write(Tensor::scalar(-2.0f));
    decay.write(Tensor::scalar(0.125f));
    run(0.125, 1);
    clip.write(Tensor::scalar(std::numeric_limits<float>::quiet_NaN()));
    p.run(mode);
    EXPECT_TRUE(std::isnan(w.read().at(0))) << "silence would be no limit";
  }
}

TEST_P(OptimizerValues, OfAGroupAreItsOwnAndMayBeComputed) {
  Graph g;
  Variable a("a", Tensor::scalar(2.0)), b("b", Tensor::scalar(2.0));
  const Value falling = cast(g.step(), f64) * -0.25 + 0.5;
  sgd(g.value(a) + g.value(b), {{.parameters = {a}}, {.parameters = {b}, .weight_decay = falling}},
      {.lr = 0.5, .weight_decay = 0.25});
  Program p = compile(g, {.target = GetParam()});
  p.run(sink, {.steps = 2});
  EXPECT_EQ(a.read().at(0), next(next(2, 0.25, 1), 0.25, 1));
  EXPECT_EQ(b.read().at(0), next(next(2, 0.5, 1), 0.25, 1));
}

TEST(OptimizerValues, OfOtherTypesAreRefused) {
  Problem p;
  for (const Variable& bad :
       {Variable("v", Tensor({1.0f, 2.0f})), Variable("v", Tensor::scalar(half(1))), Variable("v", Tensor(i32, {}))}) {
    for (const std::string& said :
         {message_of([&] { sgd(p.loss, p.parameters, {.weight_decay = bad}); }),
          message_of([&] { adamw(p.loss, p.parameters, {.weight_decay = p.g.value(bad)}); }),
          message_of([&] { sgd(p.loss, p.parameters, {.gradients = {.clip_norm = bad}}); }),
          message_of([&] { sgd(p.loss, {{.parameters = p.parameters, .weight_decay = bad}}); })}) {
      EXPECT_TRUE(contains(said, "not one f32 or f64")) << said;
      EXPECT_TRUE(contains(said, to_string(bad.type()))) << said;
      EXPECT_TRUE(contains(said, "weight_decay") || contains(said, "clip_norm")) << said;
    }
  }
  EXPECT_TRUE(
      contains(message_of([&] { sgd(p.loss, p.parameters, {.weight_decay = Variable()}); }), "refers to nothing"));
  EXPECT_TRUE(
      contains(message_of([&] { sgd(p.loss, p.parameters, {.weight_decay = Value()}); }), "default-constructed"));
}

}  // namespace
}  // namespace graphsink::optimizer_values_test
