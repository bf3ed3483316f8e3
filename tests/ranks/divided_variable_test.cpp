// Training of models whose parameters are divided among ranks: that of one process which has the whole parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "parallel_models.h"
#include "program_fixture.h"
#include "rank_checkpoints.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace divided_variable_test {

constexpr std::int64_t kSteps = 16;

AdamwOptions options(GradientOptions gradients) {
  return {.lr = 1e-2, .eps = 1e-4, .weight_decay = 0.1, .gradients = std::move(gradients)};
}
// Norms are above this one in all steps.
AdamwOptions clipped() { return options({.clip_norm = 0.01}); }

// A model of which each rank of the Comm has a part, its optimizer and its program.
template <class Model>
struct Training {
  Training(const DeviceId& device, const Comm& comm, const AdamwOptions& options) {
    Graph g;
    x = g.feed("x", f64, Model::input());
    Values values;
    for (const Weight& weight : Model{}.weights())
      values.push_back(g.value(parameters.emplace_back(weight.variable(comm))));
    const Value loss = Model::loss(x, values, comm);
    optimizer = adamw(loss, parameters, options);
    g.record("loss", loss);
    if (optimizer.gradient_norm.valid()) g.record("norm", optimizer.gradient_norm);
    program.emplace(compile(g, {.target = device}));
  }

  // All steps are one launch, where the mode has launches.
  Training& run(Mode mode, std::int64_t first = 0) {
    Eager eager;
    const Shape one = Model::input();
    std::vector<Tensor> all;
    for (std::int64_t step = first; step < first + kSteps; ++step) {
      const Tensor drawn = Tensor::normal(one, 30 + static_cast<std::uint64_t>(step)).to(f64);
      all.push_back(Eager::read(unsqueeze(eager.tensor(drawn), 0)));
    }
    program->write(x, Tensor::concat(all));
    program->run(mode, {.steps = kSteps});
    program->sync();
    return *this;
  }

  Value x;
  std::vector<Variable> parameters;
  Optimizer optimizer;
  std::optional<Program> program;
};

class DividedVariables : public OnRanks {
 protected:
  // In all modes, which have equal bits. All ranks compute the whole model, which is quick on the CPU.
  template <class Model>
  void expect_that_of_one_process(const AdamwOptions& of) {
    Training<Model> one(cpu(), one_rank(), of);
    one.run(interactive_serial);
    const auto losses = one.program->template records<double>("loss");
    const auto norms = one.program->template records<float>("norm");
    std::optional<Checkpoint> first;
    for (const Mode mode : kAllModes) {
      Training<Model> divided(GetParam().device, world(), of);
      divided.run(mode);
      const Checkpoint seen = snapshot(*divided.program);
      if (first) expect_equal(seen, *first);
      if (!first) first = seen;
      expect_near(divided.program->template records<double>("loss"), losses);
      expect_near(divided.program->template records<float>("norm"), norms);
      expect_near(divided, one);
    }
  }
  // Norms are f32.
  template <class T>
  static void expect_near(const std::vector<T>& seen, const std::vector<T>& expected) {
    ASSERT_EQ(seen.size(), expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 1e-6 * std::abs(expected[i])) << i;
  }
  template <class Model>
  static void expect_near(const Training<Model>& divided, const Training<Model>& one) {
    const std::vector<Weight> weights = Model{}.weights();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const Tensor expected = one.parameters[i].read();
      EXPECT_GT(farthest(expected, weights[i].whole), 1e-2) << weights[i].name;
      EXPECT_LT(farthest(divided.parameters[i].read(), part_of(expected, weights[i].divided, world())), 1e-6)
          << weights[i].name;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DividedVariables, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(DividedVariables, TrainTwoLayersAsOneProcessDoes) { expect_that_of_one_process<Mlp>(clipped()); }
TEST_P(DividedVariables, TrainATransformerLayerAsOneProcessDoes) { expect_that_of_one_process<Layer>(clipped()); }

// The scale makes the norm of the first gradients infinite, which all ranks see at once, and is halved until it does
// not.
TEST_P(DividedVariables, SkipUpdatesTogether) {
  const AdamwOptions of = options({.loss_scale = LossScale{.initial = 0x1p127}});
  Training<Mlp> one(GetParam().device, one_rank(), of), divided(GetParam().device, world(), of);
  one.run(sink);
  divided.run(sink);
  const std::string scale = "adamw.loss_scale";
  const double wanted = snapshot(*one.program).tensors.at(scale).item();
  EXPECT_LT(wanted, 0x1p127);
  EXPECT_GT(wanted, 0x1p117);
  EXPECT_EQ(snapshot(*divided.program).tensors.at(scale).item(), wanted);
  expect_near(divided, one);
}

// Each rank is in a group that shares the model, and in one of those that have the same part of it.
TEST_P(DividedVariables, WithDataParallelism) {
  if (world().size() != 4) return;
  const Comm model = world().split(world().rank() / 2), data = world().split(world().rank() % 2);
  const auto trained = [&](const Comm& of_model, const Comm& of_data, bool sharded) {
    Graph g;
    const Tensor all = Tensor::normal({4, kWidth}, 30).to(f64), t = targets(4);
    const std::int64_t rows = 4 / of_data.size(), first = of_data.rank() * rows;
    const Value x = g.constant(all.slice(first, first + rows));
    const Value target = g.constant(t.slice(first, first + rows));
    std::vector<Variable> parameters;
    Values w;
    std::vector<Arg> wrt;
    for (const Weight& each : Mlp{}.weights()) {
      parameters.push_back(each.variable(of_model));
      w.push_back(g.value(parameters.back()));
      wrt.emplace_back(w.back());
    }
    const Value hidden = tanh(matmul(enter_parallel(x, of_model), w[0]));
    const Value loss = cross_entropy(leave_parallel(matmul(hidden, w[1]), of_model) + w[2], target);
    const std::vector<Value> gradients = grad(loss, wrt);
    if (sharded) {
      (void)apply_sharded(clipped(), parameters, gradients, of_data);
    } else {
      (void)apply(clipped(), parameters, average(gradients, of_data));
    }
    if (of_data.size() > 1) g.record("loss", all_reduce(loss, world(), {.reduction = Reduction::mean}));
    Program program = compile(g);
    program.run(sink, {.steps = kSteps});
    program.sync();
    std::vector<Tensor> values;
    for (const Variable& parameter : parameters) values.push_back(parameter.read());
    return values;
  };
  const std::vector<Tensor> expected = trained(one_rank(), one_rank(), false);
  const std::vector<Weight> weights = Mlp{}.weights();
  for (const bool sharded : {false, true}) {
    const std::vector<Tensor> seen = trained(model, data, sharded);
    for (std::size_t i = 0; i < seen.size(); ++i)
      EXPECT_LT(farthest(seen[i], part_of(expected[i], weights[i].divided, model)), 1e-6) << weights[i].name << sharded;
  }
}

// Ranks that begin with other values of what all of them update would go on with other ones.
TEST_P(DividedVariables, AreTrainedBesideEqualVariables) {
  if (world().size() == 1) return;
  const auto problem = [&](const std::string& what) {
    const bool is_odd = world().rank() == 1;
    Graph g;
    const Value x = g.constant(Tensor::normal(Mlp::input(), 30).to(f64));
    std::vector<Variable> parameters;
    Values values;
    for (Weight weight : Mlp{}.weights()) {
      if (is_odd && weight.name == what) weight.whole = Tensor(weight.whole.type());
      values.push_back(g.value(parameters.emplace_back(weight.variable(world()))));
    }
    (void)sgd(Mlp::loss(x, values, world()), parameters, {.lr = is_odd && what == "lr" ? 0.2 : 0.1});
    Program program = compile(g);
    return problem_of([&] {
      program.run(sink);
      program.sync();
    });
  };
  const std::string differs = "bind: the ranks begin with different values: of ";
  EXPECT_EQ(problem(""), "");
  EXPECT_EQ(problem("b2"), differs + "b2 f64[24], on rank 0 and on rank 1");
  EXPECT_EQ(problem("lr"), differs + "sgd.lr f64[], on rank 0 and on rank 1");
  EXPECT_EQ(problem(""), "");
}

// Also where the ranks have computed other gradients of what is not divided.
TEST_P(DividedVariables, HaveOneNormOnAllRanks) {
  Graph g;
  const Variable w = divided_variable("w", Tensor({12}, std::vector<float>(12, 2.0f)), 0, world());
  const Variable b("b", Tensor({1.0f}));
  const double odd = world().rank() == 0 ? 3.0 : 3.1;
  const Value loss = sum(mul(g.value(w), w)) + sum(g.value(b) * odd);
  const Optimizer optimizer = sgd(loss, {w, b}, {.gradients = {.clip_norm = 1}});
  g.record("norm", optimizer.gradient_norm);
  g.record("largest", all_reduce(optimizer.gradient_norm, world(), {.reduction = Reduction::max}));
  Program program = compile(g);
  program.run(sink);
  EXPECT_EQ(program.records<float>("norm"), program.records<float>("largest"));
}

// A training in 16 bits, whose update takes two steps.
TEST_P(DividedVariables, InSixteenBitsWithAccumulation) {
  const auto trained = [&](const Comm& comm) {
    Graph g;
    const Value x = g.feed("x", f32, Mlp::input());
    std::vector<Variable> parameters;
    Values values;
    for (Weight weight : Mlp{}.weights()) {
      weight.whole = weight.whole.to(weight.divided == Divided::no ? f32 : bf16);
      values.push_back(cast(g.value(parameters.emplace_back(weight.variable(comm))), f32));
    }
    const AdamwOptions of = options({.clip_norm = 0.01, .accumulate = 2});
    (void)adamw(Mlp::loss(x, values, comm), parameters, of);
    Program program = compile(g);
    program.write(x, Tensor::normal({kSteps, Mlp::input()[0], Mlp::input()[1]}, 30));
    program.run(sink, {.steps = kSteps});
    program.sync();
    return std::pair{snapshot(program), program.variables()};
  };
  const auto [one, of_one] = trained(one_rank());
  const auto [mine, of_rank] = trained(world());
  const Checkpoint joined = reshard(of_all(mine, world()), of_one);
  for (const char* name : {"w1.adamw.master", "w2.adamw.master", "b2"})
    EXPECT_LT(farthest(joined.tensors.at(name), one.tensors.at(name)), 1e-4) << name;
  expect_equal(reshard({&joined, 1}, of_rank), mine);
}

// The files of all ranks make one process, half of the ranks, and the same ranks go on.
TEST_P(DividedVariables, GoOnWithAnotherNumberOfRanks) {
  const DeviceId device = GetParam().device;
  Training<Layer> many(device, world(), clipped());
  many.run(sink);
  const Checkpoint mine = snapshot(*many.program);
  const std::vector<Checkpoint> all = of_all(mine, world());
  expect_equal(reshard(all, many.program->variables()), mine);

  Training<Layer> one(device, one_rank(), clipped());
  const Checkpoint of_one = reshard(all, one.program->variables());
  const Restored restored = restore(*one.program, of_one);
  EXPECT_TRUE(restored.missing.empty() && restored.unused.empty());
  expect_equal(reshard({&of_one, 1}, many.program->variables()), mine);
  many.run(sink, kSteps);
  one.run(sink, kSteps);
  expect_near(many, one);

  if (world().size() % 2 != 0) return;
  const Comm half = world().split(world().rank() / 2);
  Training<Layer> fewer(device, half, clipped());
  const Checkpoint start = reshard(all, fewer.program->variables());
  expect_equal(reshard(of_all(start, half), many.program->variables()), mine);
}

// Variables of which each rank has a part are no Variables that all ranks have.
TEST(DividedVariablesRefuse, WhatCannotBeDivided) {
  const Tensor whole(f32, {2, 7});
  EXPECT_EQ(problem_of([&] { (void)divided_variable("w", whole, 2, world()); }),
            "divided_variable: \"w\" is f32[2, 7], which has no axis 2");
  if (world().size() == 1) return;
  EXPECT_EQ(problem_of([&] { (void)divided_variable("w", whole, -1, world()); }),
            "divided_variable: \"w\" is f32[2, 7], whose axis -1 cannot be divided by " +
                std::to_string(world().size()) + " ranks");
  const Variable w = divided_variable("w", Tensor(f32, {12}), 0, world());
  EXPECT_EQ(w.name(), "w.part" + std::to_string(world().rank()));
  EXPECT_TRUE(has(problem_of([&] { broadcast_variables(std::vector<Variable>{w}, world()); }), "w.part1"));
}

TEST(DividedVariablesRefuse, FilesOfOtherParts) {
  const Variable whole("w", Tensor({1.0f, 2.0f, 3.0f, 4.0f}));
  const auto checkpoint = [](const std::string& name, const Tensor& tensor) {
    return snapshot(std::vector<Variable>{Variable(name, tensor)});
  };
  const auto problem = [&](const std::vector<Checkpoint>& all) {
    return problem_of([&] { (void)reshard(all, std::vector<Variable>{whole}); });
  };
  const Checkpoint first = checkpoint("w.part0", Tensor({1.0f, 2.0f})),
                   second = checkpoint("w.part1", Tensor({3.0f, 4.0f}));
  EXPECT_EQ(problem({first, second}), "");
  EXPECT_EQ(problem({first, second, first, second}), "");
  EXPECT_EQ(problem({first}), "reshard: the checkpoints have parts of \"w\", which is f32[4]: 1 of f32[2]");
  EXPECT_EQ(problem({first, second, checkpoint("w.part0", Tensor({1.0f, 0.0f}))}),
            "reshard: \"w.part0\" is another one in checkpoint 2 than in checkpoint 0");
  EXPECT_EQ(problem({first, checkpoint("w.part1", Tensor({3.0f}))}),
            "reshard: \"w.part1\" is f32[1], and part 0 f32[2]");
}

}  // namespace divided_variable_test
}  // namespace graphsink::testing
