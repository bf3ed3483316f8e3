// apply(): the update of sgd() and adamw() with gradients of the user's.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "messages.h"
#include "test_ops.h"

namespace graphsink::apply_gradients_test {
namespace {

using testing::contains;
using testing::message_of;

class ApplyGradients : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, ApplyGradients, ::testing::ValuesIn(testing::devices()), device_name);

// Parameters of three dtypes that are pulled towards a feed.
struct Problem {
  Graph g;
  Variable a{"a", Tensor({0.3f, -1.7f, 2.1f})}, b{"b", Tensor({1.1, -0.2})}, c{"c", Tensor({bfloat16(0.75)})};
  Value x = g.feed("x", f32, {});
  Value loss =
      sum(square(g.value(a) - x)) + cast(sum(square(g.value(b) - cast(x, f64))), f32) + cast(sum(g.value(c)), f32) * x;

  static Value square(const Value& v) { return v * v; }
  std::vector<Variable> parameters() const { return {a, b, c}; }
  std::vector<Value> gradients() const { return grad(loss, {a, b, c}); }
};

constexpr std::int64_t kSteps = 7;

std::vector<Tensor> state_after(Problem& problem, const Optimizer& optimizer, DeviceId device, Mode mode) {
  Program p = compile(problem.g, {.target = device});
  Tensor x(f32, {kSteps});
  for (std::int64_t s = 0; s < kSteps; ++s) x.as<float>()[static_cast<std::size_t>(s)] = 0.25f * static_cast<float>(s);
  p.write(problem.x, x);
  p.run(mode, {.steps = kSteps});
  p.sync();
  std::vector<Tensor> state;
  for (const Variable& variable : problem.parameters()) state.push_back(variable.read());
  for (const Variable& variable : optimizer.variables()) state.push_back(variable.read());
  return state;
}

void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].type(), b[i].type());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].bytes()), 0) << "Variable " << i;
  }
}

using Build = std::function<Optimizer(Problem&)>;
struct Row {
  const char* name;
  Build of_loss, of_gradients;
};

TEST_P(ApplyGradients, OfTheLossIsWhatTheOptimizersDo) {
  const GradientOptions gradients{.clip_norm = 1.5, .accumulate = 2};
  const SgdOptions momentum{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .gradients = gradients};
  const AdamwOptions adam{.lr = 0.05, .gradients = gradients};
  auto groups = [](const Problem& p) { return std::vector<ParameterGroup>{{{p.b, p.a}}, {{p.c}, 0.5, 0.25}}; };
  const Row rows[] = {
      {"sgd", [](Problem& p) { return sgd(p.loss, p.parameters(), {.lr = 0.1}); },
       [](Problem& p) { return apply(SgdOptions{.lr = 0.1}, p.parameters(), p.gradients()); }},
      {"momentum", [&](Problem& p) { return sgd(p.loss, p.parameters(), momentum); },
       [&](Problem& p) { return apply(momentum, p.parameters(), p.gradients()); }},
      {"adamw", [&](Problem& p) { return adamw(p.loss, p.parameters(), adam); },
       [&](Problem& p) { return apply(adam, p.parameters(), p.gradients()); }},
      {"groups of sgd", [&](Problem& p) { return sgd(p.loss, groups(p), momentum); },
       [&](Problem& p) {
         return apply(momentum, groups(p), grad(p.loss, {p.b, p.a, p.c}));
       }},
      {"groups of adamw", [&](Problem& p) { return adamw(p.loss, groups(p), adam); },
       [&](Problem& p) {
         return apply(adam, groups(p), grad(p.loss, {p.b, p.a, p.c}));
       }},
  };
  for (const Row& row : rows) {
    for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
      SCOPED_TRACE(std::string(row.name) + " " + std::string(to_string(mode)));
      Problem first, second;
      const Optimizer of_loss = row.of_loss(first), of_gradients = row.of_gradients(second);
      expect_same_bits(state_after(first, of_loss, GetParam(), mode),
                       state_after(second, of_gradients, GetParam(), mode));
    }
  }
}

TEST_P(ApplyGradients, UsesTheGradientsThatItIsGiven) {
  Graph g;
  Variable w("w", Tensor({1.0f, 2.0f, 3.0f}));
  const Value gradient = grad(sum(g.value(w) * g.constant(Tensor({4.0f, -8.0f, 0.5f}))), {w})[0];
  apply(SgdOptions{.lr = 0.5}, {w}, {minimum(maximum(gradient, -1.0), 1.0)});
  Program p = compile(g, {.target = GetParam()});
  p.run(interactive);
  EXPECT_EQ(w.read().at(0), 0.5);
  EXPECT_EQ(w.read().at(1), 2.5);
  EXPECT_EQ(w.read().at(2), 2.75);
}

// A norm that is twice that of the gradients here clips them as half of the limit would.
TEST_P(ApplyGradients, AreClippedByTheNormOfAll) {
  const auto twice = [](const Value& norm) { return norm * 2.0; };
  Problem whole, part;
  const Optimizer expected =
      apply(SgdOptions{.lr = 0.1, .gradients = {.clip_norm = 0.25}}, whole.parameters(), whole.gradients());
  const Optimizer seen = apply(SgdOptions{.lr = 0.1, .gradients = {.clip_norm = 0.5, .norm_of_all = twice}},
                               part.parameters(), part.gradients());
  whole.g.record("norm", expected.gradient_norm * 2.0);
  part.g.record("norm", seen.gradient_norm);
  expect_same_bits(state_after(part, seen, GetParam(), sink), state_after(whole, expected, GetParam(), sink));
}

TEST_P(ApplyGradients, OfAScaledLossAreDividedByItsScale) {
  Graph g;
  Variable w("w", Tensor({half(1)})), scale("scale", Tensor::scalar(1024.0f));
  Value x = g.feed("x", f32, {});
  g.record("w", cast(sum(g.value(w)), f32));
  const Value loss = sum(cast(g.value(w), f32)) * x * scale;
  const Optimizer optimizer =
      apply(SgdOptions{.lr = 0.5, .gradients = {.loss_scale = LossScale{.interval = 2, .variable = scale}}}, {w},
            grad(loss, {w}));
  EXPECT_EQ(optimizer.state[0], scale);
  g.record("scale", optimizer.loss_scale);
  g.record("norm", optimizer.gradient_norm);
  Program p = compile(g, {.target = GetParam()});
  // In step 1, x times the scale is more than a half can be.
  p.write(x, std::vector<float>{0.5f, 128, 0.5f, 0.25f, 0});
  p.run(sink, {.steps = 5});
  EXPECT_EQ(p.records("scale"), (std::vector<float>{1024, 1024, 512, 512, 1024}));
  const std::vector<float> norms = p.records("norm");
  EXPECT_EQ(norms[0], 0.5f);
  EXPECT_EQ(norms[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(norms[3], 0.25f);
  EXPECT_EQ(p.records("w"), (std::vector<float>{1, 0.75f, 0.75f, 0.5f, 0.375f}));
}

TEST(ApplyGradients, WhatCannotBeMeantIsRefused) {
  struct Refusal {
    std::vector<std::string> words;
    std::function<void(Problem&)> call;
  };
  const LossScale scaled{.variable = Variable("scale", Tensor({1.0f}))};
  const Refusal rows[] = {
      {{"2 gradients for 3 parameters", "one gradient for each"},
       [](Problem& p) {
         apply(SgdOptions{}, p.parameters(), grad(p.loss, {p.a, p.b}));
       }},
      {{"no gradients"}, [](Problem& p) { apply(AdamwOptions{}, p.parameters(), {}); }},
      {{"not a Value"}, [](Problem& p) { apply(AdamwOptions{}, {p.a}, {Value()}); }},
      {{"Eager", "build a Graph"},
       [](Problem& p) {
         apply(AdamwOptions{}, {p.a}, {Eager().tensor({1, 2, 3})});
       }},
      {{"\"a\"", "f32[3]", "f64[2]", "types of their parameters"},
       [](Problem& p) { apply(AdamwOptions{}, {p.a}, grad(p.loss, {p.b})); }},
      {{"\"b\"", "f64[2]", "f32[2]"}, [](Problem& p) { apply(SgdOptions{}, {p.b}, {cast(p.gradients()[1], f32)}); }},
      {{"another graph"},
       [](Problem& p) {
         apply(SgdOptions{}, {p.a, p.b}, {p.gradients()[0], Problem().gradients()[1]});
       }},
      {{"loss_scale", "LossScale::variable"},
       [](Problem& p) { apply(SgdOptions{.gradients = {.loss_scale = LossScale{}}}, p.parameters(), p.gradients()); }},
      {{"loss_scale.variable is f32[1]"},
       [&](Problem& p) { apply(SgdOptions{.gradients = {.loss_scale = scaled}}, p.parameters(), p.gradients()); }},
      {{"loss_scale.variable", "further device", "without a placement"},
       [](Problem& p) {
         const LossScale elsewhere{.variable = Variable("scale", Tensor::scalar(1.0f), on_device(1))};
         apply(SgdOptions{.gradients = {.loss_scale = elsewhere}}, p.parameters(), p.gradients());
       }},
      {{"momentum is 2"}, [](Problem& p) { apply(SgdOptions{.momentum = 2}, p.parameters(), p.gradients()); }},
      {{"norm_of_all", "one f32"},
       [](Problem& p) {
         const GradientOptions gradients{.clip_norm = 1.0, .norm_of_all = [](const Value&) { return Value(); }};
         apply(SgdOptions{.gradients = gradients}, p.parameters(), p.gradients());
       }},
      {{"norm_of_all", "one f32"},
       [](Problem& p) {
         const auto wide = [](const Value& norm) { return cast(norm, f64); };
         apply(SgdOptions{.gradients = {.clip_norm = 1.0, .norm_of_all = wide}}, p.parameters(), p.gradients());
       }},
      {{"already assigned"},
       [](Problem& p) {
         assign(p.a, p.g.value(p.a) * 2.0);
         apply(SgdOptions{}, {p.a}, {p.gradients()[0]});
       }},
  };
  for (const Refusal& row : rows) {
    Problem problem;
    const std::string said = message_of([&] { row.call(problem); });
    EXPECT_TRUE(contains(said, "apply")) << said;
    EXPECT_TRUE(contains(said, "apply_gradients_test.cpp")) << said;
    for (const std::string& word : row.words) EXPECT_TRUE(contains(said, word)) << said << ", expected " << word;
  }
}

}  // namespace
}  // namespace graphsink::apply_gradients_test
