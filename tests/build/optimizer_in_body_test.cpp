// Optimizers in the bodies of loops and branches: what separate programs do that the host runs as often, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "messages.h"
#include "test_ops.h"

namespace graphsink::optimizer_in_body_test {
namespace {

using testing::contains;
using testing::message_of;

class OptimizersInBodies : public ::testing::TestWithParam<DeviceId> {};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, OptimizersInBodies, ::testing::ValuesIn(testing::devices()), device_name);

Tensor numbers(DType dtype, std::int64_t size, double factor) {
  Tensor tensor(f64, {size});
  for (std::int64_t i = 0; i < size; ++i)
    tensor.as<double>()[static_cast<std::size_t>(i)] = factor * static_cast<double>(i % 23 - 11) / 16;
  return tensor.to(dtype);
}

// Two networks that pull at each other.
struct Parameters {
  Variable a{"a", numbers(f32, 5000, 1)}, b{"b", numbers(bf16, 7, -0.5)};
  Variable generator{"generator", numbers(f32, 7, 2)};

  std::vector<Variable> critic() const { return {a, b}; }
  Value critic_loss(Graph& g) const {
    const Value difference = cast(g.value(b), f32) - g.value(generator);
    return sum(g.value(a) * g.value(a)) * 0.5 + sum(difference * difference);
  }
  Value generator_loss(Graph& g) const { return generator_loss(g, g.value(a), g.value(b)); }
  Value generator_loss(Graph& g, const Value& of_a, const Value& of_b) const {
    return sum(g.value(generator) * cast(of_b, f32)) + sum(of_a) * sum(g.value(generator));
  }
  // No gradient passes through what the critic became of the generator.
  Value loss_for_critic(Graph& g) const {
    return generator_loss(g, stop_gradient(g.value(a)), stop_gradient(g.value(b)));
  }
};

using Build = std::function<Optimizer(const Value& loss, const std::vector<Variable>& parameters)>;
struct Row {
  const char* name;
  Build build;
};
const GradientOptions kAccumulated{.clip_norm = 3.0, .accumulate = 3};
const GradientOptions kScaled{.loss_scale = LossScale{.initial = 0x1p124, .interval = 2}};
const Row kRows[] = {
    {"sgd", [](const Value& loss, const auto& w) { return sgd(loss, w, {.lr = 0.01, .weight_decay = 0.1}); }},
    {"momentum",
     [](const Value& loss, const auto& w) { return sgd(loss, w, {.lr = 0.01, .momentum = 0.9, .nesterov = true}); }},
    {"adamw", [](const Value& loss, const auto& w) { return adamw(loss, w, {.lr = 0.01}); }},
    {"clipped", [](const Value& loss, const auto& w) { return adamw(loss, w, {.gradients = {.clip_norm = 0.5}}); }},
    {"accumulated", [](const Value& loss, const auto& w) { return adamw(loss, w, {.gradients = kAccumulated}); }},
    {"sgd accumulated", [](const Value& loss, const auto& w) { return sgd(loss, w, {.gradients = kAccumulated}); }},
    {"scaled", [](const Value& loss, const auto& w) { return adamw(loss, w, {.lr = 0.01, .gradients = kScaled}); }},
    {"groups",
     [](const Value& loss, const auto& w) {
       return sgd(loss, std::vector<ParameterGroup>{{{w[1]}, 0.5, 0.25}, {{w[0]}}}, {.lr = 0.01, .momentum = 0.5});
     }},
    {"own gradients",
     [](const Value& loss, const auto& w) {
       const Graph g(loss.graph());
       const std::vector<Value> of = grad(loss, {Graph(g).value(w[0]), Graph(g).value(w[1])});
       return apply(AdamwOptions{.lr = 0.01}, w, {of[0] * 0.5, of[1]});
     }},
};

// Names and bits. The body of a loop counts its updates where a program alone has its number of steps.
struct State {
  std::vector<std::string> names;
  std::vector<Tensor> values;
  void add(const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) {
      if (variable.name().ends_with(".updates") || variable.name().ends_with(".micro_step")) continue;
      names.push_back(variable.name());
      values.push_back(variable.read());
    }
  }
};
void expect_same(const State& seen, const State& expected) {
  ASSERT_EQ(seen.names, expected.names);
  for (std::size_t i = 0; i < seen.values.size(); ++i) {
    ASSERT_EQ(seen.values[i].type(), expected.values[i].type());
    EXPECT_EQ(std::memcmp(seen.values[i].data(), expected.values[i].data(), seen.values[i].bytes()), 0)
        << seen.names[i];
  }
}

const std::vector<int> kIterations{2, 0, 5, 1, 3};

// The critic is updated n times, then the generator once, with the critic as it is then.
State in_one_graph(const Row& row, DeviceId device, Mode mode) {
  const Parameters p;
  Graph g;
  const Value n = g.input("n", f32, {});
  Optimizer critic;
  while_(
      {n * 0.0}, [&](Value i) { return i < n; },
      [&](Value i) {
        critic = row.build(p.critic_loss(g), p.critic());
        return i + 1.0;
      });
  const Optimizer generator = sgd(p.loss_for_critic(g), {p.generator}, {.lr = 0.01, .momentum = 0.5});
  Program program = compile(g, {.target = device});
  for (int count : kIterations) {
    program.write(n, std::vector<float>{static_cast<float>(count)});
    program.run(mode);
  }
  program.sync();
  State state;
  for (const auto& variables : {p.critic(), {p.generator}, critic.variables(), generator.variables()})
    state.add(variables);
  return state;
}

State in_two_programs(const Row& row, DeviceId device) {
  const Parameters p;
  Graph of_critic, of_generator;
  const Optimizer critic = row.build(p.critic_loss(of_critic), p.critic());
  const Optimizer generator = sgd(p.loss_for_critic(of_generator), {p.generator}, {.lr = 0.01, .momentum = 0.5});
  Program first = compile(of_critic, {.target = device}), second = compile(of_generator, {.target = device});
  for (int count : kIterations) {
    if (count > 0) first.run(interactive, {.steps = count});
    second.run(interactive);
  }
  first.sync();
  second.sync();
  State state;
  for (const auto& variables : {p.critic(), {p.generator}, critic.variables(), generator.variables()})
    state.add(variables);
  return state;
}

TEST_P(OptimizersInBodies, OfALoopUpdateInEachIteration) {
  for (const Row& row : kRows) {
    const State expected = in_two_programs(row, GetParam());
    for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
      SCOPED_TRACE(std::string(row.name) + " " + std::string(to_string(mode)));
      expect_same(in_one_graph(row, GetParam(), mode), expected);
    }
  }
}

// Two ways to train, of which each step takes one.
struct Ways {
  std::function<Optimizer(Graph&, const Parameters&)> way[2] = {
      [](Graph& g, const Parameters& p) { return adamw(p.critic_loss(g), p.critic(), {.lr = 0.01}); },
      [](Graph& g, const Parameters& p) {
        return sgd(p.generator_loss(g), {p.b, p.generator}, {.lr = 0.01, .momentum = 0.9});
      }};
};
const std::vector<float> kTaken{0, 1, 1, 0, 1, 0, 0};

TEST_P(OptimizersInBodies, OfABranchUpdateWhereItIsTaken) {
  const Ways ways;
  State expected;
  {
    const Parameters p;
    Graph graphs[2];
    Optimizer optimizers[2];
    std::vector<Program> programs;
    for (int i = 0; i < 2; ++i) {
      optimizers[i] = ways.way[i](graphs[i], p);
      programs.push_back(compile(graphs[i], {.target = GetParam()}));
    }
    for (float taken : kTaken) programs[taken > 0 ? 1 : 0].run(interactive);
    for (const auto& variables : {p.critic(), {p.generator}, optimizers[0].variables(), optimizers[1].variables()})
      expected.add(variables);
  }
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
    SCOPED_TRACE(to_string(mode));
    const Parameters p;
    Graph g;
    const Value taken = g.feed("taken", f32, {});
    Optimizer optimizers[2];
    auto way = [&](int i) {
      return [&, i] {
        optimizers[i] = ways.way[i](g, p);
        return Values{};
      };
    };
    if_(taken < 0.5, way(0), way(1));
    Program program = compile(g, {.target = GetParam()});
    program.write(taken, kTaken);
    program.run(mode, {.steps = static_cast<std::int64_t>(kTaken.size())});
    program.sync();
    State seen;
    for (const auto& variables : {p.critic(), {p.generator}, optimizers[0].variables(), optimizers[1].variables()})
      seen.add(variables);
    expect_same(seen, expected);
  }
}

TEST_P(OptimizersInBodies, MayStopEarlyAndBeNested) {
  auto loss_of = [](Graph& g, const Variable& w) { return sum(g.value(w) * g.value(w)); };
  constexpr double kEnough = 0.3;
  // In every second iteration, until the loss is small.
  Variable expected("w", Tensor({1.0f, 0.5f}));
  int iterations = 0;
  {
    Graph g;
    Value loss = loss_of(g, expected);
    g.output("loss", loss);
    adamw(loss, {expected}, {.lr = 0.05});
    Graph only_loss;
    only_loss.output("loss", loss_of(only_loss, expected));
    Program train = compile(g, {.target = GetParam()}), ask = compile(only_loss, {.target = GetParam()});
    while (true) {
      ask.run(interactive);
      if (!(ask.output("loss").at(0) > kEnough)) break;
      if (iterations++ % 2 == 0) train.run(interactive);
    }
  }
  for (Mode mode : {interactive_serial, interactive_parallel, sink}) {
    Graph g;
    Variable w("w", Tensor({1.0f, 0.5f}));
    Value zero = g.constant(Tensor::scalar(0.0f));
    Optimizer optimizer;
    auto [n, parity] = while_(
        {Arg(zero), Arg(zero)}, [&](Value, Value) { return loss_of(g, w) > kEnough; },
        [&](Value i, Value is_odd) {
          if_(
              is_odd < 0.5,
              [&] {
                optimizer = adamw(loss_of(g, w), {w}, {.lr = 0.05});
                return Values{};
              },
              [] { return Values{}; });
          return std::array<Value, 2>{i + 1.0, 1.0 - is_odd};
        },
        {.max_iterations = 100});
    (void)parity;
    g.output("n", n);
    Program p = compile(g, {.target = GetParam()});
    p.run(mode);
    p.run(mode);  // there is nothing to do
    EXPECT_EQ(p.output("n").at(0), 0.0);
    EXPECT_EQ(std::memcmp(w.read().data(), expected.read().data(), 8), 0);
    ASSERT_EQ(optimizer.state[0].name(), "adamw.updates");
    EXPECT_EQ(optimizer.state[0].read().at(0), (iterations + 1) / 2);
  }
}

TEST_P(OptimizersInBodies, OfAScanUpdateForEachSlice) {
  Graph g;
  Variable w("w", Tensor::scalar(8.0f));
  const Value slices = g.input("slices", f32, {4});
  scan({g.constant(Tensor::scalar(0.0f))}, {slices}, [&](const Values& state, const Values& slice) {
    sgd(g.value(w) * slice[0], {w}, {.lr = 0.5});
    return Scan{{state[0]}, {}};
  });
  Program p = compile(g, {.target = GetParam()});
  p.write(slices, std::vector<float>{1, 2, 3, 4});
  p.run(sink);
  EXPECT_EQ(w.read().at(0), 3.0);
}

TEST_P(OptimizersInBodies, CommitNothingInAFailedStep) {
  Graph g;
  Variable w("w", Tensor::scalar(4.0f));
  const Value x = g.input("x", f32, {});
  Optimizer optimizer;
  while_(
      {g.constant(Tensor::scalar(0.0f))}, [](Value i) { return i < 3.0; },
      [&](Value i) {
        optimizer = sgd(check_finite(g.value(w) * x), {w}, {.lr = 0.25, .momentum = 0.5});
        return i + 1.0;
      });
  Program p = compile(g, {.target = GetParam()});
  auto state = [&] {
    std::vector<double> seen{w.read().at(0)};
    for (const Variable& variable : optimizer.variables()) seen.push_back(variable.read().at(0));
    return seen;
  };
  p.write(x, std::vector<float>{1});
  p.run(sink);
  p.sync();
  const std::vector<double> before = state();
  EXPECT_EQ(before[0], 4 - 0.25 * (1 + 1.5 + 1.75));
  p.write(x, std::vector<float>{std::numeric_limits<float>::infinity()});
  p.run(sink);
  EXPECT_THROW(p.sync(), Error);
  EXPECT_EQ(state(), before);
}

TEST(OptimizersInBodies, SayWhatTheyCannot) {
  struct Refusal {
    std::vector<std::string> words;
    std::function<void(Graph&, const Variable& w, const Value& x)> call;
  };
  auto loop = [](const Value& x, const std::function<void()>& body, const WhileOptions& options = {}) {
    while_(
        {x}, [](Value i) { return i < 3.0; },
        [&](Value i) {
          body();
          return i + 1.0;
        },
        options);
  };
  const Refusal rows[] = {
      {{"sgd", "\"w\" was already assigned at optimizer_in_body_test.cpp"},
       [&](Graph& g, const Variable& w, const Value& x) {
         loop(x, [&] {
           sgd(g.value(w) * x, {w});
           sgd(g.value(w) * x, {w});
         });
       }},
      {{"sgd", "\"w\" was already assigned"},
       [&](Graph& g, const Variable& w, const Value& x) {
         if_(
             x < 1.0,
             [&] {
               assign(w, x);
               sgd(g.value(w) * x, {w});
               return Values{};
             },
             [] { return Values{}; });
       }},
      {{"adamw", "already assigned"},
       [&](Graph& g, const Variable& w, const Value& x) {
         loop(x, [&] { sgd(g.value(w) * x, {w}); });
         adamw(g.value(w) * x, {w});
       }},
      {{"sgd", "already updated by the optimizer"},
       [&](Graph& g, const Variable& w, const Value& x) {
         adamw(g.value(w) * x, {w});
         loop(x, [&] { sgd(x * x, {w}); });
       }},
      {{"the body of the loop at optimizer_in_body_test.cpp", "recomputes its iterations", "recompute"},
       [&](Graph& g, const Variable& w, const Value& x) {
         loop(x, [&] { sgd(g.value(w) * x, {w}); }, {.max_iterations = 9, .recompute = true});
       }},
      {{"what an optimizer computes is not differentiated"},
       [&](Graph& g, const Variable& w, const Value& x) {
         if_(
             x < 1.0,
             [&] {
               sgd(g.value(w) * x, {w});
               return Values{};
             },
             [] { return Values{}; });
         grad(g.value(w) * x, {w});
       }},
      {{"updated_sgd"},
       [&](Graph& g, const Variable& w, const Value& x) {
         loop(x, [&] { sgd(g.value(w) * x, {w}); }, {.max_iterations = 9});
         grad(g.value(w) * x, {w});
       }},
      {{"assign other Variables whenever they are called", "\"new\"", "outside of the loop"},
       [&](Graph&, const Variable&, const Value& x) {
         loop(x, [&] { assign(Variable("new", Tensor::scalar(1.0f)), x); });
       }},
      {{"control_update", "has no value outside"},
       [&](Graph& g, const Variable& w, const Value& x) {
         Optimizer optimizer;
         loop(x, [&] { optimizer = sgd(g.value(w) * x, {w}, {.gradients = {.clip_norm = 1}}); });
         g.output("norm", optimizer.gradient_norm);
       }},
  };
  for (const Refusal& row : rows) {
    Graph g;
    const Variable w("w", Tensor::scalar(1.0f));
    const Value x = g.input("x", f32, {});
    const std::string said = message_of([&] { row.call(g, w, x); });
    for (const std::string& word : row.words) EXPECT_TRUE(contains(said, word)) << said << ", expected " << word;
  }
}

}  // namespace
}  // namespace graphsink::optimizer_in_body_test
