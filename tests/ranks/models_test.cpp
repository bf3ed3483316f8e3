// The models of the samples, trained by ranks, each on its rows of every batch, have the parameters that one process
// has which trains on the whole batches. Each rank has the whole state of the optimizer, or a part of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "rank_world.h"
#include "samples/models/mlp.h"
#include "samples/models/text_model.h"

namespace graphsink::testing {
namespace models_test {

constexpr std::int64_t kRows = 2, kSteps = 16;  // rows of a rank in each step; steps of one run

// Makes a training of batches of so many rows, with the same initial values and data wherever it is made.
using MakeModel = std::function<models::Model(std::int64_t rows, const models::Sharing& sharing)>;

struct Trained {
  std::string name;
  MakeModel make;
  // With two ranks; with other numbers of ranks, modes are few.
  bool in_all_modes = false, sharded_in_all_modes = false;
};

std::shared_ptr<const Text> text() {
  auto text = std::make_shared<Text>();
  for (std::size_t i = 0; i < 400; ++i)
    text->tokens.push_back(static_cast<std::int32_t>(models::random_bits(5, i) % 7));
  text->vocabulary = "abcdefg";
  return text;
}

MakeModel training_of(const std::function<models::TextModel()>& model, double dropout = 0) {
  return [=](std::int64_t rows, const models::Sharing& sharing) {
    return models::train(model(), text(), {.batch = rows, .dropout = dropout, .sharing = sharing});
  };
}

MakeModel mlp_training() {
  return [](std::int64_t rows, const models::Sharing& sharing) {
    return models::train_mlp(models::Mlp(784, 12, 10, 1), std::make_shared<const Digits>(seeded_digits(64, 5)),
                             {.batch = rows, .sharing = sharing});
  };
}

std::vector<Trained> trainings() {
  const models::LstmSizes lstm{.layers = 2, .hidden = 8, .context = 5};
  models::LstmSizes loop = lstm;
  loop.as_loop = true;
  const models::GptSizes gpt{.layers = 2, .width = 8, .heads = 2, .context = 5};
  return {{"mlp", mlp_training(), true, true},
          {"lstm", training_of([=] { return models::lstm(7, lstm, 1); })},
          {"lstm_scan", training_of([=] { return models::lstm(7, loop, 1); })},
          {"gpt", training_of([=] { return models::gpt(7, gpt, 1); }, 0.2), true}};
}

// How ranks share a training.
struct Way {
  Comm comm;
  bool in_shards = false;  // of the optimizer's state
};

// Steps along the gradient: what an error of the last digit of a gradient changes is as small. Adamw divides by the
// size of gradients, and makes a step of full size of one that should be zero.
// Appends the parameters that are updated, in the order of the groups.
models::Sharing sharing_of(const Way& way, std::vector<Variable>& parameters) {
  return {[&parameters, way](const AdamwOptions&, const std::vector<ParameterGroup>& groups,
                             const std::vector<Value>& gradients) {
            for (const ParameterGroup& group : groups)
              parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
            const SgdOptions options{.lr = 0.05, .momentum = 0.5};
            return way.in_shards ? apply_sharded(options, groups, gradients, way.comm)
                                 : apply(options, groups, average(gradients, way.comm));
          },
          [way](const Value& loss) { return all_reduce(loss, way.comm, {.reduction = Reduction::mean}); }};
}

// The rows of one rank: those of `part` among `parts` of the batches [steps, rows, ...].
Tensor rows_of(const Tensor& batches, int part, int parts) {
  Eager eager;
  const Shape& shape = batches.shape();
  const std::int64_t rows = shape[1] / parts;
  std::vector<std::int64_t> begin{0, part * rows}, end{shape[0], (part + 1) * rows};
  for (int axis = 2; axis < shape.rank(); ++axis) {
    begin.push_back(0);
    end.push_back(shape[axis]);
  }
  return Eager::read(slice(eager.tensor(batches), begin, end));
}

std::vector<double> elements_of(const std::vector<Variable>& variables) {
  std::vector<double> all;
  for (const Variable& variable : variables) {
    const Tensor value = variable.read();
    for (std::int64_t i = 0; i < value.shape().size(); ++i) all.push_back(value.at(i));
  }
  return all;
}

struct Result {
  std::vector<double> losses, parameters;
};

double most_different(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The batches of all ranks, [steps, rows, ...] for each feed.
std::vector<Tensor> batches_of(const Trained& trained) {
  std::vector<Variable> ignored;
  const models::Model model = trained.make(world().size() * kRows, sharing_of({one_rank()}, ignored));
  std::vector<Tensor> batches;
  for (const auto& feed : model.feeds) batches.push_back(feed.slices(0, kSteps));
  return batches;
}

Result train(const Trained& trained, const DeviceId& device, const Way& way, Mode mode,
             const std::vector<Tensor>& batches) {
  const Comm& comm = way.comm;
  const RandomPart part(comm.rank());
  std::vector<Variable> parameters;
  const models::Model model = trained.make(batches[0].shape()[1] / comm.size(), sharing_of(way, parameters));
  Program program = compile(model.graph, {.target = device, .seed = 4});
  for (std::size_t i = 0; i < model.feeds.size(); ++i)
    program.write(model.feeds[i].value, rows_of(batches[i], comm.rank(), comm.size()));
  const std::vector<double> initial = elements_of(parameters);
  program.run(mode, {.steps = kSteps});
  Result result{program.records<double>("loss"), elements_of(parameters)};
  EXPECT_GT(most_different(result.parameters, initial), 1e-2) << trained.name;
  return result;
}

// The modes of a training. All of them are compared with interactive_serial.
std::vector<Mode> modes_of(const Trained& trained, bool in_shards) {
  if (world().size() == 2 && (in_shards ? trained.sharded_in_all_modes : trained.in_all_modes))
    return {std::begin(kAllModes), std::end(kAllModes)};
  return in_shards ? std::vector{sink} : std::vector{interactive_parallel, sink};
}

class TrainedModels : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, TrainedModels, ::testing::ValuesIn(rank_ways()), rank_way_name);

// Sums over a whole batch differ from sums of parts in the last bits of f32, as those of two devices do, and all ranks
// compute the whole batch, which is quick on the CPU. All modes have the same bits, and so have states that are divided
// among the ranks.
TEST_P(TrainedModels, AreThoseOfOneProcess) {
  const DeviceId device = GetParam().device;
  for (const Trained& trained : trainings()) {
    const std::vector<Tensor> batches = batches_of(trained);
    const Result one = train(trained, cpu(), {one_rank()}, interactive_serial, batches);
    const Result first = train(trained, device, {world()}, interactive_serial, batches);
    EXPECT_LT(most_different(first.losses, one.losses), 1e-5) << trained.name;
    EXPECT_LT(most_different(first.parameters, one.parameters), 1e-5) << trained.name;
    for (const bool in_shards : {false, true}) {
      for (const Mode mode : modes_of(trained, in_shards)) {
        const Result other = train(trained, device, {world(), in_shards}, mode, batches);
        const std::string what =
            trained.name + ", " + std::string(to_string(mode)) + (in_shards ? ", in shards" : ", averaged");
        EXPECT_EQ(other.losses, first.losses) << what;
        EXPECT_EQ(other.parameters, first.parameters) << what;
      }
    }
  }
}

}  // namespace models_test
}  // namespace graphsink::testing
