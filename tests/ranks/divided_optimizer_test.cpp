// Optimizers of parameters that are divided among ranks, in other places than at the end of a step: what one process
// does which has the whole parameters.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "parallel_models.h"
#include "program_fixture.h"
#include "rank_checkpoints.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace divided_optimizer_test {

constexpr int kSteps = 4;

// Norms are above this one in all steps.
AdamwOptions clipped(int accumulate = 1) {
  return {.lr = 1e-2, .eps = 1e-4, .weight_decay = 0.1, .gradients = {.clip_norm = 0.01, .accumulate = accumulate}};
}

// Adds the updates of Mlp's parameters to a graph. `loss` builds the loss where it is called.
using Update =
    std::function<void(Graph& g, const std::function<Value()>& loss, const std::vector<Variable>& parameters)>;
struct Row {
  const char* name;
  Update update;
};

void in_loop(Graph& g, int iterations, const std::function<void()>& update) {
  while_(
      {g.constant(Tensor::scalar(0))}, [=](Value i) { return i < iterations; },
      [&](Value i) {
        update();
        return i + 1;
      });
}

const Row kRows[] = {
    {"groups",
     [](Graph&, const auto& loss, const auto& w) {
       (void)adamw(loss(), std::vector<ParameterGroup>{{{w[0], w[2]}, 2e-2}, {{w[1]}, {}, 0.0}}, clipped());
     }},
    {"parts in a group of their own",
     [](Graph&, const auto& loss, const auto& w) {
       (void)sgd(loss(), std::vector<ParameterGroup>{{{w[2]}, 5.0}, {{w[1], w[0]}}},
                 {.lr = 2, .momentum = 0.5, .gradients = {.clip_norm = 0.01}});
     }},
    {"two optimizers",
     [](Graph& g, const auto& loss, const auto& w) {
       const std::vector<Value> of = grad(loss(), {g.value(w[0]), g.value(w[1]), g.value(w[2])});
       (void)apply(SgdOptions{.lr = 2, .gradients = {.clip_norm = 0.01}}, std::vector<Variable>{w[0], w[2]},
                   {of[0], of[2]});
       (void)apply(clipped(), std::vector<Variable>{w[1]}, {of[1]});
     }},
    {"in a loop",
     [](Graph& g, const auto& loss, const auto& w) { in_loop(g, 3, [&] { (void)adamw(loss(), w, clipped()); }); }},
    {"accumulated in a loop",
     [](Graph& g, const auto& loss, const auto& w) { in_loop(g, 3, [&] { (void)adamw(loss(), w, clipped(2)); }); }},
    {"scaled in a loop",
     [](Graph& g, const auto& loss, const auto& w) {
       in_loop(g, 2,
               [&] { (void)sgd(loss(), w, {.lr = 0.1, .gradients = {.loss_scale = LossScale{.initial = 0x1p127}}}); });
     }},
    {"in a branch",
     [](Graph& g, const auto& loss, const auto& w) {
       if_(
           g.step() > 1,
           [&] {
             (void)adamw(loss(), w, clipped());
             return Values{};
           },
           [] { return Values{}; });
     }},
};

Checkpoint trained(const Row& row, const DeviceId& device, const Comm& comm, Mode mode) {
  Graph g;
  const Value x = g.feed("x", f64, Mlp::input());
  std::vector<Variable> parameters;
  for (const Weight& weight : Mlp{}.weights()) parameters.push_back(weight.variable(comm));
  const auto loss = [&] {
    Values values;
    for (const Variable& parameter : parameters) values.push_back(g.value(parameter));
    return Mlp::loss(x, values, comm);
  };
  row.update(g, loss, parameters);
  Program program = compile(g, {.target = device});
  program.write(x, Tensor::normal({kSteps, Mlp::input()[0], Mlp::input()[1]}, 30).to(f64));
  program.run(mode, {.steps = kSteps});
  program.sync();
  return snapshot(program);
}

class DividedOptimizers : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, DividedOptimizers, ::testing::ValuesIn(rank_ways()), rank_way_name);

// In all modes with two ranks.
TEST_P(DividedOptimizers, UpdateAsOneProcessDoes) {
  std::vector<Mode> modes{interactive_serial, sink};
  if (world().size() == 2) modes.assign(std::begin(kAllModes), std::end(kAllModes));
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const Checkpoint one = trained(row, cpu(), one_rank(), interactive_serial);
    std::optional<Checkpoint> first;
    for (const Mode mode : modes) {
      const Checkpoint seen = trained(row, GetParam().device, world(), mode);
      if (first) expect_equal(seen, *first);
      if (!first) first = seen;
    }
    for (const Weight& weight : Mlp{}.weights()) {
      const Tensor expected = one.tensors.at(weight.name);
      const bool is_part = weight.divided != Divided::no && world().size() > 1;
      const std::string name = weight.name + (is_part ? ".part" + std::to_string(world().rank()) : "");
      EXPECT_GT(farthest(expected, weight.whole), 1e-3) << name;
      EXPECT_LT(farthest(first->tensors.at(name), part_of(expected, weight.divided, world())), 1e-6) << name;
    }
  }
}

}  // namespace divided_optimizer_test
}  // namespace graphsink::testing
