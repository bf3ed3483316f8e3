// Models that are divided among ranks compute what one process computes of the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "parallel_models.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace tensor_parallel_test {

// Sums of parts are rounded otherwise than sums of all, here in f64.
constexpr double kBound = 1e-12;

// The loss, then the gradients of x and of all weights, of which each rank has its part.
template <class Model>
std::vector<Tensor> computed(const DeviceId& device, const Comm& comm, Mode mode) {
  Graph g;
  const Value x = g.input("x", f64, Model::input());
  Values values;
  std::vector<Arg> wrt{x};
  for (const Weight& each : Model{}.weights()) {
    values.push_back(g.value(each.variable(comm)));
    wrt.emplace_back(values.back());
  }
  const Value loss = Model::loss(x, values, comm);
  const std::vector<Value> gradients = grad(loss, wrt);
  g.output("loss", loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) g.output(std::to_string(i), gradients[i]);
  Program program = compile(g, {.target = device});
  program.write(x, Tensor::normal(Model::input(), 30).to(f64));
  program.run(mode);
  std::vector<Tensor> result{program.output("loss")};
  for (std::size_t i = 0; i < gradients.size(); ++i) result.push_back(program.output(std::to_string(i)));
  return result;
}

class TensorParallel : public OnRanks {
 protected:
  template <class Model>
  void expect_that_of_one_process() {
    std::vector<Tensor> expected = computed<Model>(GetParam().device, one_rank(), interactive_serial);
    const std::vector<Weight> weights = Model{}.weights();
    for (std::size_t i = 0; i < weights.size(); ++i)
      expected[i + 2] = part_of(expected[i + 2], weights[i].divided, world());
    for (const Mode mode : kAllModes) {
      const std::vector<Tensor> seen = computed<Model>(GetParam().device, world(), mode);
      for (std::size_t i = 0; i < seen.size(); ++i)
        EXPECT_LT(farthest(seen[i], expected[i]), kBound) << to_string(mode) << ", "
                                                          << (i == 0   ? "loss"
                                                              : i == 1 ? "x"
                                                                       : weights[i - 2].name);
    }
  }

  Tensor run(const Graph& g) {
    Program program = compile(g);
    program.run(sink);
    program.sync();
    return program.output("y");
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, TensorParallel, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(TensorParallel, TwoLayersHaveTheGradientsOfOneProcess) { expect_that_of_one_process<Mlp>(); }
TEST_P(TensorParallel, ATransformerLayerHasTheGradientsOfOneProcess) { expect_that_of_one_process<Layer>(); }

// The gradient of the sum of squares of a gradient.
TEST_P(TensorParallel, SecondDerivativesAreThoseOfOneProcess) {
  const auto second = [&](const Comm& comm) {
    Graph g;
    const Value x = g.constant(Tensor::normal(Mlp::input(), 30).to(f64));
    Values w;
    for (const Weight& each : Mlp{}.weights()) w.push_back(g.value(each.variable(comm)));
    const Value dx = grad(Mlp::loss(x, w, comm), {x})[0];
    const std::vector<Value> all = grad(sum(mul(dx, dx)), {x, w[0], w[1]});
    for (std::size_t i = 0; i < all.size(); ++i) g.output(std::to_string(i), all[i]);
    Program program = compile(g, {.target = GetParam().device});
    program.run(sink);
    return std::vector{program.output("0"), program.output("1"), program.output("2")};
  };
  const std::vector<Tensor> expected = second(one_rank()), seen = second(world());
  const Divided divided[] = {Divided::no, Divided::columns, Divided::rows};
  for (std::size_t i = 0; i < seen.size(); ++i)
    EXPECT_LT(farthest(seen[i], part_of(expected[i], divided[i], world())), kBound) << i;
}

TEST_P(TensorParallel, TheGradientOfASumIsThatOfOneLoss) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    Graph g;
    const Value x = g.constant(Tensor::full(f32, {3}, 1.0 + world().rank()));
    const Value y = all_reduce(x, world(), {.reduction = reduction, .same_loss = true});
    g.output("y", grad(sum(mul(y, 6.0)), {x})[0]);
    EXPECT_FLOAT_EQ(static_cast<float>(run(g).at(1)),
                    reduction == Reduction::sum ? 6.0f : 6.0f / static_cast<float>(world().size()));
  }
}

// Rows and columns of a grid: two ranks share a model, and the others have other rows of the batch.
TEST_P(TensorParallel, TogetherWithDataParallelism) {
  if (world().size() != 4) return;
  const Comm model = world().split(world().rank() / 2), data = world().split(world().rank() % 2);
  const auto gradients = [&](const Comm& of_model, const Comm& of_data, std::int64_t first, std::int64_t rows) {
    Eager eager;
    const Tensor all = Tensor::normal({4, kWidth}, 30).to(f64);
    Graph g;
    const Value x = g.constant(Eager::read(slice(eager.tensor(all), {first, 0}, {first + rows, kWidth})));
    const Value t = g.constant(Eager::read(slice(eager.tensor(targets(4)), {first}, {first + rows})));
    Values w;
    std::vector<Arg> wrt;
    for (const Weight& each : Mlp{}.weights()) {
      w.push_back(g.value(each.variable(of_model)));
      wrt.emplace_back(w.back());
    }
    const Value hidden = tanh(matmul(enter_parallel(x, of_model), w[0]));
    const Value loss = cross_entropy(leave_parallel(matmul(hidden, w[1]), of_model) + w[2], t);
    const std::vector<Value> means = average(grad(loss, wrt), of_data);
    for (std::size_t i = 0; i < means.size(); ++i) g.output(std::to_string(i), means[i]);
    Program program = compile(g, {.target = GetParam().device});
    program.run(sink);
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < means.size(); ++i) result.push_back(program.output(std::to_string(i)));
    return result;
  };
  const std::vector<Tensor> expected = gradients(one_rank(), one_rank(), 0, 4);
  const std::vector<Tensor> seen = gradients(model, data, 2 * data.rank(), 2);
  const std::vector<Weight> weights = Mlp{}.weights();
  for (std::size_t i = 0; i < seen.size(); ++i)
    EXPECT_LT(farthest(seen[i], part_of(expected[i], weights[i].divided, model)), kBound) << weights[i].name;
}

TEST_P(TensorParallel, CrossEntropyHasTheOptionsOfTheWholeOne) {
  const Tensor logits = Tensor::normal({6, kClasses}, 4).to(f64);
  for (const DType dtype : {i32, i64}) {
    for (const CrossEntropyOptions& options : {CrossEntropyOptions{},
                                               {.per_row = true},
                                               {.ignore_index = targets(6).at(2)},
                                               {.ignore_index = -100, .per_row = true}}) {
      const auto build = [&](const Comm& comm, const std::string& what) {
        Graph g;
        Tensor t = targets(6);
        if (options.ignore_index == -100) t.as<std::int32_t>()[3] = -100;
        const Value x = g.constant(part_of(logits, Divided::columns, comm)), target = g.constant(t.to(dtype));
        const Value loss =
            comm.size() == 1 ? cross_entropy(x, target, options) : cross_entropy_parallel(x, target, comm, options);
        g.output("y", what == "loss" ? loss : grad(sum(loss), {x})[0]);
        return run(g);
      };
      EXPECT_LT(farthest(build(world(), "loss"), build(one_rank(), "loss")), kBound);
      EXPECT_LT(farthest(build(world(), "gradient"), part_of(build(one_rank(), "gradient"), Divided::columns, world())),
                kBound);
    }
  }
}

// Of large logits the loss keeps its digits, and an ignored row has no part in anything, whatever its logits are.
TEST_P(TensorParallel, CrossEntropyOfLargeLogitsAndOfIgnoredRows) {
  Tensor logits(f32, {2, kClasses});
  for (std::int64_t i = 0; i < kClasses; ++i) {
    logits.as<float>()[static_cast<std::size_t>(i)] = i == 0 ? 1000.0f : 992.0f;
    logits.as<float>()[static_cast<std::size_t>(kClasses + i)] = std::nanf("");
  }
  Tensor targets(i32, {2});
  targets.as<std::int32_t>()[1] = -100;
  const auto both = [&](const Comm& comm) {
    Graph g;
    const Value x = g.constant(part_of(logits, Divided::columns, comm)), t = g.constant(targets);
    const CrossEntropyOptions options{.ignore_index = -100};
    const Value loss = comm.size() == 1 ? cross_entropy(x, t, options) : cross_entropy_parallel(x, t, comm, options);
    g.output("loss", loss);
    g.output("y", grad(loss, {x})[0]);
    Program program = compile(g, {.target = GetParam().device});
    program.run(sink);
    return std::pair{program.output("loss").at(0), program.output("y")};
  };
  const auto [expected, dx] = both(one_rank());
  const auto [seen, part] = both(world());
  EXPECT_NEAR(seen, expected, 1e-4 * expected);
  EXPECT_LT(farthest(part, part_of(dx, Divided::columns, world())), 1e-6);
}

TEST_P(TensorParallel, ATargetThatIsNoClassFailsTheStep) {
  for (const std::int64_t wrong : {std::int64_t{-1}, kClasses, std::int64_t{1} << 32}) {
    Graph g;
    const Value x = g.constant(part_of(Tensor(f32, {2, kClasses}), Divided::columns, world()));
    Tensor t(i64, {2});
    t.as<std::int64_t>()[1] = wrong;
    g.output("y", cross_entropy_parallel(x, g.constant(t), world()));
    try {
      (void)run(g);
      ADD_FAILURE() << wrong;
    } catch (const Error& e) {
      EXPECT_NE(e.problem().find(world().size() == 1 ? "is not a class" : "lies outside"), std::string::npos)
          << e.what();
    }
  }
}

TEST(TensorParallelRefuses, WhatItCannotTake) {
  if (world().size() == 1) return;
  Graph g;
  const Value x = g.input("x", f32, Shape{2, 3}), whole = g.input("t", i32, Shape{2});
  EXPECT_THROW((void)cross_entropy_parallel(x, x, world()), Error);
  EXPECT_THROW((void)cross_entropy_parallel(whole, whole, world()), Error);
  EXPECT_THROW((void)cross_entropy_parallel(1.0, whole, world()), Error);
  EXPECT_THROW((void)all_reduce(x, world(), {.reduction = Reduction::max, .same_loss = true}), Error);
  const Value rows = g.input("rows", f32, Shape{12});
  EXPECT_NO_THROW((void)reduce_scatter(rows, world()));
}

TEST(TensorParallelOfOneRank, AddsNoNode) {
  Graph g;
  const Value x = g.input("x", f32, Shape{4});
  EXPECT_EQ(leave_parallel(enter_parallel(x, one_rank()), one_rank()).node(), x.node());
}

}  // namespace tensor_parallel_test
}  // namespace graphsink::testing
