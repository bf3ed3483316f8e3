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

struct Options : cli::TrainingOptions {
  std::string data;
  bool is_resident = false;
};

// The last digits, which the network does not see in training, and a program on the same Variables that finds out which
// share of them it classifies correctly.
class Test {
 public:
  Test(const models::Mlp& mlp, const gs::Digits& digits, gs::DeviceId device)
      : x_(graph_.feed("image", gs::f32, {kTestBatch, digits.images.shape()[1]})),
        label_(graph_.feed("label", gs::i32, {kTestBatch})),
        program_(compile(mlp, device)),
        loader_(program_, last(digits), gs::sample_order(kTests, {.batch = kTestBatch, .is_shuffled = false}),
                {{"image", x_}, {"label", label_}}, {.steps_per_launch = kTests / kTestBatch}) {}

  gs::Metrics run() {
    const gs::Metric metrics[] = {{.record = "accuracy"}};
    return gs::evaluate(program_, loader_, metrics);
  }

 private:
  gs::Program compile(const models::Mlp& mlp, gs::DeviceId device) {
    graph_.record("accuracy", gs::accuracy(mlp.logits(x_), label_));
    return gs::compile(graph_, {.target = device});
  }
  static std::shared_ptr<const gs::Source> last(const gs::Digits& digits) {
    const std::int64_t pixels = digits.images.shape()[1];
    return gs::tensor_source(
        {{"image", {{kTests, pixels}, digits.images.as<float>().last(static_cast<std::size_t>(kTests * pixels))}},
         {"label", {{kTests}, digits.labels.as<std::int32_t>().last(kTests)}}});
  }

  gs::Graph graph_;
  gs::Value x_, label_;
  gs::Program program_;
  gs::Loader loader_;
};

int train(const Options& options) {
  gs::DeviceId device = cli::device_of(options.device);
  gs::TrainOptions train_options = cli::train_options(options);
  models::DigitData data = models::find_digits(options.data);
  const std::int64_t examples = std::min<std::int64_t>(data.digits->labels.shape().size() - kTests, 8000);
  if (examples < kBatch) throw gs::Error(data.source.name, {}, "fewer than 2,032 digits", "give a larger file");
  if (!data.is_real) {
    std::puts(
        "NOTICE: no MNIST files, training on made-up digits; put t10k-images-idx3-ubyte.gz and\n"
        "t10k-labels-idx1-ubyte.gz into a directory and name it with --data");
  }
  models::Mlp mlp(data.digits->images.shape()[1], 256, kClasses, options.seed);
  models::Model model = models::train_mlp(
      mlp, data.digits,
      {.batch = kBatch, .examples = examples, .seed = options.seed, .is_resident = options.is_resident});
  gs::Program program = gs::compile(model.graph, {.target = device});
  Test test(mlp, *data.digits, device);
  std::cout << program.explain() << std::flush;
  std::printf("training on %ld of %s, %s, %s\n", long{examples}, data.source.name.c_str(), options.mode.c_str(),
              to_string(device).c_str());

  // The first digits, in another random order in every epoch. The last ones are for the test.
  auto source = gs::index_source(data.digits->labels.shape()[0]);
  std::vector<std::pair<std::string, gs::Value>> feeds{{"index", model.feeds[0].value}};
  if (!options.is_resident) {
    source = gs::tensor_source({{"image", data.digits->images}, {"label", data.digits->labels}});
    feeds = {{"image", model.feeds[0].value}, {"label", model.feeds[1].value}};
  }
  gs::Loader loader(program, source, gs::sample_order(examples, {.batch = kBatch, .seed = options.seed}), feeds,
                    {.workers = options.reading_threads()});
  train_options.evaluate = [&] { return test.run(); };
  const gs::TrainResult result = gs::train(program, loader, train_options);
  std::printf("test accuracy: %.1f %%\n", 100.0 * result.evaluation.at("accuracy"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small network on handwritten digits (MNIST) and prints its accuracy on others.");
  app.add_option("--data", options.data, "directory of the IDX files; else $GRAPHSINK_DATA, else ../shared/data");
  cli::add_training_options(app, options);
  app.add_flag("--resident", options.is_resident, "keep the digits on the device, and feed only their numbers");
  return cli::run_program(app, argc, argv, [&] { return train(options); });
}
