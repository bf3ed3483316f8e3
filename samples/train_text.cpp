// Trains a character model on any text, and lets it continue the text.
#include <algorithm>

#include "samples/cli.h"
#include "samples/models/charmlp.h"
#include "samples/models/data.h"

namespace gs = graphsink;
namespace cli = graphsink::cli;
namespace models = graphsink::models;

namespace {

struct Options {
  std::string file = GRAPHSINK_SOURCE_DIR "/LICENSE";
  std::string device = "auto";
  std::string mode = "sink";
  std::int64_t steps = 3000;
  std::int64_t steps_per_launch = 20;
  std::uint64_t seed = 1;
};

int train(const Options& options) {
  gs::DeviceId device = cli::device_of(options.device);
  gs::Mode mode = cli::mode_of(options.mode);
  models::TextData data = models::find_text("", options.file);
  models::CharMlp charmlp(static_cast<std::int64_t>(data.text->vocabulary.size()), 16, 128, options.seed);
  models::Model model = models::train_charmlp(charmlp, data.text, {.seed = options.seed});
  gs::Program program = gs::compile(model.graph, {.target = device});
  std::cout << program.explain() << std::flush;
  std::printf("training on %s (%zu characters, %zu different), %s, %s\n", data.source.name.c_str(),
              data.text->tokens.size(), data.text->vocabulary.size(), options.mode.c_str(), to_string(device).c_str());

  cli::Progress progress(options.steps);
  for (std::int64_t step = 0; step < options.steps;) {
    std::int64_t count = std::min(options.steps_per_launch, options.steps - step);
    models::feed(program, model, step, count);
    program.run(mode, {.steps = count});
    step += count;
    progress.show(step, program.read("loss").back());
  }
  std::string sample = models::continue_text(charmlp, *data.text, 200, device, options.seed);
  std::printf("continuation:\n%s\n", sample.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a character model on a text file and prints how it continues the text.");
  app.add_option("file", options.file, "text file, gzipped or not")->capture_default_str();
  cli::add_training_options(app, options);
  return cli::run_program(app, argc, argv, [&] { return train(options); });
}
