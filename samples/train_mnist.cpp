// Trains a small network on 8,000 handwritten digits and tests it on 2,000 others.
#include <algorithm>

#include "samples/cli.h"
#include "samples/models/data.h"
#include "samples/models/mlp.h"

namespace gs = graphsink;
namespace cli = graphsink::cli;
namespace models = graphsink::models;

namespace {

constexpr std::int64_t kTests = 2000, kTestBatch = 500, kBatch = 32, kClasses = 10;

struct Options {
  std::string data;
  std::string device = "auto";
  std::string mode = "sink";
  std::int64_t steps = 2000;
  std::int64_t steps_per_launch = 10;
  std::uint64_t seed = 1;
  int workers = 1;
};

// Returns the share of the last kTests digits that the network classifies correctly. This is a separate program on the
// same Variables.
double test(const models::Mlp& mlp, const gs::Digits& digits, gs::DeviceId device) {
  const std::int64_t pixels = digits.images.shape()[1];
  gs::Graph g;
  gs::Value x = g.input("x", gs::f32, {kTestBatch, pixels});
  g.output("logits", mlp.logits(x));
  gs::Program program = gs::compile(g, {.target = device});
  auto images = digits.images.as<float>().last(static_cast<std::size_t>(kTests * pixels));
  auto labels = digits.labels.as<std::int32_t>().last(kTests);
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < kTests; first += kTestBatch) {
    program.write(
        x, images.subspan(static_cast<std::size_t>(first * pixels), static_cast<std::size_t>(kTestBatch * pixels)));
    program.run(gs::sink);
    gs::Tensor logits = program.output("logits");
    const float* row = logits.as<float>().data();
    for (std::int64_t i = first; i < first + kTestBatch; ++i, row += kClasses)
      right += std::max_element(row, row + kClasses) - row == labels[static_cast<std::size_t>(i)];
  }
  return static_cast<double>(right) / kTests;
}

int train(const Options& options) {
  gs::DeviceId device = cli::device_of(options.device);
  gs::Mode mode = cli::mode_of(options.mode);
  models::DigitData data = models::find_digits(options.data);
  const std::int64_t examples = std::min<std::int64_t>(data.digits->labels.shape().size() - kTests, 8000);
  if (examples < kBatch) throw gs::Error(data.source.name, {}, "fewer than 2,032 digits", "give a larger file");
  if (!data.is_real) {
    std::puts(
        "NOTICE: no MNIST files, training on made-up digits; put t10k-images-idx3-ubyte.gz and\n"
        "t10k-labels-idx1-ubyte.gz into a directory and name it with --data");
  }
  models::Mlp mlp(data.digits->images.shape()[1], 256, kClasses, options.seed);
  models::Model model =
      models::train_mlp(mlp, data.digits, {.batch = kBatch, .examples = examples, .seed = options.seed});
  gs::Program program = gs::compile(model.graph, {.target = device});
  std::cout << program.explain() << std::flush;
  std::printf("training on %ld of %s, %s, %s\n", long{examples}, data.source.name.c_str(), options.mode.c_str(),
              to_string(device).c_str());

  // The first digits, in another random order in every epoch. The last ones are for the test.
  const gs::SampleOrder order = gs::sample_order(examples, {.batch = kBatch, .seed = options.seed});
  gs::Loader loader(program, gs::tensor_source({{"image", data.digits->images}, {"label", data.digits->labels}}), order,
                    {{"image", model.feeds[0].value}, {"label", model.feeds[1].value}},
                    {.steps_per_launch = options.steps_per_launch, .workers = options.workers});
  cli::Progress progress(options.steps);
  for (std::int64_t step = 0; step < options.steps;) {
    const std::int64_t count = std::min(loader.next(), options.steps - step);
    if (count == 0) continue;  // another epoch begins
    program.run(mode, {.steps = count});
    step += count;
    progress.show(step, program.records("loss").back());
  }
  std::printf("test accuracy: %.1f %%\n", 100.0 * test(mlp, *data.digits, device));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network on handwritten digits (MNIST) and prints its accuracy on others.");
  app.add_option("--data", options.data, "directory of the IDX files; else $GRAPHSINK_DATA, else ../shared/data");
  cli::add_training_options(app, options);
  app.add_option("--workers", options.workers,
                 "threads that prepare batches while launches run; 0: the one that trains does so between launches")
      ->check(cli::whole_number(0, 256))
      ->capture_default_str();
  return cli::run_program(app, argc, argv, [&] { return train(options); });
}
