// Data-parallel training gives every rank the parameters that one process computes from all data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace training_test {

constexpr std::int64_t kRows = 4, kSteps = 16;  // rows of a rank in each step

// A model with two layers, of the same values wherever it is made.
struct TwoLayers {
  Variable w1{"w1", Tensor::kaiming({6, 16}, 1)}, b1{"b1", Tensor::full(f32, {16}, 0.0)};
  Variable w2{"w2", Tensor::kaiming({16, 3}, 2)};
  std::vector<Variable> all() const { return {w1, b1, w2}; }

  Value loss(const Value& x, const Value& t) const {
    return cross_entropy(matmul(tanh(add(matmul(x, w1), b1)), w2), t);
  }
};

AdamwOptions options() { return {.lr = 1e-2, .gradients = {.clip_norm = 0.5}}; }

std::string bits(const TwoLayers& model) {
  std::string all;
  for (const Variable& variable : model.all()) {
    const Tensor value = variable.read();
    all.append(reinterpret_cast<const char*>(value.data()), value.bytes());
  }
  return all;
}

Tensor inputs() { return Tensor::normal({kSteps, world().size() * kRows, 6}, 3); }
Tensor targets() {
  Tensor all(i32, {kSteps, world().size() * kRows});
  std::int32_t next = 0;
  for (std::int32_t& target : all.as<std::int32_t>()) target = next++ % 3;
  return all;
}

// The rows of a rank in each step.
Tensor rows_of(int rank, const Tensor& all) {
  Eager eager;
  const std::int64_t first = rank * kRows;
  return Eager::read(slice(eager.tensor(all), {0, first}, {kSteps, first + kRows}));
}

// One process computes the gradients of each rank's rows, and adds them up in the order of the ranks.
std::string expected(const DeviceId& device) {
  const int ranks = world().size();
  const TwoLayers model;
  Graph g;
  std::vector<Value> sums, x, t;
  for (int rank = 0; rank < ranks; ++rank) {
    x.push_back(g.feed("x" + std::to_string(rank), f32, Shape{kRows, 6}));
    t.push_back(g.feed("t" + std::to_string(rank), i32, Shape{kRows}));
    const Value loss = model.loss(x.back(), t.back());
    const std::vector<Value> gradients = grad(loss, {model.w1, model.b1, model.w2});
    for (std::size_t i = 0; i < gradients.size(); ++i)
      rank == 0 ? sums.push_back(gradients[i]) : void(sums[i] = add(sums[i], gradients[i]));
  }
  for (Value& sum : sums) sum = div(sum, ranks);
  apply(options(), model.all(), sums);
  Program program = compile(g, {.target = device});
  for (int rank = 0; rank < ranks; ++rank) {
    program.write(x[static_cast<std::size_t>(rank)], rows_of(rank, inputs()));
    program.write(t[static_cast<std::size_t>(rank)], rows_of(rank, targets()));
  }
  program.run(interactive_serial, {.steps = kSteps});
  program.sync();
  return bits(model);
}

class DataParallel : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, DataParallel, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(DataParallel, HasTheBitsOfOneProcessInEveryModeAndBucketSize) {
  const std::string wanted = expected(GetParam().device);
  for (const Mode mode : kAllModes) {
    for (const std::size_t bucket : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 20}) {
      TwoLayers model;
      if (world().rank() > 0) model.w1.write(Tensor::full(f32, {6, 16}, 7.0));
      broadcast_variables(model.all(), world());
      Graph g;
      const Value x = g.feed("x", f32, Shape{kRows, 6});
      const Value t = g.feed("t", i32, Shape{kRows});
      const Value loss = model.loss(x, t);
      const std::vector<Value> gradients = grad(loss, {model.w1, model.b1, model.w2});
      apply(options(), model.all(), average(gradients, world(), {.bucket_bytes = bucket}));
      Program program = compile(g);
      program.write(x, rows_of(world().rank(), inputs()));
      program.write(t, rows_of(world().rank(), targets()));
      program.run(mode, {.steps = kSteps});
      program.sync();
      EXPECT_TRUE(bits(model) == wanted) << to_string(mode) << ", buckets of " << bucket << " bytes";
    }
  }
}

TEST(Average, ExchangesOneBucketAtOnce) {
  if (world().size() == 1) return;
  for (const auto& [bytes, exchanges] : {std::pair{1, 3}, std::pair{8, 3}, std::pair{1 << 20, 2}}) {
    Graph g;
    const std::vector<Value> x{g.input("a", f32, Shape{2}), g.input("b", f64, Shape{2}), g.input("c", f32, Shape{3})};
    const auto before = g.data()->nodes.size();
    (void)average(x, world(), {.bucket_bytes = static_cast<std::size_t>(bytes)});
    const auto& nodes = g.data()->nodes;
    EXPECT_EQ(std::count_if(nodes.begin() + static_cast<std::ptrdiff_t>(before), nodes.end(),
                            [](const Node& node) { return node.op->name == "all_reduce"; }),
              exchanges)
        << bytes;
  }
}

TEST(BroadcastVariables, RefusesOtherVariables) {
  if (world().size() == 1) return;
  const Variable a("a", Tensor(f32, {2})), b("b", Tensor(f32, {2}));
  try {
    broadcast_variables(std::vector{world().rank() == 0 ? a : b}, world());
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 has a f32[2], and rank 1 has b f32[2]"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(broadcast_variables(std::vector{a}, world(), 99), Error);
}

TEST(Average, RefusesBucketsOfNothing) {
  Graph g;
  const Value x = g.input("x", f32, Shape{2});
  EXPECT_THROW((void)average(std::vector{x}, world(), {.bucket_bytes = 0}), Error);
}

// A rank may have no gradient of a parameter but zeros, which its graph computes at another place than other graphs
// do. Each parameter is averaged with itself all the same.
TEST(AveragedGradients, AreThoseOfOneParameterOnAllRanks) {
  const int n = world().size();
  std::vector<Variable> parameters;
  for (int i = 0; i < n; ++i) parameters.emplace_back("w" + std::to_string(i), Tensor::full(f32, {3}, 0.0));
  parameters.emplace_back("shared", Tensor::full(f32, {3}, 0.0));
  Graph g;
  const int me = world().rank();
  const Value loss =
      sum(add(mul(g.value(parameters[static_cast<std::size_t>(me)]), 1.0 + me), g.value(parameters.back())));
  const std::vector<Value> means =
      average(grad(loss, {parameters.begin(), parameters.end()}), world(), {.same_program = false});
  for (std::size_t i = 0; i < means.size(); ++i) g.output(std::to_string(i), means[i]);
  Program program = compile(g, {.target = cpu()});
  program.run();
  for (int i = 0; i <= n; ++i) {
    const Tensor mean = program.output(std::to_string(i));
    EXPECT_FLOAT_EQ(mean.as<float>()[0], i == n ? 1.0f : (1.0f + static_cast<float>(i)) / static_cast<float>(n)) << i;
  }
}

}  // namespace training_test
}  // namespace graphsink::testing
