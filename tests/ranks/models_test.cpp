// The models of the samples, trained by ranks, each on its rows of every batch, have the parameters that one process
// has which trains on the whole batches.
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
#include "samples/models/text_model.h"

namespace graphsink::testing {
namespace models_test {

constexpr std::int64_t kRows = 2, kSteps = 16;  // rows of a rank in each step; steps of one run

// Makes a training of batches of so many rows, with the same initial values and data wherever it is made.
using MakeModel = std::function<models::Model(std::int64_t rows, const models::Sharing& sharing)>;

struct Trained {
  std::string name;
  MakeModel make;
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

std::vector<Trained> trainings() {
  const models::LstmSizes lstm{.layers = 2, .hidden = 8, .context = 5};
  models::LstmSizes loop = lstm;
  loop.as_loop = true;
  const models::GptSizes gpt{.layers = 2, .width = 8, .heads = 2, .context = 5};
  return {{"lstm", training_of([=] { return models::lstm(7, lstm, 1); })},
          {"lstm_scan", training_of([=] { return models::lstm(7, loop, 1); })},
          {"gpt", training_of([=] { return models::gpt(7, gpt, 1); }, 0.2)}};
}

// Plain steps along the gradient: what an error of the last digit of a gradient changes is as small. Adamw divides by
// the size of gradients, and makes a step of full size of one that should be zero.
models::Sharing sharing_of(const Comm& comm) {
  return {[=](const AdamwOptions&, const std::vector<ParameterGroup>& groups, const std::vector<Value>& gradients) {
            return apply(SgdOptions{.lr = 0.1}, groups, average(gradients, comm));
          },
          [=](const Value& loss) { return all_reduce(loss, comm, {.reduction = Reduction::mean}); }};
}

// The rows of one rank: those of `part` among `parts` of the batches [steps, rows, context].
Tensor rows_of(const Tensor& batches, int part, int parts) {
  Eager eager;
  const Shape& shape = batches.shape();
  const std::int64_t rows = shape[1] / parts;
  return Eager::read(slice(eager.tensor(batches), {0, part * rows, 0}, {shape[0], (part + 1) * rows, shape[2]}));
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

Result train(const Trained& trained, const DeviceId& device, const Comm& comm, std::int64_t rows, Mode mode) {
  const RandomPart part(comm.rank());
  const models::Model model = trained.make(rows, sharing_of(comm));
  const models::Model whole = trained.make(rows * comm.size(), sharing_of(one_rank()));
  Program program = compile(model.graph, {.target = device, .seed = 4});
  for (std::size_t i = 0; i < model.feeds.size(); ++i)
    program.write(model.feeds[i].value, rows_of(whole.feeds[i].slices(0, kSteps), comm.rank(), comm.size()));
  program.run(mode, {.steps = kSteps});
  return {program.records<double>("loss"), elements_of(model.variables)};
}

double most_different(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class TrainedModels : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Devices, TrainedModels, ::testing::ValuesIn(rank_ways()), rank_way_name);

// Sums over a whole batch differ from sums of parts in the last bits of f32; all modes have the same ones.
TEST_P(TrainedModels, AreThoseOfOneProcess) {
  const DeviceId device = GetParam().device;
  for (const Trained& trained : trainings()) {
    const Result one = train(trained, device, one_rank(), world().size() * kRows, interactive_serial);
    const std::vector<double> initial = elements_of(trained.make(kRows, sharing_of(one_rank())).variables);
    ASSERT_GT(most_different(one.parameters, initial), 1e-2) << trained.name;
    const Result first = train(trained, device, world(), kRows, interactive_serial);
    EXPECT_LT(most_different(first.losses, one.losses), 1e-5) << trained.name;
    EXPECT_LT(most_different(first.parameters, one.parameters), 1e-5) << trained.name;
    for (const Mode mode : {interactive_parallel, sink}) {
      const Result other = train(trained, device, world(), kRows, mode);
      EXPECT_EQ(other.losses, first.losses) << trained.name << ", " << to_string(mode);
      EXPECT_EQ(other.parameters, first.parameters) << trained.name << ", " << to_string(mode);
    }
  }
}

}  // namespace models_test
}  // namespace graphsink::testing
