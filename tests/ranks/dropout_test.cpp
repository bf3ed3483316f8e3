// Ranks that train on parts of a batch, or of a model, drop what one process drops of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "parallel_models.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace dropout_test {

constexpr std::int64_t kRows = 2, kContext = 3, kWidth = 8, kTokens = 5, kTrained = 8;  // rows of a rank

// A block of a text model with attention and dropout, and what is behind it.
struct TextBlock {
  Variable tokens{"tokens", Tensor::kaiming({kTokens, kWidth}, 1)};
  Variable gain{"gain", Tensor::full(f32, {kWidth}, 1.0)}, bias{"bias", Tensor::full(f32, {kWidth}, 0.0)};
  Variable qkv{"qkv", Tensor::kaiming({kWidth, 3 * kWidth}, 2)},
      project{"project", Tensor::kaiming({kWidth, kWidth}, 3)};
  Variable widen{"widen", Tensor::kaiming({kWidth, 16}, 4)}, narrow{"narrow", Tensor::kaiming({16, kWidth}, 5)};
  std::vector<Variable> all() const { return {tokens, gain, bias, qkv, project, widen, narrow}; }

  Value loss(const Value& x, const Value& t) const {
    const Value stream = dropout(embedding(tokens, x), 0.2);
    std::vector<Value> heads = split(matmul(layer_norm(stream, gain, bias), qkv), 3, -1);
    for (Value& head : heads) head = permute(reshape(head, {-1, kContext, 2, kWidth / 2}), {0, 2, 1, 3});
    const Value mixed = attention(heads[0], heads[1], heads[2], {.causal = true});
    const Value added = dropout(matmul(reshape(permute(mixed, {0, 2, 1, 3}), {-1, kContext, kWidth}), project), 0.3);
    const Value attended = add(stream, added);
    const Value thought = dropout(matmul(gelu(matmul(attended, widen)), narrow), 0.5);
    const Value logits = matmul(reshape(add(attended, thought), {-1, kWidth}), tokens, {.transpose_b = true});
    return cross_entropy(logits, reshape(t, {-1}));
  }
};

Tensor texts(std::int64_t first, std::int64_t rows, int shift) {
  Tensor all(i32, {kTrained, rows, kContext});
  std::size_t k = 0;
  for (std::int64_t step = 0; step < kTrained; ++step)
    for (std::int64_t row = first; row < first + rows; ++row)
      for (std::int64_t i = 0; i < kContext; ++i)
        all.as<std::int32_t>()[k++] = static_cast<std::int32_t>((step * 3 + row * row + i + shift) % kTokens);
  return all;
}

// The parameters after some steps, one behind the other. `comm` has the ranks that share the rows.
std::vector<double> trained(const DeviceId& device, const Comm& comm, std::int64_t rows, Mode mode) {
  const TextBlock model;
  const RandomPart part(comm.rank());
  Graph g;
  const Value x = g.feed("x", i32, Shape{rows, kContext}), t = g.feed("t", i32, Shape{rows, kContext});
  const Value loss = model.loss(x, t);
  std::vector<Arg> parameters;
  for (const Variable& variable : model.all()) parameters.emplace_back(variable);
  apply(SgdOptions{.lr = 0.1}, model.all(), average(grad(loss, parameters), comm));
  Program program = compile(g, {.target = device, .seed = 4});
  program.write(x, texts(comm.rank() * rows, rows, 0));
  program.write(t, texts(comm.rank() * rows, rows, 1));
  program.run(mode, {.steps = kTrained});
  program.sync();
  std::vector<double> all;
  for (const Variable& variable : model.all()) {
    const Tensor value = variable.read();
    for (std::int64_t i = 0; i < value.shape().size(); ++i) all.push_back(value.at(i));
  }
  return all;
}

class DataParallelDropout : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, DataParallelDropout, ::testing::ValuesIn(devices()), device_name);

// Sums over the whole batch differ from sums of parts in the last bits of f32. One element more or less that is dropped
// makes a difference in the second digit.
TEST_P(DataParallelDropout, TrainsAsOneProcessDoes) {
  const std::vector<double> expected = trained(GetParam(), one_rank(), world().size() * kRows, interactive_serial);
  for (const Mode mode : kAllModes) {
    const std::vector<double> seen = trained(GetParam(), world(), kRows, mode);
    double most = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) most = std::max(most, std::abs(seen[i] - expected[i]));
    EXPECT_LT(most, 1e-5) << to_string(mode);
  }
}

// --- a model on several ranks, beside parts of the batch

// Ranks that share a model, and those that have the same part of it: four ranks are two by two.
struct Grid {
  Comm model, data;
};
Grid grid_of(const Comm& world) {
  const int shares = world.size() % 2 == 0 ? 2 : world.size();
  return {world.split(world.rank() / shares), world.split(world.rank() % shares)};
}

constexpr std::int64_t kHidden = 36;  // whose parts on two and three ranks are no multiples of blocks of random numbers

// Two layers twice, whose hidden elements are divided among the ranks of a model. Rows lie along the first axis.
class DividedMlp {
 public:
  explicit DividedMlp(const Grid& grid) : grid_(grid) {
    const auto weight = [&](const char* name, const Shape& shape, int divided, std::uint64_t seed) {
      weights.push_back(divided_variable(name, Tensor::normal(shape, seed, 0.0f, 0.2f).to(f64), divided, grid.model));
    };
    weight("widen1", {kWidth, kHidden}, 1, 1);
    weight("narrow1", {kHidden, kWidth}, 0, 2);
    weight("widen2", {kWidth, kHidden}, 1, 3);
    weight("narrow2", {kHidden, kWidth}, 0, 4);
  }

  Value loss(const Value& x, const Value& t) const {
    const Value y = block(block(x, weights[0], weights[1]), weights[2], weights[3]);
    const Value error = y - t;
    return mean(error * error);
  }

  std::vector<Variable> weights;

 private:
  Value block(const Value& x, const Variable& widen, const Variable& narrow) const {
    const Comm& model = grid_.model;
    Value hidden = tanh(matmul(enter_parallel(x, model), widen));
    {
      const RandomPart part(model.rank(), {.axis = -1, .parts = model.size()});
      hidden = dropout(hidden, 0.5);
    }
    return x + dropout(leave_parallel(matmul(hidden, narrow), model), 0.25);
  }

  const Grid& grid_;
};

// The weights of this rank after some steps.
std::vector<Tensor> trained_mlp(const DeviceId& device, const Grid& grid, std::int64_t rows, Mode mode) {
  const DividedMlp mlp(grid);
  const RandomPart part(grid.data.rank());
  Graph g;
  const Value x = g.feed("x", f64, Shape{rows, kWidth}), t = g.feed("t", f64, Shape{rows, kWidth});
  const Value loss = mlp.loss(x, t);
  const std::vector<Arg> parameters(mlp.weights.begin(), mlp.weights.end());
  apply(SgdOptions{.lr = 0.1}, mlp.weights, average(grad(loss, parameters), grid.data));
  Program program = compile(g, {.target = device, .seed = 4});
  const auto feed = [&](const Value& value, std::uint64_t seed) {
    const Shape all{kTrained, grid.data.size() * rows, kWidth};
    program.write(value, part_of(Tensor::normal(all, seed).to(f64), 1, grid.data.rank(), grid.data.size()));
  };
  feed(x, 7);
  feed(t, 8);
  program.run(mode, {.steps = kTrained});
  program.sync();
  std::vector<Tensor> all;
  for (const Variable& variable : mlp.weights) all.push_back(variable.read());
  return all;
}

class TensorParallelDropout : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, TensorParallelDropout, ::testing::ValuesIn(rank_ways()), rank_way_name);

// Sums of parts are rounded otherwise than sums of all, here in f64.
TEST_P(TensorParallelDropout, TrainsAsOneProcessDoes) {
  const Grid grid = grid_of(world()), alone{one_rank(), one_rank()};
  const std::vector<Tensor> whole = trained_mlp(GetParam().device, alone, grid.data.size() * kRows, interactive_serial);
  for (const Mode mode : kAllModes) {
    const std::vector<Tensor> seen = trained_mlp(GetParam().device, grid, kRows, mode);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const Tensor expected = part_of(whole[i], i % 2 == 0 ? 1 : 0, grid.model.rank(), grid.model.size());
      double most = 0;
      for (std::int64_t k = 0; k < expected.shape().size(); ++k)
        most = std::max(most, std::abs(seen[i].at(k) - expected.at(k)));
      EXPECT_LT(most, 1e-11) << to_string(mode) << ", weight " << i;
    }
  }
}

// Random ops behind collectives draw what they draw in one process, which has no nodes for these.
TEST_P(TensorParallelDropout, NodesOfRanksDoNotCount) {
  using Make = void (*)(const Value& x, const Comm& comm);
  const std::pair<const char*, Make> all[] = {
      {"nothing", [](const Value&, const Comm&) {}},
      {"all_reduce", [](const Value& x, const Comm& comm) { (void)all_reduce(x, comm); }},
      {"all_gather", [](const Value& x, const Comm& comm) { (void)all_gather(x, comm); }},
      {"reduce_scatter", [](const Value& x, const Comm& comm) { (void)reduce_scatter(x, comm); }},
      {"broadcast", [](const Value& x, const Comm& comm) { (void)broadcast(x, comm); }},
      {"all_to_all", [](const Value& x, const Comm& comm) { (void)all_to_all(x, comm); }},
      {"send_receive",
       [](const Value& x, const Comm& comm) {
         std::vector<int> itself;
         for (int rank = 0; rank < comm.size(); ++rank) itself.push_back(rank);
         (void)send_receive(x, comm, itself);
       }},
      {"average",
       [](const Value& x, const Comm& comm) {
         (void)average(std::vector{x, x}, comm);
       }},
      {"enter_parallel", [](const Value& x, const Comm& comm) { (void)enter_parallel(x, comm); }},
      {"leave_parallel", [](const Value& x, const Comm& comm) { (void)leave_parallel(x, comm); }},
      {"cross_entropy_parallel",
       [](const Value& x, const Comm& comm) {
         const Value targets = Graph(x.graph()).constant(Tensor(i32, {1}));
         (void)cross_entropy_parallel(reshape(x, {1, -1}), targets, comm);
         (void)not_equal(targets, 0);  // a number that the loss has on some ranks
       }},
      {"gradients",
       [](const Value& x, const Comm& comm) {
         const Value all[] = {leave_parallel(enter_parallel(x, comm), comm),
                              all_gather(x, comm),
                              all_reduce(x, comm, {.reduction = Reduction::max}),
                              broadcast(x, comm),
                              all_reduce(x, comm, {.reduction = Reduction::mean, .same_loss = true}),
                              reduce_scatter(x, comm, {.reduction = Reduction::mean}),
                              all_to_all(x, comm)};
         for (const Value& y : all) (void)grad(sum(y), {x});
       }},
      {"an optimizer",
       [](const Value& x, const Comm& comm) {
         if (x.graph()->current_region > 0) return;  // two optimizers would share their names
         const Variable w = divided_variable("w", Tensor(f32, {12}), 0, comm), b("b", Tensor({1.0f}));
         Graph g(x.graph());
         const Value loss = sum(mul(g.value(w), w)) + sum(g.value(b));
         (void)sgd(loss, {w, b}, {.gradients = {.clip_norm = 1}});
       }},
  };
  for (const auto& [name, make] : all) {
    const auto drawn = [&, make = make](const Comm& comm) {
      Graph g;
      const Value x = g.constant(Tensor::full(f32, {12}, 1.0));
      make(x, comm);
      const Value behind = dropout(x, 0.5);
      const auto in_body = [&, make = make] {
        make(x, comm);
        return random_uniform(x);
      };
      const Value from_body = if_(greater(sum(x), 0.0), in_body, [&] { return x; });
      g.output("y", concat({behind, from_body}, 0));
      Program program = compile(g, {.seed = 4});
      program.run(sink);
      program.sync();
      return program.output("y");
    };
    const Tensor seen = drawn(world()), expected = drawn(one_rank());
    EXPECT_TRUE(std::ranges::equal(seen.as<float>(), expected.as<float>())) << name;
  }
}

}  // namespace dropout_test
}  // namespace graphsink::testing
