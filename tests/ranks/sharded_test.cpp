// Optimizers with states that are divided among ranks make the updates of those that are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace sharded_test {

constexpr std::int64_t kRows = 4, kSteps = 16;

// Parameters whose sizes are multiples of the number of ranks, and others.
struct Model {
  explicit Model(DType dtype) : w1("w1", Tensor::kaiming({6, 7}, 1).to(dtype)), w2("w2", Tensor::kaiming({7, 12}, 2)) {}
  Variable w1, b1{"b1", Tensor::full(f32, {7}, 0.0)}, w2;
  std::vector<Variable> all() const { return {w1, b1, w2}; }

  Value loss(const Value& x, const Value& t) const {
    return cross_entropy(matmul(tanh(add(matmul(x, cast(Graph(x.graph()).value(w1), f32)), b1)), w2), t);
  }
  std::vector<double> elements() const {
    std::vector<double> all_elements;
    for (const Variable& variable : all()) {
      const Tensor value = variable.read();
      for (std::int64_t i = 0; i < value.shape().size(); ++i) all_elements.push_back(value.at(i));
    }
    return all_elements;
  }
};

using Apply = std::function<Optimizer(const Model&, const std::vector<Value>&)>;

struct Trained {
  std::vector<double> parameters;
  std::vector<float> norms;
  Optimizer optimizer;
};

// Trains on data of this rank. Where `bad` is a step, one element of a gradient of the last rank is infinite there,
// which is in the shard of rank 0.
Trained train(const DeviceId& device, Mode mode, DType dtype, const Apply& apply_to, std::int64_t bad = -1) {
  const Model model(dtype);
  Graph g;
  const Value x = g.feed("x", f32, Shape{kRows, 6}), t = g.feed("t", i32, Shape{kRows});
  const Value factor = g.feed("factor", f32, Shape{});
  std::vector<Value> gradients = grad(model.loss(x, t), {model.w1, model.b1, model.w2});
  Tensor first(f32, {7});
  first.as<float>()[0] = 1;
  gradients[1] = where(g.constant(first) > 0.5, mul(gradients[1], factor), gradients[1]);
  Trained trained;
  trained.optimizer = apply_to(model, gradients);
  if (trained.optimizer.gradient_norm.valid()) g.record("norm", trained.optimizer.gradient_norm);
  Program program = compile(g, {.target = device});
  const int me = world().rank();
  program.write(x, Tensor::normal({kSteps, kRows, 6}, 3 + static_cast<std::uint64_t>(me)));
  Tensor targets(i32, {kSteps, kRows}), factors = Tensor::full(f32, {kSteps}, 1.0);
  std::int32_t next = me;
  for (std::int32_t& target : targets.as<std::int32_t>()) target = next++ % 12;
  if (bad >= 0 && me == world().size() - 1)
    factors.as<float>()[static_cast<std::size_t>(bad)] = std::numeric_limits<float>::infinity();
  program.write(t, targets);
  program.write(factor, factors);
  program.run(mode, {.steps = kSteps});
  program.sync();
  trained.parameters = model.elements();
  if (trained.optimizer.gradient_norm.valid()) trained.norms = program.records("norm");
  return trained;
}

template <class Options>
Apply whole(const Options& options) {
  return [options](const Model& model, const std::vector<Value>& gradients) {
    return apply(options, model.all(), average(gradients, world()));
  };
}
template <class Options>
Apply in_shards(const Options& options, std::size_t bucket = std::size_t{4} << 20) {
  return [options, bucket](const Model& model, const std::vector<Value>& gradients) {
    return apply_sharded(options, model.all(), gradients, world(), {.bucket_bytes = bucket});
  };
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class Sharded : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, Sharded, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(Sharded, HasTheBitsOfApplyInEveryMode) {
  const auto compare = [&](const char* what, DType dtype, const auto& options, std::size_t bucket) {
    const std::vector<double> expected = train(GetParam().device, interactive_serial, dtype, whole(options)).parameters;
    for (const Mode mode : kAllModes)
      EXPECT_TRUE(train(GetParam().device, mode, dtype, in_shards(options, bucket)).parameters == expected)
          << what << ", " << to_string(mode) << ", buckets of " << bucket << " bytes";
  };
  constexpr std::size_t kAll = std::size_t{4} << 20;
  compare("sgd", f32, SgdOptions{.lr = 0.1}, kAll);
  compare("momentum", f32, SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}, 1);
  compare("adamw", f32, AdamwOptions{.lr = 1e-2}, 200);
  compare("adamw of bf16", bf16, AdamwOptions{.lr = 1e-2}, kAll);
  compare("momentum of f16", f16, SgdOptions{.lr = 0.1, .momentum = 0.5}, kAll);
  compare("accumulated", f32, AdamwOptions{.lr = 1e-2, .gradients = {.accumulate = 3}}, kAll);
}

// The norm is a sum of the squares of shards, which is rounded otherwise than that of all elements.
TEST_P(Sharded, ClipsByTheNormOfAllGradients) {
  const AdamwOptions options{.lr = 1e-2, .gradients = {.clip_norm = 0.3}};
  const Trained expected = train(GetParam().device, interactive_serial, f32, whole(options));
  for (const Mode mode : kAllModes) {
    const Trained seen = train(GetParam().device, mode, f32, in_shards(options));
    EXPECT_LT(farthest(seen.parameters, expected.parameters), 1e-5) << to_string(mode);
    ASSERT_EQ(seen.norms.size(), expected.norms.size());
    for (std::size_t i = 0; i < seen.norms.size(); ++i)
      EXPECT_NEAR(seen.norms[i], expected.norms[i], 1e-5 * expected.norms[i]) << to_string(mode);
  }
}

// The rank whose shard has no infinite element skips the update, too.
TEST_P(Sharded, AllSkipAnUpdateThatOverflows) {
  const auto options = [] {
    return SgdOptions{.lr = 0.1,
                      .momentum = 0.9,
                      .gradients = {.loss_scale = LossScale{.variable = Variable("scale", Tensor::scalar(1.0f))}}};
  };
  const Trained expected = train(GetParam().device, interactive_serial, f32, whole(options()), 5);
  const Trained seen = train(GetParam().device, sink, f32, in_shards(options()), 5);
  for (const double x : seen.parameters) ASSERT_TRUE(std::isfinite(x));
  EXPECT_LT(farthest(seen.parameters, expected.parameters), 1e-5);
}

TEST(ShardedStates, HaveAPartOfTheElements) {
  const std::int64_t n = world().size();
  const Model model(bf16);
  Graph g;
  const Value x = g.input("x", f32, Shape{kRows, 6}), t = g.input("t", i32, Shape{kRows});
  const std::vector<Value> gradients = grad(model.loss(x, t), {model.w1, model.b1, model.w2});
  const Optimizer optimizer = apply_sharded(AdamwOptions{}, model.all(), gradients, world());
  const auto part = [&](std::int64_t size) { return (size + n - 1) / n; };
  std::int64_t elements = 0;
  for (const Variable& variable : optimizer.state) elements += variable.type().shape.size();
  if (n == 1) return;  // that is apply()
  EXPECT_EQ(elements, 3 * (part(42) + part(7) + part(84)));
  EXPECT_EQ(optimizer.state[0].name(), "w1.shard" + std::to_string(world().rank()));
  EXPECT_EQ(optimizer.state[0].type(), (TensorType{f32, {part(42)}}));
  EXPECT_EQ(optimizer.state[3].name(), "w1.shard" + std::to_string(world().rank()) + ".adamw.m");
  EXPECT_NO_THROW((void)g.updated(model.w2));
  // What would lose an update is refused, and so is a state that is not the same on all ranks.
  EXPECT_THROW(apply_sharded(AdamwOptions{}, model.all(), gradients, world()), Error);
  EXPECT_THROW(broadcast_variables(optimizer.variables(), world()), Error);
}

TEST(ShardedStates, KeepTheGroupsOfParameters) {
  const Model model(f32);
  Graph g;
  const Value x = g.input("x", f32, Shape{kRows, 6}), t = g.input("t", i32, Shape{kRows});
  const std::vector<Value> gradients = grad(model.loss(x, t), {model.w1, model.b1, model.w2});
  const std::vector<double> before = model.elements();
  const Optimizer optimizer =
      apply_sharded(SgdOptions{.lr = 0.5}, {{{model.w1}, 0.0, {}}, {{model.b1, model.w2}, {}, {}}}, gradients, world());
  EXPECT_TRUE(optimizer.group_lr[0].valid());
  Program program = compile(g, {.target = cpu()});
  program.write(x, Tensor::full(f32, {kRows, 6}, 0.5));
  program.write(t, Tensor::full(i32, {kRows}, 1));
  program.run(sink);
  program.sync();
  const std::vector<double> after = model.elements();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 42, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 42, before.end(), after.begin() + 42));
}

// Where a parameter lives, its part of the state does, too.
TEST(ShardedStates, LiveWhereTheirParametersDo) {
  const Variable w("w", Tensor(f32, {8, 4}), on_device(1));
  Graph g;
  const Value loss = mean(matmul(g.input("x", f32, Shape{2, 8}), w));
  const Optimizer optimizer = apply_sharded(AdamwOptions{}, std::vector{w}, grad(loss, {w}), world());
  int moments = 0;
  for (const Variable& state : optimizer.state) {
    if (state.name().find(".adamw.") == std::string::npos || state.type().shape.size() == 1) continue;
    EXPECT_EQ(state.placement(), on_device(1)) << state.name();
    ++moments;
  }
  EXPECT_EQ(moments, 2);
}

TEST(ShardedStates, RefuseOtherGradients) {
  const Model model(f32);
  Graph g;
  const Value x = g.input("x", f32, Shape{kRows, 6}), t = g.input("t", i32, Shape{kRows});
  const std::vector<Value> gradients = grad(model.loss(x, t), {model.w1, model.b1, model.w2});
  const auto refused = [&](const std::vector<Value>& given, const AverageOptions& buckets = {}) {
    EXPECT_THROW((void)apply_sharded(SgdOptions{}, model.all(), given, world(), buckets), Error);
  };
  refused({gradients[0], gradients[1]});
  refused({gradients[1], gradients[0], gradients[2]});
  refused({});
  refused({Value(), gradients[1], gradients[2]});
  Eager eager;
  refused({gradients[0], eager.tensor(Tensor(f32, {7})), gradients[2]});
  refused(gradients, {.bucket_bytes = 0});
}

}  // namespace sharded_test
}  // namespace graphsink::testing
