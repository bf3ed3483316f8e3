// Feeding a program and training it: docs/how-to/data.md, and what a training keeps: docs/how-to/checkpoints.md.
#include <graphsink/graphsink.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>
namespace gs = graphsink;

struct Model {
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784}), t = g.feed("t", gs::i32, {32}), loss;
  gs::Program program;
};

// The same model each time, from the same numbers.
static Model made() {
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784}), t = g.feed("t", gs::i32, {32});
  gs::Variable w("w", gs::Tensor::kaiming({784, 10}, 1));
  gs::Value logits = matmul(x, w), loss = cross_entropy(logits, t);
  gs::sgd(loss, {w}, {.lr = 0.05});
  g.record("loss", loss);
  return {g, x, t, loss, gs::compile(g)};
}

static std::vector<float> by_hand(const gs::Tensor& images, const gs::Tensor& labels) {
  auto [g, x, t, loss, program] = made();
  // [slices]
  program.write(x, images.as<float>());         // [320, 784] elements: 10 slices of [32, 784]
  program.write(t, labels.as<std::int32_t>());  // 10 slices of [32]
  program.run(gs::sink, {.steps = 10});         // step k reads slice k
  // [slices]
  return program.records("loss");
}

static std::vector<float> loaded(const gs::Tensor& images, const gs::Tensor& labels) {
  auto [g, x, t, loss, program] = made();
  // [loader]
  const auto source = gs::tensor_source({{"image", images}, {"label", labels}});
  const gs::SampleOrder order = gs::sample_order(source->size(), {.batch = 32, .seed = 1});
  gs::Loader loader(program, source, order, {{"image", x}, {"label", t}}, {.steps_per_launch = 4, .workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch)
    while (const std::int64_t steps = loader.next()) program.run(gs::sink, {.steps = steps});
  std::cout << loader.position().epoch << " epochs; " << loader.report().samples << " samples\n";
  // [loader]
  return program.records("loss");
}

static bool prepared(const gs::Tensor& images, const gs::Tensor& labels) {
  auto [g, x, t, loss, program] = made();
  // [prepare]
  // Called by several threads at once: it depends on its arguments alone.
  auto prepare = [](const gs::SampleKey& key, gs::SampleMemory from, gs::SampleMemory to) {
    std::ranges::copy(from[0], to[0].begin());
    gs::random_flip(to[0], {gs::f32, {1, 28, 28}}, key);  // as the key says: in each epoch in another way
    std::ranges::copy(from[1], to[1].begin());
  };
  gs::Loader loader(program, gs::tensor_source({{"image", images}, {"label", labels}}),
                    gs::sample_order(320, {.batch = 32}), {{"x", x}, {"t", t}}, {.prepare = prepare});
  // [prepare]
  return loader.next() == 1;
}

static bool staged() {
  auto [g, x, t, loss, program] = made();
  program.write(t, std::vector<std::int32_t>(4 * 32));
  // [stage]
  gs::StagedSlices slices = program.stage(x, 4);  // memory from which the device reads
  for (std::int64_t step = 0; step < slices.size(); ++step)
    std::ranges::fill(slices.slice<float>(step), static_cast<float>(step));  // from as many threads as you like
  program.write(std::move(slices));                                          // copies nothing on the host
  program.run(gs::sink, {.steps = 4});
  // [stage]
  return program.records("loss").size() == 4;
}

static bool trained(const gs::Tensor& images, const gs::Tensor& labels) {
  std::vector<float> whole, parts;
  const auto source = gs::tensor_source({{"image", images}, {"label", labels}});
  for (const bool is_interrupted : {false, true}) {
    const char* folder = is_interrupted ? "run2" : "run1";
    for (int part = 0; part < (is_interrupted ? 2 : 1); ++part) {
      auto [g, x, t, loss, program] = made();
      gs::Loader loader(program, source, gs::sample_order(320, {.batch = 32, .seed = 1}), {{"image", x}, {"label", t}});
      const std::int64_t steps = is_interrupted && part == 0 ? 17 : 40;
      // [train]
      gs::TrainOptions options{.steps = steps, .records = {"loss"}};
      options.save = {.folder = folder, .every = 10};
      const gs::TrainResult result = gs::train(program, loader, options);  // goes on from the newest file
      std::cout << gs::to_string(result.end) << ": steps " << result.first << " to " << result.steps << ", last file "
                << result.saved.filename().string() << "\n";
      // [train]
      const gs::Tensor w = program.variables().front().read();
      (is_interrupted ? parts : whole).assign(w.as<float>().begin(), w.as<float>().end());
    }
  }
  return whole == parts;  // bit for bit
}

static bool evaluated(const gs::Tensor& images, const gs::Tensor& labels) {
  auto [g, x, t, loss, program] = made();
  const gs::Variable w = program.variables().front();
  const auto source = gs::tensor_source({{"image", images}, {"label", labels}});
  gs::Loader loader(program, source, gs::sample_order(320, {.batch = 32, .seed = 1}), {{"image", x}, {"label", t}});
  // [evaluate]
  gs::Graph test;  // with the same Variable
  gs::Value test_x = test.feed("x", gs::f32, {32, 784}), test_t = test.feed("t", gs::i32, {32});
  test.record("accuracy", accuracy(matmul(test_x, w), test_t));
  gs::Program test_program = gs::compile(test);
  gs::Loader test_loader(test_program, source, gs::sample_order(320, {.batch = 32, .is_shuffled = false}),
                         {{"image", test_x}, {"label", test_t}}, {.steps_per_launch = 10});
  const std::vector<gs::Metric> metrics{{.record = "accuracy"}};
  gs::TrainOptions options{.steps = 40};
  options.evaluate = [&] { return gs::evaluate(test_program, test_loader, metrics); };
  options.evaluate_every = 20;
  options.save = {.folder = "best", .every = 20, .keep_best = 1, .best = "accuracy", .best_is_largest = true};
  const gs::TrainResult result = gs::train(program, loader, options);
  std::cout << "accuracy " << result.evaluation.at("accuracy") << "\n";
  // [evaluate]
  return result.evaluation.at("accuracy") > 0.5;
}

static bool stopped(const gs::Tensor& images, const gs::Tensor& labels) {
  gs::Graph g;
  gs::Value x = g.feed("x", gs::f32, {32, 784}), t = g.feed("t", gs::i32, {32});
  gs::Variable w("w", gs::Tensor::kaiming({784, 10}, 1));
  gs::Value loss = cross_entropy(matmul(x, w), t);
  gs::sgd(loss, {w}, {.lr = 0.05});
  // [stop]
  g.stop_when(loss < 1.0);  // looked at on the device, in each step of a launch
  // [stop]
  gs::Program program = gs::compile(g);
  gs::Loader loader(program, gs::tensor_source({{"image", images}, {"label", labels}}),
                    gs::sample_order(320, {.batch = 32, .seed = 1}), {{"image", x}, {"label", t}});
  const gs::TrainResult result = gs::train(program, loader, {.steps = 1000, .steps_per_launch = 50});
  std::cout << gs::to_string(result.end) << "\n";
  return result.end == gs::TrainEnd::stopped && result.steps < 1000;
}

int main() try {
  const gs::Digits digits = gs::seeded_digits(320, 3);
  const bool is_good = by_hand(digits.images, digits.labels).size() == 10 &&
                       loaded(digits.images, digits.labels).size() == 20 && prepared(digits.images, digits.labels) &&
                       staged() && trained(digits.images, digits.labels) && evaluated(digits.images, digits.labels) &&
                       stopped(digits.images, digits.labels);
  return is_good ? 0 : 1;
} catch (const gs::Error& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
