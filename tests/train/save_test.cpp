// The files of train(): a training that goes on from them ends with the same bits, whenever it was killed. The calls
// that write files are interposed: this program's own write(), fsync() and rename() come before those of the C library.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <system_error>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "program_fixture.h"
#include "temporary_directory.h"
#include "train/folder_lock.h"
#include "working_directory.h"

namespace {

// What happens to the calls that write files, on any thread.
std::atomic<int> calls_until_death = -1;  // in a child alone
std::atomic<bool> is_disk_full = false;
std::atomic<bool> has_locks = true;
std::atomic<int> refused_writes = 0;
std::mutex disk_mutex;
std::condition_variable disk_changed;
bool is_disk_blocked = false;

void set_disk_blocked(bool is_blocked) {
  {
    const std::lock_guard lock(disk_mutex);
    is_disk_blocked = is_blocked;
  }
  disk_changed.notify_all();
}

void at_call() {
  {
    std::unique_lock lock(disk_mutex);  // for as long as a test may take that fails
    (void)disk_changed.wait_for(lock, std::chrono::minutes(1), [] { return !is_disk_blocked; });
  }
  if (calls_until_death >= 0 && calls_until_death-- == 0) raise(SIGKILL);
}

}  // namespace

extern "C" {
ssize_t write(int file, const void* data, size_t size) {
  if (file > 2) {
    at_call();
    if (is_disk_full) {
      ++refused_writes;
      refused_writes.notify_all();
      return errno = ENOSPC, -1;
    }
  }
  return syscall(SYS_write, file, data, size);
}
int fsync(int file) {
  at_call();
  return static_cast<int>(syscall(SYS_fsync, file));
}
int flock(int file, int operation) noexcept {
  if (!has_locks) return errno = ENOLCK, -1;
  return static_cast<int>(syscall(SYS_flock, file, operation));
}
int rename(const char* from, const char* to) noexcept {
  at_call();
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
}

namespace graphsink::save_test {
namespace {

using testing::contains;
using testing::message_of;
using testing::OnDevice;

constexpr std::int64_t kSamples = 40, kBatch = 4, kSteps = 60;  // six epochs

// A model with a random op, whose feeds it records.
struct Fit {
  Graph g;
  Value x = g.feed("x", f32, {kBatch});
  Variable w{"w", Tensor::uniform({64}, 1)}, b{"b", Tensor::scalar(0.0f)};
  Fit() {
    const Value noise = random_normal(g.value(w));
    const Value loss = mean(pow(g.value(w) * mean(x) + g.value(b) + noise * 0.01, 2));
    adamw(loss, {w, b}, {.lr = 1e-2});
    g.record("loss", loss);
    g.record("x", x);
  }
};

std::shared_ptr<const Source> numbers() {
  return function_source(kSamples, {{"x", {DType::f32, {}}}}, [](std::int64_t i, SampleMemory to) {
    const auto x = static_cast<float>(i);
    std::memcpy(to[0].data(), &x, sizeof x);
  });
}

TrainOptions options_of(const std::filesystem::path& folder, bool in_background) {
  TrainOptions options{.steps = kSteps, .steps_per_launch = 4};
  options.progress = nullptr;
  options.save = {.folder = folder, .every = 7, .in_background = in_background};
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

// Trains to the end, from the newest file on, and returns all state.
std::map<std::string, std::vector<std::byte>> train_to_end(DeviceId device, const TrainOptions& options) {
  Fit fit;
  Program p = compile(fit.g, {.target = device, .seed = 7});
  Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .seed = 3}), {{"x", fit.x}}, {.workers = 2});
  const TrainResult result = train(p, loader, options);
  EXPECT_EQ(result.steps, options.steps);
  std::map<std::string, std::vector<std::byte>> state;
  for (const Variable& variable : p.variables()) {
    const Tensor tensor = variable.read();
    state[variable.name()].assign(tensor.data(), tensor.data() + tensor.bytes());
  }
  return state;
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return {names.begin(), names.end()};
}

std::string name_of(std::int64_t steps) {
  const std::string number = std::to_string(steps);
  return "step-" + std::string(12 - number.size(), '0') + number + ".safetensors";
}

TEST_P(OnDevice, ATrainingThatGoesOnEndsWithTheSameBits) {
  const TemporaryDirectory directory;
  for (bool in_background : {false, true}) {
    const auto folder = directory / (in_background ? "background" : "foreground");
    TrainOptions options = options_of(folder, in_background);
    options.save.folder.clear();
    options.save.every = 0;
    const auto expected = train_to_end(GetParam(), options);
    options = options_of(folder, in_background);
    for (std::int64_t steps : {10, 11, 25, 60}) {
      options.steps = steps;
      const auto state = train_to_end(GetParam(), options);
      if (steps == kSteps) {
        EXPECT_EQ(state, expected);
      }
    }
    EXPECT_EQ(files_in(folder).back(), name_of(60));
    if (in_background) continue;  // where files may be left out
    EXPECT_EQ(files_in(folder), (std::vector<std::string>{name_of(49), name_of(56), name_of(60)}));
  }
}

// A process that does not write goes on from the files of another one.
TEST_P(OnDevice, OneOfTwoProcessesWrites) {
  const TemporaryDirectory directory;
  const auto folder = directory / "shared";
  TrainOptions writer = options_of(folder, false), reader = writer;
  reader.save.writes = false;
  writer.steps = reader.steps = 25;
  const auto first = train_to_end(GetParam(), reader);
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(train_to_end(GetParam(), writer), first);
  const std::vector<std::string> files = files_in(folder);
  reader.steps = writer.steps = kSteps;
  reader.progress = std::tmpfile();
  const auto last = train_to_end(GetParam(), reader);
  EXPECT_EQ(files_in(folder), files);
  std::rewind(reader.progress);
  char line[200] = "";
  EXPECT_TRUE(std::fgets(line, sizeof line, reader.progress) != nullptr &&
              std::string_view(line).find("goes on at step 25") != std::string_view::npos)
      << line;
  std::fclose(reader.progress);
  EXPECT_EQ(train_to_end(GetParam(), writer), last);
}

// The history that leads to the end: what each step before a kill saw, as far as a file holds it, and what came after.
// Each sample of an epoch is in it once.
TEST(SaveTest, ATrainingKilledAtAnyCallGoesOn) {
  const TemporaryDirectory directory;
  TrainOptions undisturbed = options_of(directory / "undisturbed", true);
  const auto expected = train_to_end(cpu(), undisturbed);
  std::mt19937 random(1);
  int all_kills = 0;
  for (int round = 0; all_kills < (std::getenv("GS_FULL") ? 200 : 5); ++round) {
    const auto folder = directory / std::to_string(round), seen = directory / ("seen" + std::to_string(round));
    for (bool is_over = false; !is_over;) {
      // Half are killed at a call of a save, the others at a step.
      const bool dies_in_save = random() % 2 == 0;
      const int death = static_cast<int>(random() % 25);
      const pid_t child = fork();
      if (child == 0) {
        alarm(300);
        Fit fit;
        Program p = compile(fit.g, {.seed = 7});
        Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .seed = 3}), {{"x", fit.x}},
                      {.workers = 2});
        TrainOptions options = options_of(folder, true);
        const int file = ::open(seen.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        options.actions.push_back({1, [&](std::int64_t steps) {
                                     std::string line = std::to_string(steps);
                                     for (float x : p.records("x")) line += " " + std::to_string(static_cast<int>(x));
                                     line += "\n";
                                     syscall(SYS_write, file, line.data(), line.size());
                                   }});
        if (dies_in_save) {
          calls_until_death = death;
        } else {
          options.actions.push_back({1, [&, left = death](std::int64_t) mutable {
                                       if (left-- == 0) raise(SIGKILL);
                                     }});
        }
        train(p, loader, options);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      is_over = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      ASSERT_TRUE(is_over || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
      all_kills += !is_over;
    }
    EXPECT_EQ(train_to_end(cpu(), options_of(folder, true)), expected);
    std::map<int, std::string> history;  // the last time that each step was run
    std::ifstream lines(seen);
    for (std::string line; std::getline(lines, line);) history[std::stoi(line)] = line.substr(line.find(' ') + 1);
    ASSERT_EQ(history.size(), static_cast<std::size_t>(kSteps));
    std::multiset<int> epoch;
    for (const auto& [step, samples] : history) {
      std::istringstream numbers(samples);
      for (int sample = 0; numbers >> sample;) epoch.insert(sample);
      if (step % (kSamples / kBatch) != 0) continue;
      EXPECT_EQ(epoch.size(), static_cast<std::size_t>(kSamples));
      for (int sample : epoch) EXPECT_EQ(epoch.count(sample), 1u) << sample << " before step " << step;
      epoch.clear();
    }
  }
}

// The disk takes nothing while 40 launches run: none waits for it, and the files that were due are counted.
TEST_P(OnDevice, TrainingDoesNotWaitForTheDisk) {
  const TemporaryDirectory directory;
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
  TrainOptions options = options_of(directory / "run", true);
  options.save.every = 20;
  options.steps_per_launch = 1;
  std::string warnings;
  std::mutex mutex;
  options.log = [&](LogLevel, std::string_view message) {
    const std::lock_guard lock(mutex);
    warnings += std::string(message) + "\n";
  };
  options.actions.push_back({19, [](std::int64_t steps) {
                               if (steps == 19) set_disk_blocked(true);
                             }});
  options.actions.push_back({55, [](std::int64_t) {  // the file of step 20 is still being written
                               set_disk_blocked(false);
                             }});
  const TrainResult result = train(p, loader, options);
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(result.skipped_saves, 1) << "that of step 40";
  EXPECT_TRUE(contains(warnings, "no file is written for step 40: that of step 20 is still being written")) << warnings;
  EXPECT_EQ(files_in(directory / "run"), (std::vector<std::string>{name_of(20), name_of(60)}));
}

// A file that cannot be written does not end the training, but the last one does.
TEST_P(OnDevice, AFullDiskIsToldOf) {
  for (bool in_background : {false, true}) {
    const TemporaryDirectory directory;
    Fit fit;
    Program p = compile(fit.g);
    Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
    TrainOptions options = options_of(directory / "run", in_background);
    std::string warnings;
    options.log = [&](LogLevel, std::string_view message) { warnings += std::string(message) + "\n"; };
    options.save.every = 20;
    refused_writes = 0;
    options.actions.push_back({15, [](std::int64_t steps) {
                                 if (steps == 30) refused_writes.wait(0);  // those of the file of step 20
                                 is_disk_full = steps == 15;
                               }});
    train(p, loader, options);
    EXPECT_TRUE(contains(warnings, "could not be written")) << warnings;
    EXPECT_TRUE(contains(warnings, std::generic_category().message(ENOSPC))) << warnings;
    options.steps = 80;
    options.actions[0] = {15, [](std::int64_t) { is_disk_full = true; }};
    EXPECT_TRUE(contains(message_of([&] { train(p, loader, options); }), std::generic_category().message(ENOSPC)));
    is_disk_full = false;
    EXPECT_EQ(p.steps(), 80) << "nothing is lost";
    EXPECT_EQ(files_in(directory / "run").back(), name_of(60));
    if (!in_background) {
      EXPECT_EQ(files_in(directory / "run"), (std::vector<std::string>{name_of(40), name_of(60)}));
    }
    options.actions.clear();
    EXPECT_EQ(train(p, loader, options).first, 60) << "it goes on from the newest file";
  }
}

// Patience counts the evaluations before a file, too, and a training that it has ended stays ended.
TEST_P(OnDevice, PatienceGoesOnWithTheFile) {
  const TemporaryDirectory directory;
  const auto run = [&](std::int64_t steps) {
    Fit fit;
    Program p = compile(fit.g);
    Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
    TrainOptions options = options_of(directory / "run", false);
    options.steps = steps;
    options.evaluate_every = 10;
    options.evaluate = [&] { return Metrics{{"error", p.steps() <= 20 ? 30 - p.steps() : 100}}; };
    options.patience = {.metric = "error", .evaluations = 3};
    return train(p, loader, options);
  };
  EXPECT_EQ(run(35).end, TrainEnd::steps)
      << "one evaluation that was no better, and one at the end, which does not count";
  for (int i = 0; i < 2; ++i) {
    const TrainResult result = run(1000);
    EXPECT_EQ(result.end, TrainEnd::patience);
    EXPECT_EQ(result.steps, 50);
  }
}

// An action that throws comes again when the training goes on from its file.
TEST_P(OnDevice, WhatWasDueAtAFileIsDone) {
  const TemporaryDirectory directory;
  TrainOptions undisturbed = options_of(directory / "undisturbed", false),
               options = options_of(directory / "run", false);
  const auto run = [&](TrainOptions with, bool fails) {
    Fit fit;
    Program p = compile(fit.g, {.seed = 7});
    Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .seed = 3}), {{"x", fit.x}});
    with.actions.push_back({10, [&](std::int64_t steps) {
                              if (fails && steps == 30) throw std::runtime_error("no");
                              fit.b.write(Tensor::scalar(static_cast<float>(steps)));
                            }});
    if (fails) {
      EXPECT_THROW(train(p, loader, with), std::runtime_error);
    } else {
      train(p, loader, with);
    }
    return fit.w.read().at(5);
  };
  const double expected = run(undisturbed, false);
  (void)run(options, true);
  EXPECT_EQ(files_in(options.save.folder).back(), name_of(30));
  EXPECT_EQ(run(options, false), expected);
}

// More bytes than a file may have are an index and its shards, which come and go together.
TEST_P(OnDevice, LargeFilesAreDivided) {
  const TemporaryDirectory directory;
  TrainOptions options = options_of(directory / "run", false);
  options.save.most_bytes_per_file = 100;
  options.save.keep_newest = 1;
  options.steps = 20;
  const auto expected = train_to_end(GetParam(), options);
  const std::vector<std::string> files = files_in(options.save.folder);
  EXPECT_GE(files.size(), 4u);
  for (const std::string& file : files) EXPECT_EQ(file.find(name_of(20)), 0u) << file;
  EXPECT_EQ(train_to_end(GetParam(), options), expected) << "read again";
}

// A second one would go on from the files of the first, and remove some of them.
TEST_P(OnDevice, AFolderHasOneTraining) {
  const TemporaryDirectory directory;
  const TrainOptions alone = options_of(directory / "alone", false);
  const auto expected = train_to_end(GetParam(), alone);
  TrainOptions options = options_of(directory / "run", false), second = options, reader = options;
  reader.save.writes = false;
  int tries = 0;
  options.actions.push_back({30, [&](std::int64_t) {
                               const std::string message = message_of([&] { train_to_end(GetParam(), second); });
                               EXPECT_TRUE(contains(message, (directory / "run").string())) << message;
                               EXPECT_TRUE(contains(message, "another training writes its files in this folder"));
                               EXPECT_EQ(train_to_end(GetParam(), reader), expected);
                               ++tries;
                             }});
  EXPECT_EQ(train_to_end(GetParam(), options), expected);
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(files_in(directory / "run"), files_in(directory / "alone")) << "a lock is left, or files are not";
  EXPECT_EQ(train_to_end(GetParam(), second), expected);
}

TEST(SaveTest, ChildrenOfForkNeitherEndNorKeepALock) {
  const TemporaryDirectory directory;
  std::optional<FolderLock> lock(std::in_place, directory.path(), Log(), Where());
  const auto try_it = [&] { return message_of([&] { FolderLock(directory.path(), Log(), Where()); }); };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char none;
    (void)!read(ends[0], &none, 1);  // until the other one closes its end
    lock.reset();
    _exit(0);
  }
  close(ends[0]);
  EXPECT_TRUE(contains(try_it(), "another training"));
  lock.reset();
  EXPECT_EQ(try_it(), "nothing was thrown") << "the child keeps it";
  lock.emplace(directory.path(), Log(), Where());
  const pid_t second = fork();
  if (second == 0) {
    lock.reset();
    _exit(0);
  }
  close(ends[1]);
  for (const pid_t process : {child, second}) {
    int status = -1;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(contains(try_it(), "another training")) << "a child has ended it";
}

TEST(SaveTest, AFileSystemWithoutLocksIsToldOf) {
  const TemporaryDirectory directory;
  TrainOptions options = options_of(directory / "run", true);
  std::string warnings;
  options.log = [&](LogLevel, std::string_view message) { warnings += std::string(message) + "\n"; };
  has_locks = false;
  EXPECT_FALSE(train_to_end(cpu(), options).empty());
  has_locks = true;
  EXPECT_TRUE(contains(warnings, "run cannot be locked, so that nothing else may train in it")) << warnings;
}

TEST_P(OnDevice, TheProcessMayGoToAnotherFolder) {
  const TemporaryDirectory directory;
  const WorkingDirectory before(directory.path());
  std::filesystem::create_directory("other");
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
  TrainOptions options = options_of("run", false);
  options.save.every = 20;
  options.log_file = "metrics";
  options.actions.push_back({30, [&](std::int64_t) { std::filesystem::current_path(directory / "other"); }});
  EXPECT_EQ(train(p, loader, options).saved, std::filesystem::canonical(directory.path()) / "run" / name_of(60));
  EXPECT_EQ(files_in(directory / "run"), (std::vector<std::string>{name_of(20), name_of(40), name_of(60)}));
  EXPECT_TRUE(files_in(directory / "other").empty());
}

TEST_P(OnDevice, AFolderThatVanishesIsToldOf) {
  const TemporaryDirectory directory;
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
  TrainOptions options = options_of(directory / "run", false);
  std::string warnings;
  options.log = [&](LogLevel, std::string_view message) { warnings += std::string(message) + "\n"; };
  options.save.every = 20;
  options.actions.push_back({30, [&](std::int64_t) { std::filesystem::remove_all(directory / "run"); }});
  const std::string message = message_of([&] { train(p, loader, options); });
  EXPECT_TRUE(contains(message, name_of(60)) && contains(message, "remedy: make its directory")) << message;
  EXPECT_TRUE(contains(warnings, name_of(40))) << warnings;
  EXPECT_EQ(p.steps(), 60) << "nothing is lost";
}

TEST_P(OnDevice, TheNewestAndTheBestFilesStay) {
  for (bool largest : {false, true}) {
    const TemporaryDirectory directory;
    const double found[] = {0.5, 0.9, 0.1, 0.6, 0.8, 0.2};
    for (std::int64_t steps : {30, 60}) {  // the second training knows of the files of the first
      Fit fit;
      Program p = compile(fit.g);
      Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", fit.x}});
      TrainOptions options = options_of(directory / "run", true);
      options.steps = steps;
      options.evaluate_every = 10;
      options.evaluate = [&] { return Metrics{{"accuracy", found[p.steps() / 10 - 1]}}; };
      options.save = {.folder = directory / "run", .every = 10, .keep_newest = 1, .keep_best = 2, .best = "accuracy"};
      options.save.best_is_largest = largest;
      options.save.metadata["model"] = "fit";
      train(p, loader, options);
    }
    EXPECT_EQ(files_in(directory / "run"), largest ? (std::vector<std::string>{name_of(20), name_of(50), name_of(60)})
                                                   : (std::vector<std::string>{name_of(30), name_of(60)}));
    const Checkpoint last = read_checkpoint(directory / "run" / name_of(60));
    EXPECT_EQ(last.metadata.at("model"), "fit");
    EXPECT_EQ(last.metadata.at("metric.accuracy"), "0.2");
    EXPECT_EQ(last.number("loader.epoch"), 6);
  }
}

TEST_P(OnDevice, AnotherOrderOfAsManyBatchesIsTold) {
  const TemporaryDirectory directory;
  std::string warnings;
  const auto run = [&](std::uint64_t seed, std::int64_t steps, bool writes) {
    Fit fit;
    Program p = compile(fit.g);
    Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .seed = seed}), {{"x", fit.x}});
    TrainOptions options = options_of(directory / "run", false);
    options.steps = steps;
    options.save.writes = writes;
    options.log = [&](LogLevel, std::string_view message) { warnings += message; };
    return train(p, loader, options).steps;
  };
  EXPECT_EQ(run(1, 14, true), 14);
  EXPECT_EQ(run(1, 20, true), 20);  // to the end of an epoch
  EXPECT_EQ(run(1, 25, true), 25);
  EXPECT_EQ(warnings, "");
  EXPECT_EQ(run(2, 26, false), 26) << "a rank has samples of its own";
  EXPECT_EQ(warnings, "");
  EXPECT_EQ(run(2, 27, true), 27);
  EXPECT_TRUE(contains(warnings, "the next batch has other samples than when this was saved")) << warnings;
  EXPECT_TRUE(contains(warnings, "step-000000000025.safetensors: ")) << warnings;
}

TEST_P(OnDevice, FilesThatDoNotFitAreRefused) {
  const TemporaryDirectory directory;
  const auto run = [&](std::int64_t batch, TrainOptions options, std::function<void(Graph&)> more = {}) {
    Graph g;
    const Value x = g.feed("x", f32, {batch});
    const Variable w("w", Tensor::scalar(0.0f));
    assign(w, g.value(w) + mean(x));
    if (more) more(g);
    Program p = compile(g);
    Loader loader(p, numbers(), sample_order(kSamples, {.batch = batch}), {{"x", x}});
    return message_of([&] { train(p, loader, options); });
  };
  TrainOptions options = options_of(directory / "run", false);
  options.save.keep_newest = 2;
  EXPECT_EQ(run(4, options), "nothing was thrown");
  EXPECT_TRUE(contains(run(5, options), "an epoch had 10 batches, and the loader has 8"));
  EXPECT_TRUE(contains(
      run(4, options, [](Graph& g) { assign(Variable("v", Tensor::scalar(0.0f)), g.constant(Tensor::scalar(1.0f))); }),
      "\"v\""));
  options.save.resumes = false;
  EXPECT_TRUE(contains(run(4, options), "holds files of another training"));
  options.save.resumes = true;
  options.save.folder = directory / "other";
  EXPECT_TRUE(contains(
      run(4, options, [](Graph& g) { assign(Variable("w", Tensor::scalar(0.0f)), g.constant(Tensor::scalar(1.0f))); }),
      "two Variables are named \"w\""));
  // A file that is damaged is not used, and the one before it is.
  options.save.folder = directory / "run";
  std::string warnings;
  options.log = [&](LogLevel, std::string_view message) { warnings += message; };
  std::filesystem::resize_file(directory / "run" / name_of(60), 100);
  EXPECT_EQ(run(4, options), "nothing was thrown");
  EXPECT_TRUE(contains(warnings, "a file of the training is not used")) << warnings;
  EXPECT_EQ(read_checkpoint(directory / "run" / name_of(60)).number("step"), 60);
}

}  // namespace
}  // namespace graphsink::save_test
