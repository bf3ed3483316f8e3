// train(): the loop around a program that is trained: launches of many steps, evaluations, checkpoints, metrics, stops.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graphsink/data_loader.h"
#include "graphsink/error.h"
#include "graphsink/log.h"
#include "graphsink/mode.h"
#include "graphsink/program.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Numbers with names, such as what an evaluation found: {"accuracy", 0.97}.
using Metrics = std::map<std::string, double, std::less<>>;

// How the values that the steps of an evaluation record become one number.
struct Metric {
  // How values become one number.
  enum class Kind : std::uint8_t {
    mean,        // a mean loss, or, of the shares that are right, an accuracy
    perplexity,  // exp() of the mean
    sum,
  };
  std::string record{};    // name of the record (Graph::record()): a scalar
  Kind kind = Kind::mean;  // way in which they become one
  // The record of a scalar by which each value counts, for means over batches of different sizes or with padding: the
  // number of their samples. Empty: all count alike.
  std::string weight{};
  std::string name{};  // in what evaluate() returns; empty: that of the record
};

// Runs a program for one epoch of its loader, from the first batch on, and returns the metrics of its records. They are
// computed in double, in the order of the steps, so that they do not depend on the steps of a launch. The program may
// share Variables with one that is trained. Other threads may call neither the program nor the loader meanwhile. Throws
// Error for a record that is no scalar, for two metrics of one name, and what Loader::next() and Program::records()
// throw.
Metrics evaluate(Program& program, Loader& loader, std::span<const Metric> metrics, Mode mode = sink,
                 Where where = Where::current());

// Files from which a training goes on. Each holds all Variables of the program, and in its metadata the number of the
// step ("step"), where the loader is ("loader.epoch", "loader.batch"), and what was evaluated at that step
// ("metric.<name>").
struct SaveOptions {
  // Where files "step-000000001200.safetensors" are written; it is made if it is not there. Empty: nothing is saved. A
  // relative one is that of the folder in which the process is when train() begins. Meanwhile a file ".train.lock" in
  // it is locked (flock): a second training that writes there throws Error, in this process or another, because each
  // would go on from the other's files and remove them. The lock goes with the process, however that ends, but not
  // before the children of fork() that it leaves behind. On a file system without locks a training warns, and goes on.
  std::filesystem::path folder{};
  std::int64_t every = 0;  // steps from one to the next; 0: at the end only
  // Which files stay, when another is there: the newest ones, at least one, and those with the best value of a metric
  // of the evaluation at that step.
  int keep_newest = 3;
  int keep_best = 0;             // `every` must be a multiple of TrainOptions::evaluate_every then, or 0
  std::string best{};            // name of that metric, for keep_best
  bool best_is_largest = false;  // true for an accuracy, false for a loss
  // A file that would be larger is the index of several, see write_checkpoint(). 0: none is.
  std::size_t most_bytes_per_file = std::size_t{2} << 30;
  // Goes on from the newest file of the folder, if there is one.
  bool resumes = true;
  // If false, this process reads the files of the folder, and another one writes them: of the ranks of a training
  // (ranks.h) all go on from the same file, and one writes.
  bool writes = true;
  // The device copies the Variables between two launches, which takes memory for them a second time, and a thread
  // writes the file meanwhile. If the file before is still being written then, this one is left out, which is logged
  // and counted, unless it is one of the best. If false, training waits until the file is there. The last file is
  // always waited for.
  bool in_background = true;
  // Entries of your own, for each file: names other than "step" and "total_size", and that do not begin with loader,
  // metric, patience or train and a dot.
  std::map<std::string, std::string, std::less<>> metadata{};
};

// The newest of these files in a folder, as its name says; empty if there is none or no such folder. The file itself is
// not read.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

// Ends a training whose evaluations no longer become better.
struct Patience {
  std::string metric{};          // a metric of the evaluation
  int evaluations = 0;           // the number in a row that are no better than the best before; 0: no matter
  bool largest_is_best = false;  // true for an accuracy, false for a loss
};

// A function that is called between two launches at each multiple of a number of steps: to write a rate, or to look at
// a Variable. If it throws, the training ends, and one that goes on from its file begins with all that was to be done
// at that step. Without a file it is left out.
struct StepAction {
  std::int64_t every = 0;                         // number of steps from one call to the next, at least 1
  std::function<void(std::int64_t steps)> act{};  // gets the number of steps that were committed
};

// A step that was committed, and what it recorded.
struct StepValues {
  std::int64_t step = 0;           // its number, from 0
  std::span<const double> values;  // values of TrainOptions::records, in their order; valid during the call
};

// Options of train().
struct TrainOptions {
  // The training ends when the program has committed so many steps, or the loader is behind so many epochs, whichever
  // comes first. Both count from the very beginning, also for a training that goes on from a file. 0: no matter.
  std::int64_t steps = 0;
  std::int64_t epochs = 0;  // see `steps`
  Mode mode = sink;         // mode of Program::run()
  // Steps of a launch, or fewer where the values of `records` have no room for so many. 0: the first launches measure
  // how many make a step fast, as far as a launch takes at most `longest_launch`. No result depends on it: evaluations,
  // actions and files come at their steps, where launches end. Several ranks that exchange values launch alike, so that
  // should_stop and on_step, which are called between launches, may wait for the other ranks: there 0 means 16.
  std::int64_t steps_per_launch = 0;
  std::chrono::milliseconds longest_launch{100};  // for steps_per_launch = 0; above 0

  // Records of the program that are scalars, each once: what on_step gets, and what `log` and the progress show.
  std::vector<std::string> records{};
  // With `records` only. Called for each step in order, once it was committed, by the thread that trains; later steps
  // may be running. A call on the program in it may wait for them, and throw what has failed in them: let it pass. If
  // it throws, the steps behind it that were committed already are part of the state, and it is not called for them.
  std::function<void(const StepValues&)> on_step{};
  std::vector<StepAction> actions{};  // called in this order, after the evaluation of their step

  // Called at each multiple of evaluate_every steps and at the end; 0: at the end only. See evaluate().
  std::function<Metrics()> evaluate{};
  std::int64_t evaluate_every = 0;  // see `evaluate`
  Patience patience{};              // by default evaluations end nothing

  SaveOptions save{};  // by default nothing is saved
  // A file to which a line of JSON is appended for each step of which the number is a multiple of log_every:
  // {"step":10,"loss":0.5}, and for each evaluation: {"steps":100,"evaluation":{"accuracy":0.9}}. Empty: none. A
  // training that goes on from a file appends, so that steps behind that file may be there twice: the last ones count.
  // Numbers that JSON does not have are the strings "nan", "inf" and "-inf". Lines come some at once, and whole: what
  // others read ends with a line, unless the disk is full. If a kill has left the last line without its end, the next
  // training removes that line. One training at a time writes to a file: a second one, such as that of another rank,
  // throws Error.
  std::filesystem::path log_file{};
  std::int64_t log_every = 1;  // number of steps from one line to the next, at least 1
  // Where the progress is shown, on a terminal as a line that changes, otherwise as a line for each tenth of the way,
  // and for each evaluation; null: nowhere.
  std::FILE* progress = stdout;

  // Asked between launches. If it returns true, the training ends there.
  std::function<bool()> should_stop{};
  // While nobody else handles SIGINT (Ctrl-C), the first one ends the training behind the launches that were given to
  // the device, at most eight, and the second one the process.
  bool ends_on_interrupt = true;
  LogFunction log{};  // receives warnings; empty: spdlog's default logger
};

// Cause of the end of a training: the option, or the event, that came first.
enum class TrainEnd : std::uint8_t {
  steps,        // TrainOptions::steps
  epochs,       // TrainOptions::epochs
  stopped,      // Graph::stop_when()
  patience,     // Patience
  should_stop,  // TrainOptions::should_stop
  interrupted,  // SIGINT
};
// "interrupted".
std::string to_string(TrainEnd end);

// Result of train().
struct TrainResult {
  TrainEnd end = TrainEnd::steps;     // cause of the end
  std::string why{};                  // in words
  std::int64_t steps = 0;             // that the program has committed, from the very beginning
  std::int64_t first = 0;             // that it had when this training began: those of the file
  std::int64_t launches = 0;          // launches of this training
  std::int64_t steps_per_launch = 0;  // given, or found by measurement
  Metrics evaluation{};               // the last one
  std::filesystem::path saved{};      // absolute path of the last file; empty: there is none
  std::int64_t saves = 0;             // files that were written
  std::int64_t skipped_saves = 0;     // files that were left out, because the one before was still being written
};

// Trains a program with the batches of a loader:
//
//   gs::Loader loader(program, source, order, {{"image", x}, {"label", t}}, {.workers = 4});
//   gs::TrainOptions options{.steps = 10'000, .records = {"loss"}};
//   options.save = {.folder = "run1", .every = 1000};
//   gs::TrainResult result = gs::train(program, loader, options);
//
// The same steps see the same batches whatever the options say, so that a training that goes on from a file ends with
// the bits of one that was never interrupted. It is built on public calls: next(), run(), records(), snapshot().
//
// Values of TrainOptions::records that steps before have left unread are dropped, by evaluate() too.
//
// Used by the thread that uses the program: until it returns, calls of the program and of the loader on other threads
// throw Error. Functions of the options may make them, but give no steps to the program. Throws Error for options that
// do not fit; if a step fails, for example because a number is not finite: with the loader at the batch of that step;
// and what the loader, the functions of the options and the last write of a file throw. Before, all that was committed
// is saved, if it can be. A file that cannot be written earlier is logged, and the training goes on.
TrainResult train(Program& program, Loader& loader, const TrainOptions& options = {}, Where where = Where::current());

}  // namespace graphsink
