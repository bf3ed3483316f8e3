// Trains a language model on any text, evaluates it on a held-out part, and lets it continue the text. Training,
// evaluation and continuation are three programs on the same Variables. The continuation is a loop in one launch.
#include <algorithm>
#include <optional>

#include "samples/cli.h"
#include "samples/models/data.h"
#include "samples/models/generate.h"
#include "samples/models/source_dir.h"
#include "samples/models/text_model.h"

namespace gs = graphsink;
namespace cli = graphsink::cli;
namespace models = graphsink::models;

namespace {

struct Options {
  std::string file = std::string(gs::source_dir()) + "/LICENSE";
  std::string model = "charmlp";
  std::string device = "auto";
  std::string mode = "sink";
  std::int64_t steps = 3000;
  std::int64_t steps_per_launch = 20;
  std::int64_t evaluate_every = 1000;
  std::int64_t evaluate_on = 8192;
  std::int64_t decay_steps = -1;
  double dropout = 0;
  std::uint64_t seed = 1;
  std::string save, resume;
};

// Saves a checkpoint from which another run can continue with the same bits. This works because the data of a step
// depend only on its number.
void save(const Options& options, gs::Program& program) {
  gs::Checkpoint checkpoint = gs::snapshot(program);
  checkpoint.metadata["model"] = options.model;
  checkpoint.metadata["decay_steps"] = std::to_string(options.decay_steps);
  checkpoint.metadata["seed"] = std::to_string(options.seed);
  gs::write_checkpoint(options.save, checkpoint);
  std::printf("saved %s at step %ld\n", options.save.c_str(), long{program.steps()});
}

// Restores the checkpoint and returns the step at which to continue.
std::int64_t resume(const Options& options, const gs::Checkpoint& checkpoint, gs::Program& program) {
  gs::restore(program, checkpoint);
  std::int64_t step = program.steps();
  std::printf("resumed %s at step %ld\n", options.resume.c_str(), long{step});
  return step;
}

// Reads from the checkpoint the options that must be the same in a resumed run.
std::optional<gs::Checkpoint> open_checkpoint(Options& options) {
  if (options.resume.empty()) return std::nullopt;
  gs::Checkpoint checkpoint = gs::read_checkpoint(options.resume);
  auto name = checkpoint.metadata.find("model");
  if (name == checkpoint.metadata.end() || name->second != options.model) {
    throw gs::Error(options.resume, gs::Where(),
                    "metadata \"model\": expected " + options.model + ", seen " +
                        (name == checkpoint.metadata.end() ? "none" : name->second),
                    "give --model as the checkpoint has it, or another checkpoint");
  }
  std::int64_t seed = checkpoint.number("seed");
  if (seed > cli::kMostSeed)
    throw gs::Error(options.resume, gs::Where(), "metadata \"seed\": " + std::to_string(seed) + " is 2^32 or more",
                    "give a checkpoint that this program wrote");
  options.seed = static_cast<std::uint64_t>(seed);
  options.decay_steps = checkpoint.number("decay_steps");
  return checkpoint;
}

int train(Options options) {
  gs::DeviceId device = cli::device_of(options.device);
  gs::Mode mode = cli::mode_of(options.mode);
  if (!options.save.empty()) gs::require_writable(options.save);
  if (options.decay_steps < 0) options.decay_steps = options.steps;
  std::optional<gs::Checkpoint> checkpoint = open_checkpoint(options);
  models::TextData data = models::find_text("", options.file);
  auto vocabulary = static_cast<std::int64_t>(data.text->vocabulary.size());
  models::TextModel text_model = models::text_model(options.model, vocabulary, options.seed);
  models::TextTraining training = models::training_of(text_model);
  training.dropout = options.dropout;
  training.decay_steps = options.decay_steps;
  training.seed = options.seed;
  models::Model model = models::train(text_model, data.text, training);
  auto seed = static_cast<std::uint32_t>(options.seed);
  gs::Program program = gs::compile(model.graph, {.target = device, .seed = seed});
  models::Evaluation evaluation(text_model, data.text, device, options.evaluate_on);
  std::cout << program.explain() << std::flush;
  std::printf("training on %s (%zu characters, %zu different), %s, %s\n", data.source.name.c_str(),
              data.text->tokens.size(), data.text->vocabulary.size(), options.mode.c_str(), to_string(device).c_str());

  std::int64_t step = checkpoint ? resume(options, *checkpoint, program) : 0;
  cli::Progress progress(options.steps, step);
  while (step < options.steps) {
    std::int64_t next_evaluation = (step / options.evaluate_every + 1) * options.evaluate_every;
    std::int64_t count = std::min({options.steps_per_launch, options.steps - step, next_evaluation - step});
    models::feed(program, model, step, count);
    program.run(mode, {.steps = count});
    step += count;
    progress.show(step, program.records("loss").back());
    if (step == next_evaluation || step == options.steps) {
      std::printf("held out at step %ld: %.4f nats a character\n", long{step}, evaluation.loss());
      if (!options.save.empty()) save(options, program);
    }
  }
  std::string sample = models::continue_text(text_model, *data.text, 400, device, seed);
  std::printf("continuation:\n%s\n", sample.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a model of text on a file and prints how it continues the text.");
  app.add_option("file", options.file, "text file, gzipped or not")->capture_default_str();
  app.add_option("--model", options.model, "charmlp, lstm, lstm-scan or gpt")
      ->check(CLI::IsMember({"charmlp", "lstm", "lstm-scan", "gpt"}))
      ->capture_default_str();
  cli::add_training_options(app, options);
  app.add_option("--dropout", options.dropout, "share of activations dropped in training")
      ->check(cli::number(0, 0.9))
      ->capture_default_str();
  app.add_option("--decay-steps", options.decay_steps, "until when the learning rate falls; default: --steps")
      ->check(cli::whole_number(0, cli::kMostSteps));
  app.add_option("--evaluate-every", options.evaluate_every, "steps between evaluations on held-out text, and saves")
      ->check(cli::whole_number(1, cli::kMostSteps))
      ->capture_default_str();
  app.add_option("--evaluate-on", options.evaluate_on, "held-out characters to predict in an evaluation, about")
      ->check(cli::whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--save", options.save, "checkpoint to write at every evaluation and at the end");
  app.add_option("--resume", options.resume, "checkpoint to go on from: same model, same text");
  return cli::run_program(app, argc, argv, [&] { return train(options); });
}
