// train() with the models of the samples: the same losses and the same bits for all steps per launch and all workers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "graphsink/train.h"
#include "program_fixture.h"
#include "samples/models/workloads.h"

namespace graphsink::train_models_test {
namespace {

constexpr std::int64_t kSteps = 20;

// The data of a model for a Loader: sample i * batch + k is row k of its step i. Every few samples a worker rests if
// they are to be slow, so that samples are made in another order.
std::shared_ptr<const Source> source_of(const models::Model& model, std::int64_t batch, bool is_slow) {
  std::vector<Field> fields;
  for (std::size_t i = 0; i < model.feeds.size(); ++i) {
    const TensorType type = model.feeds[i].value.type();
    fields.push_back({std::to_string(i), {type.dtype, Shape(type.shape.dims().subspan(1))}});
  }
  auto made = std::make_shared<std::atomic<unsigned>>(0);
  return function_source(kSteps * batch, fields, [=, feeds = model.feeds](std::int64_t i, SampleMemory to) {
    if (is_slow && made->fetch_add(1) * 2654435761u % 7 == 0) std::this_thread::yield();
    for (std::size_t f = 0; f < feeds.size(); ++f) {
      const Tensor slice = feeds[f].slices(i / batch, 1);
      std::memcpy(to[f].data(), slice.data() + static_cast<std::size_t>(i % batch) * to[f].size(), to[f].size());
    }
  });
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<std::byte>> state;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train(const char* name, DeviceId device, std::int64_t steps_per_launch, int workers) {
  models::WorkloadOptions sizes;
  sizes.is_test_size = true;
  const models::Model model = models::Workloads(sizes).make(name);
  Program program = compile(model.graph, {.target = device});
  const std::int64_t batch = model.feeds[0].value.type().shape[0];
  std::vector<std::pair<std::string, Value>> feeds;
  for (std::size_t i = 0; i < model.feeds.size(); ++i) feeds.emplace_back(std::to_string(i), model.feeds[i].value);
  Loader loader(program, source_of(model, batch, workers > 2),
                sample_order(kSteps * batch, {.batch = batch, .seed = 4}), feeds,
                {.workers = workers, .when_starved = workers > 2 ? WhenStarved::shrink : WhenStarved::wait});
  Trained trained;
  TrainOptions options{.steps = kSteps, .steps_per_launch = steps_per_launch, .records = {"loss"}};
  options.progress = nullptr;
  options.on_step = [&](const StepValues& step) { trained.losses.push_back(step.values[0]); };
  graphsink::train(program, loader, options);
  for (const Variable& variable : program.variables()) {
    const Tensor tensor = variable.read();
    trained.state[variable.name()].assign(tensor.data(), tensor.data() + tensor.bytes());
  }
  return trained;
}

class TrainModels : public ::testing::TestWithParam<std::tuple<const char*, DeviceId>> {};

TEST_P(TrainModels, DoNotDependOnStepsPerLaunchOrWorkers) {
  const auto [name, device] = GetParam();
  const Trained expected = train(name, device, 1, 0);
  EXPECT_EQ(expected.losses.size(), static_cast<std::size_t>(kSteps));
  for (auto [steps, workers] : {std::pair{4, 1}, {16, 2}, {64, 4}, {0, 4}}) {
    EXPECT_TRUE(train(name, device, steps, workers) == expected) << steps << " steps, " << workers << " workers";
  }
}

INSTANTIATE_TEST_SUITE_P(
    , TrainModels, ::testing::Combine(::testing::Values("mlp", "lstm", "gpt"), ::testing::ValuesIn(testing::devices())),
    [](const auto& info) {
      const DeviceId device = std::get<1>(info.param);
      return std::string(std::get<0>(info.param)) + "_" + (device.kind == DeviceKind::cpu ? "cpu" : "cuda");
    });

}  // namespace
}  // namespace graphsink::train_models_test
