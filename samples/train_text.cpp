// Trains a language model on any text, evaluates it on a held-out part, and lets it continue the text. Training,
// evaluation and continuation are three programs on the same Variables. The continuation is a loop in one launch.
//
//   mpirun -n 4 train_text --ranks --model gpt     # four processes train one model, each on a quarter of every batch
//   mpirun -n 4 train_text --ranks --nccl          # each on a GPU of its own, between which NCCL moves the gradients
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "samples/cli.h"
#include "samples/models/data.h"
#include "samples/models/generate.h"
#include "samples/models/source_dir.h"
#include "samples/models/text_model.h"

#ifdef GRAPHSINK_RANKS
#include "graphsink/ranks.h"
#include "samples/rank_device.h"
#endif

namespace gs = graphsink;
namespace cli = graphsink::cli;
namespace models = graphsink::models;

namespace {

struct Options : cli::TrainingOptions {
  std::string file = std::string(gs::source_dir()) + "/LICENSE";
  std::string model = "charmlp";
  std::int64_t evaluate_every = 1000;
  std::int64_t evaluate_on = 8192;
  std::int64_t decay_steps = -1;
  double dropout = 0;
  bool is_shared = false, is_sharded = false, uses_nccl = false;
  Options() { steps = 3000; }
};

std::filesystem::path newest_file(const Options& options) {
#ifdef GRAPHSINK_RANKS
  if (options.is_sharded) {
    const std::vector<std::filesystem::path> files = gs::newest_sharded_checkpoint(options.save);
    return files.empty() ? std::filesystem::path() : files[0];
  }
#endif
  return gs::newest_checkpoint(options.save);
}

// Reads from the file that the training goes on from, if there is one, the options that must be the same.
void read_saved_options(Options& options) {
  const std::filesystem::path newest = newest_file(options);
  if (newest.empty()) return;
  const gs::Checkpoint checkpoint = gs::read_checkpoint_metadata(newest);
  auto name = checkpoint.metadata.find("model");
  if (name == checkpoint.metadata.end() || name->second != options.model) {
    throw gs::Error(newest.string(), gs::Where(),
                    "metadata \"model\": expected " + options.model + ", seen " +
                        (name == checkpoint.metadata.end() ? "none" : name->second),
                    "give --model as the checkpoint has it, or another folder");
  }
  std::int64_t seed = checkpoint.number("seed");
  if (seed > cli::kMostSeed)
    throw gs::Error(newest.string(), gs::Where(), "metadata \"seed\": " + std::to_string(seed) + " is 2^32 or more",
                    "give a folder that this program wrote");
  options.seed = static_cast<std::uint64_t>(seed);
  options.decay_steps = checkpoint.number("decay_steps");
}

#ifdef GRAPHSINK_RANKS
// The numbers of all ranks, in their order.
std::vector<std::int64_t> of_all_ranks(std::int64_t mine, const gs::Comm& comm) {
  gs::Tensor number(gs::i64, {1});
  number.as<std::int64_t>()[0] = mine;
  gs::Eager eager;
  const gs::Tensor all = gs::Eager::read(gs::all_gather(eager.tensor(number), comm));
  const auto numbers = all.as<std::int64_t>();
  return {numbers.begin(), numbers.end()};
}

// Such as "2 ranks on cuda:0, cuda:1".
std::string names_of_devices(gs::DeviceId mine, const gs::Comm& comm) {
  std::string names = std::to_string(comm.size()) + " ranks on";
  for (const std::int64_t gpu : of_all_ranks(mine.kind == gs::DeviceKind::cuda ? mine.index : -1, comm))
    names += (names.ends_with("on") ? " " : ", ") + to_string(gpu < 0 ? gs::cpu() : gs::cuda(static_cast<int>(gpu)));
  return names;
}

// Throws Error on all ranks if they do not see the same newest file of the folder, as when it is not on all machines.
void expect_same_file(const gs::Comm& comm, const std::filesystem::path& folder) {
  const std::filesystem::path newest = gs::newest_checkpoint(folder);
  const std::int64_t step = newest.empty() ? -1 : gs::read_checkpoint_metadata(newest).number("step");
  const std::vector<std::int64_t> steps = of_all_ranks(step, comm);
  for (std::size_t rank = 1; rank < steps.size(); ++rank)
    if (steps[rank] != steps[0])
      throw gs::Error("train_text", gs::Where(),
                      "rank 0 and rank " + std::to_string(rank) + " see different files in " + folder.string(),
                      "give --save a folder that all machines share");
}

// All ranks train one model, each on its part of every batch. Rank 0 prints, and writes the files, but for states that
// are divided among the ranks, of which each writes its own.
gs::OrderOptions share(const gs::Comm& comm, bool is_sharded, models::TextTraining& training,
                       gs::TrainOptions& train_options) {
  if (training.batch % comm.size() != 0)
    throw gs::Error("train_text", gs::Where(),
                    "a batch of " + std::to_string(training.batch) + " windows cannot be divided among " +
                        std::to_string(comm.size()) + " ranks",
                    "start as many ranks as divide it");
  training.batch /= comm.size();
  training.sharing = {
      [=](const auto& options, const auto& groups, const auto& gradients) {
        return is_sharded ? gs::apply_sharded(options, groups, gradients, comm)
                          : gs::apply(options, groups, gs::average(gradients, comm));
      },
      [comm](const gs::Value& loss) { return gs::all_reduce(loss, comm, {.reduction = gs::Reduction::mean}); }};
  if (is_sharded) {
    train_options.save.in_background = false;  // all ranks have a file of each step then
  } else {
    expect_same_file(comm, train_options.save.folder);
  }
  if (comm.size() > 1) train_options.ends_on_interrupt = false;  // ranks that end at different steps wait for others
  if (comm.rank() > 0) {
    train_options.progress = nullptr;
    train_options.log_file.clear();
    train_options.save.writes = is_sharded;
  }
  return {.rank = comm.rank(), .world = comm.size()};
}
#endif

int train(Options options) {
  gs::DeviceId device = cli::device_of(options.device);
  std::string place = to_string(device);
  gs::TrainOptions train_options = cli::train_options(options);
  if (options.decay_steps < 0) options.decay_steps = options.steps;
  if (!options.save.empty()) read_saved_options(options);
  models::TextData data = models::find_text("", options.file);
  auto vocabulary = static_cast<std::int64_t>(data.text->vocabulary.size());
  models::TextModel text_model = models::text_model(options.model, vocabulary, options.seed);
  models::TextTraining training = models::training_of(text_model);
  training.dropout = options.dropout;
  training.decay_steps = options.decay_steps;
  training.seed = options.seed;
  gs::OrderOptions order{};
#ifdef GRAPHSINK_RANKS
  std::optional<gs::Comm> comm;
  if (options.is_shared) {
    comm = options.uses_nccl ? gs::nccl_world() : gs::world();
    device = cli::device_of_rank(options.device, *comm);
    place = names_of_devices(device, *comm);
    order = share(*comm, options.is_sharded, training, train_options);
  }
#endif
  const bool is_first = order.rank == 0;
  order.batch = training.batch;
  order.seed = options.seed;
  const gs::RandomPart part(order.rank);  // each rank has masks of its own for dropout
  models::Model model = models::train(text_model, data.text, training);
  auto seed = static_cast<std::uint32_t>(options.seed);
  gs::Program program = gs::compile(model.graph, {.target = device, .seed = seed});
#ifdef GRAPHSINK_RANKS
  if (options.is_sharded && !options.save.empty())
    train_options.save.folder = gs::shard_folder(options.save, *comm, program.variables());
#endif
  models::Evaluation evaluation(text_model, data.text, device, options.evaluate_on);
  if (is_first) std::cout << program.explain() << std::flush;
  if (is_first)
    std::printf("training on %s (%zu characters, %zu different), %s, %s\n", data.source.name.c_str(),
                data.text->tokens.size(), data.text->vocabulary.size(), options.mode.c_str(), place.c_str());

  // Windows from all places of the text, in another random order in every epoch.
  const auto windows = models::training_windows(text_model, data.text);
  gs::Loader loader(program, windows, gs::sample_order(windows->size(), order),
                    {{"x", model.feeds[0].value}, {"t", model.feeds[1].value}}, {.workers = options.reading_threads()});
  train_options.evaluate = [&] { return gs::Metrics{{"nats a character", evaluation.loss()}}; };
  train_options.evaluate_every = options.evaluate_every;
  train_options.save.metadata = {{"model", options.model},
                                 {"decay_steps", std::to_string(options.decay_steps)},
                                 {"seed", std::to_string(options.seed)}};
  gs::train(program, loader, train_options);
  if (!is_first) return 0;
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
  app.add_option("--evaluate-every", options.evaluate_every, "steps between evaluations on held-out text")
      ->check(cli::whole_number(1, cli::kMostSteps))
      ->capture_default_str();
  app.add_option("--evaluate-on", options.evaluate_on, "held-out characters to predict in an evaluation, about")
      ->check(cli::whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
#ifdef GRAPHSINK_RANKS
  app.add_flag("--ranks", options.is_shared,
               "train one model with all processes that were started with this one, by mpirun, torchrun or srun");
  app.add_flag("--nccl", options.uses_nccl, "with --ranks: each process has a GPU, and NCCL moves the gradients")
      ->needs("--ranks")
      ->excludes("--device");
  app.add_flag("--sharded", options.is_sharded, "with --ranks: divide the state of the optimizer among the processes")
      ->needs("--ranks");
#endif
  const int code = cli::run_program(app, argc, argv, [&] { return train(options); });
  return options.is_shared ? cli::end_of_rank(code) : code;
}
