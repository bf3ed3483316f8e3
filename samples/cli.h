// The common parts of the programs: arguments, exit codes, names of devices and modes.
#pragma once

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>
#include <system_error>

#include "base/number_text.h"
#include "graphsink/graphsink.h"

namespace graphsink::cli {

// Throws Error if some of the output was lost, because the disk is full or the pipe has no reader.
inline void require_printed() {
  errno = 0;
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error("stdout", Where(),
              "what was printed is lost" + (errno ? ": " + std::generic_category().message(errno) : ""),
              "make room where it goes, and run it again");
}

constexpr std::int64_t kMostSteps = 100000000, kMostStepsPerLaunch = 10000;
constexpr std::int64_t kMostSeed = std::numeric_limits<std::uint32_t>::max();  // the limit of CompileOptions::seed

// Accepts an integer from `low` to `high` in decimal digits. CLI11 alone would read -1 as a large number for an
// unsigned option, and 010 as 8.
inline CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  std::string range = std::to_string(low) + " to " + std::to_string(high);
  auto check = [=](const std::string& text) {
    std::int64_t value = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool is_decimal = code == std::errc() && end == text.data() + text.size() && (text[0] != '0' || text.size() == 1);
    return is_decimal && value >= low && value <= high ? ""
                                                       : "expected a whole number from " + range + ", seen " + text;
  };
  return CLI::Validator(check, range);
}

// Accepts a number from `low` to `high`, but not "nan".
inline CLI::Validator number(double low, double high) {
  std::string range = number_text(low) + " to " + number_text(high);
  auto check = [=](const std::string& text) {
    double value = 0;
    auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool is_number = code == std::errc() && end == text.data() + text.size();
    return is_number && value >= low && value <= high ? "" : "expected a number from " + range + ", seen " + text;
  };
  return CLI::Validator(check, range);
}

// Parses the arguments and calls `body`. Returns the exit code. It is 2, with a message on stderr, for wrong arguments
// and for every Error, such as that of require_printed() at the end.
template <class Body>
int run_program(CLI::App& app, int argc, char** argv, const Body& body) {
  try {
    int code = 0;
    try {
      app.parse(argc, argv);
      code = body();
    } catch (const CLI::ParseError& e) {
      code = app.exit(e) == 0 ? 0 : 2;
    }
    require_printed();
    return code;
  } catch (const Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 2;
  }
}

// "auto" means the first CUDA device if there is one, else the CPU.
inline DeviceId device_of(const std::string& name) {
  if (name == "cpu" || (name == "auto" && cuda_device_count() == 0)) return cpu();
  if (name == "auto") return cuda(0);
  bool is_cuda = name.size() >= 6 && name.size() <= 8 && name.rfind("cuda:", 0) == 0;
  if (!is_cuda || name.find_first_not_of("0123456789", 5) != std::string::npos)
    throw Error("device \"" + name + "\"", Where(), "expected auto, cpu or cuda:N", "name one of them");
  return cuda(std::stoi(name.substr(5)));
}

inline Mode mode_of(const std::string& name) {
  std::string known;
  for (Mode mode : kAllModes) {
    if (name == to_string(mode)) return mode;
    known += (known.empty() ? "" : ", ") + std::string(to_string(mode));
  }
  throw Error("mode \"" + name + "\"", Where(), "expected one of " + known, "name one of them");
}

// The options that every training program has.
struct TrainingOptions {
  std::string device = "auto";
  std::string mode = "sink";
  std::int64_t steps = 2000;
  std::int64_t steps_per_launch = 0;
  std::uint64_t seed = 1;
  std::string loader = "async";
  int workers = 1;
  std::string save;
  std::int64_t save_every = 0;
  std::string metrics;

  int reading_threads() const { return loader == "sync" ? 0 : workers; }
};
inline void add_training_options(CLI::App& app, TrainingOptions& options) {
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--mode", options.mode,
                 "interactive-serial, interactive-parallel, split-serial, split-parallel, sink, split-sink or "
                 "automatic")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "training steps")->check(whole_number(1, kMostSteps))->capture_default_str();
  app.add_option("--steps-per-launch", options.steps_per_launch,
                 "training steps in one launch; 0: found by measurement")
      ->check(whole_number(0, kMostStepsPerLaunch))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of everything random")
      ->check(whole_number(0, kMostSeed))
      ->capture_default_str();
  app.add_option("--loader", options.loader, "async: batches are prepared while launches run; sync: between launches")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  app.add_option("--workers", options.workers, "threads that prepare batches while launches run")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  app.add_option("--save", options.save, "folder for files from which the same command goes on, however it ended");
  app.add_option("--save-every", options.save_every, "steps from one such file to the next; 0: at the end only")
      ->check(whole_number(0, kMostSteps))
      ->capture_default_str();
  app.add_option("--metrics", options.metrics, "file to which a line of JSON is appended for each step and evaluation");
}

// The options of train() that those of add_training_options() set.
inline TrainOptions train_options(const TrainingOptions& options) {
  TrainOptions train{.steps = options.steps,
                     .mode = mode_of(options.mode),
                     .steps_per_launch = options.steps_per_launch,
                     .records = {"loss"}};
  train.save = {.folder = options.save, .every = options.save_every};
  train.log_file = options.metrics;
  return train;
}

// The code with which main() returns in one of several ranks. Under mpirun a rank that failed ends here, because to
// return would wait for the other ranks in MPI_Finalize(), and mpirun ends these. Elsewhere to return sends the others
// what they wait for.
inline int end_of_rank(int code) {
  if (code == 0 || std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return code;
  std::cout.flush();
  std::fflush(stdout);
  std::_Exit(code);
}

}  // namespace graphsink::cli
