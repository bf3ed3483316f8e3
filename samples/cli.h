// What the programs share: arguments, exit codes, names of devices and modes, and a progress line.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
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

// Adds the options that every training program has.
template <class Options>
void add_training_options(CLI::App& app, Options& options) {
  app.add_option("--device", options.device, "auto, cpu or cuda:N")->capture_default_str();
  app.add_option("--mode", options.mode,
                 "interactive-serial, interactive-parallel, split-serial, split-parallel, sink, split-sink or "
                 "automatic")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "training steps")->check(whole_number(1, kMostSteps))->capture_default_str();
  app.add_option("--steps-per-launch", options.steps_per_launch, "training steps in one launch")
      ->check(whole_number(1, kMostStepsPerLaunch))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of everything random")
      ->check(whole_number(0, kMostSeed))
      ->capture_default_str();
}

// Prints "step 500/2000  loss 1.234  5678 steps/s". On a terminal the line is rewritten in place; otherwise one line is
// printed for each tenth of the steps.
class Progress {
 public:
  // A resumed run starts at step `first`.
  explicit Progress(std::int64_t steps, std::int64_t first = 0) : steps_(steps), first_(first) {}

  void show(std::int64_t step, double loss) {
    using Seconds = std::chrono::duration<double>;
    auto now = std::chrono::steady_clock::now();
    bool is_last = step >= steps_;
    bool is_due = is_terminal_ ? now - shown_ > Seconds(0.1) : step * 10 / steps_ > tenths_;
    if (!is_last && !is_due) return;
    shown_ = now;
    tenths_ = step * 10 / steps_;
    double rate = static_cast<double>(step - first_) / Seconds(now - start_).count();
    std::printf("%sstep %ld/%ld  loss %.3f  %.0f steps/s%s", is_terminal_ ? "\r" : "", long{step}, long{steps_}, loss,
                rate, is_terminal_ && !is_last ? "   " : "\n");
    std::fflush(stdout);
  }

 private:
  std::int64_t steps_;
  std::int64_t first_;
  std::int64_t tenths_ = -1;
  bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace graphsink::cli
