// train(): the same training whatever the options say, and what it leaves behind when something ends it.
#include "graphsink/train.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "program_fixture.h"
#include "temporary_directory.h"
#include "train/steps_per_launch.h"

namespace graphsink::train_test {
namespace {

using testing::contains;
using testing::message_of;
using testing::OnDevice;

constexpr std::int64_t kSamples = 50, kBatch = 4, kBatches = 12;  // batches of an epoch

std::shared_ptr<const Source> numbers(std::function<void(std::int64_t)> seen = {}) {
  return function_source(kSamples, {{"x", {DType::f32, {}}}},
                         [seen = std::move(seen)](std::int64_t i, SampleMemory to) {
                           if (seen) seen(i);
                           const float x = static_cast<float>(i) / kSamples;
                           std::memcpy(to[0].data(), &x, sizeof x);
                         });
}

// A model of two Variables, one of which is the rate; it counts its steps.
struct Fit {
  Graph g;
  Value x = g.feed("x", f32, {kBatch});
  Variable w{"w", Tensor({0.5f, -0.25f})}, rate{"rate", Tensor::scalar(0.125f)};
  explicit Fit(double target = -1) {
    const Value error = x * slice(g.value(w), {0}, {1}) + slice(g.value(w), {1}, {2}) - x * x;
    const Value loss = mean(error * error);
    adamw(loss, {w}, {.lr = g.value(rate)});
    g.record("loss", loss);
    g.record("step", cast(g.step(), f32));
    g.record("x", x);
    if (target >= 0) g.stop_when(cast(g.step(), f32) >= target);
  }
  std::vector<float> trained() const {
    const Tensor now = w.read();
    return {static_cast<float>(now.at(0)), static_cast<float>(now.at(1))};
  }
};

SampleOrder order() { return sample_order(kSamples, {.batch = kBatch, .seed = 5}); }

TrainOptions quiet(TrainOptions options) {
  options.progress = nullptr;
  return options;
}

// What a training did, as others see it.
struct Seen {
  std::vector<float> trained;
  std::vector<double> losses;
  std::string events;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen train_once(Program& program, Fit& fit, std::int64_t steps_per_launch, int workers, WhenStarved when_starved) {
  Seen seen;
  Loader loader(program, numbers(), order(), {{"x", fit.x}}, {.workers = workers, .when_starved = when_starved});
  TrainOptions options = quiet({.steps = 40, .steps_per_launch = steps_per_launch, .records = {"loss", "step"}});
  options.on_step = [&](const StepValues& step) {
    EXPECT_EQ(step.step, static_cast<std::int64_t>(seen.losses.size()));
    EXPECT_EQ(step.values[1], static_cast<double>(step.step));
    seen.losses.push_back(step.values[0]);
  };
  options.actions.push_back({9, [&](std::int64_t steps) {
                               seen.events += "rate " + std::to_string(steps) + "; ";
                               fit.rate.write(Tensor::scalar(1.0f / static_cast<float>(steps)));
                             }});
  options.evaluate_every = 7;
  options.evaluate = [&] {
    const double w = fit.w.read().at(0);
    seen.events += "evaluation " + std::to_string(w) + "; ";
    return Metrics{{"w", w}};
  };
  const TrainResult result = train(program, loader, options);
  EXPECT_EQ(result.end, TrainEnd::steps);
  EXPECT_EQ(result.steps, 40);
  EXPECT_EQ(loader.position(), (LoaderPosition{3, 4}));
  seen.trained = fit.trained();
  return seen;
}

TEST_P(OnDevice, TrainingDoesNotDependOnStepsPerLaunchOrWorkers) {
  std::optional<Seen> expected;
  for (std::int64_t steps : {1, 4, 16, 64, 0}) {
    for (int workers : {0, 1, 2, 4}) {
      for (WhenStarved when_starved : {WhenStarved::wait, WhenStarved::shrink}) {
        SCOPED_TRACE(std::to_string(steps) + " steps, " + std::to_string(workers) + " workers");
        Fit fit;
        Program p = compile(fit.g);
        const Seen seen = train_once(p, fit, steps, workers, when_starved);
        if (!expected) expected = seen;
        EXPECT_EQ(seen, *expected);
        if (workers == 0 || steps == 0) break;
      }
    }
  }
  EXPECT_EQ(expected->losses.size(), 40u);
  EXPECT_TRUE(contains(expected->events, "rate 9; ")) << expected->events;
}

TEST_P(OnDevice, EndsAfterEpochs) {
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainResult result = train(p, loader, quiet({.epochs = 2, .steps_per_launch = 5}));
  EXPECT_EQ(result.end, TrainEnd::epochs);
  EXPECT_EQ(result.steps, 2 * kBatches);
  EXPECT_EQ(result.launches, 6);
  EXPECT_EQ(loader.position(), (LoaderPosition{2, 0}));
  result = train(p, loader, quiet({.steps = 30, .epochs = 9, .steps_per_launch = 5}));
  EXPECT_EQ(result.end, TrainEnd::steps);
  EXPECT_EQ(result.first, 24);
  EXPECT_EQ(result.steps, 30);
  EXPECT_EQ(loader.position(), (LoaderPosition{2, 6}));
}

TEST_P(OnDevice, StopsWhereTheDeviceSays) {
  std::optional<std::vector<float>> trained;
  for (std::int64_t steps : {1, 5, 64}) {
    SCOPED_TRACE(steps);
    Fit fit(17);
    Program p = compile(fit.g);
    Loader loader(p, numbers(), order(), {{"x", fit.x}}, {.workers = 2});
    std::int64_t told = 0;
    TrainOptions options = quiet({.steps = 1000, .steps_per_launch = steps, .records = {"loss"}});
    options.on_step = [&](const StepValues&) { ++told; };
    const TrainResult result = train(p, loader, options);
    EXPECT_EQ(result.end, TrainEnd::stopped);
    EXPECT_TRUE(contains(result.why, "train_test.cpp:")) << result.why;
    EXPECT_TRUE(contains(result.why, "in step 17")) << result.why;
    EXPECT_EQ(result.steps, 18);
    EXPECT_EQ(told, 18);
    EXPECT_EQ(loader.position(), (LoaderPosition{1, 6}));
    if (!trained) trained = fit.trained();
    EXPECT_EQ(fit.trained(), *trained);
  }
}

// Sample 30 makes a number that is not finite. The training can go on from there.
TEST_P(OnDevice, AStepThatFailsLeavesTheLoaderThere) {
  for (std::int64_t steps : {1, 8}) {
    SCOPED_TRACE(steps);
    Graph g;
    const Value x = g.feed("x", f32, {kBatch});
    Variable total("total", Tensor({0.0f}));
    assign(total, g.value(total) + check_finite(log(sum(x) + 1.0)));
    Program p = compile(g);
    std::atomic<bool> is_bad = true;
    const auto source = function_source(kSamples, {{"x", {DType::f32, {}}}}, [&](std::int64_t i, SampleMemory to) {
      const float value = i == 30 && is_bad ? -1e9f : static_cast<float>(i);
      std::memcpy(to[0].data(), &value, sizeof value);
    });
    const SampleOrder in_order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
    Loader loader(p, source, in_order, {{"x", x}}, {.workers = 1});
    const TemporaryDirectory directory;
    TrainOptions options = quiet({.epochs = 1, .steps_per_launch = steps});
    options.save = {.folder = directory / "run"};
    try {
      train(p, loader, options);
      FAIL() << "no Error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::step_failed) << e.what();
      EXPECT_TRUE(contains(e.what(), "in step 7")) << e.what();
    }
    EXPECT_EQ(loader.position(), (LoaderPosition{0, 7}));
    EXPECT_TRUE(std::filesystem::exists(directory / "run/step-000000000007.safetensors"));
    is_bad = false;
    EXPECT_EQ(train(p, loader, options).steps, kBatches);
  }
}

TEST_P(OnDevice, ALoaderThatThrowsEndsTheTrainingWithAFile) {
  Fit fit;
  Program p = compile(fit.g);
  const auto source = numbers([](std::int64_t i) {
    if (i == 33) throw Error("disk", Where(), "sample 33 is gone", "bring it back", ErrorCode::io);
  });
  Loader loader(p, source, sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}), {{"x", fit.x}});
  const TemporaryDirectory directory;
  TrainOptions options = quiet({.epochs = 1, .steps_per_launch = 64});
  options.save = {.folder = directory / "run"};
  EXPECT_TRUE(contains(message_of([&] { train(p, loader, options); }), "sample 33 is gone"));
  EXPECT_EQ(read_checkpoint(directory / "run/step-000000000008.safetensors").number("loader.batch"), 8);
}

// A function of the options that throws, in all places: called again, the training goes on as if nothing had happened.
TEST_P(OnDevice, FunctionsThatThrowLoseNothing) {
  std::vector<float> expected;
  for (int which = -1; which < 4; ++which) {
    SCOPED_TRACE(which);
    Fit fit;
    Program p = compile(fit.g);
    Loader loader(p, numbers(), order(), {{"x", fit.x}});
    const TemporaryDirectory directory;
    TrainOptions options = quiet({.steps = 20, .steps_per_launch = 3, .records = {"loss"}});
    options.save = {.folder = directory / "run"};
    bool fails = which >= 0;
    const auto fail = [&](int when) {
      if (fails && which == when && p.steps() >= 10) throw std::runtime_error("no");
    };
    std::vector<std::int64_t> told;
    options.on_step = [&](const StepValues& step) {
      told.push_back(step.step);
      fail(0);
    };
    options.actions.push_back({2, [&](std::int64_t steps) {
                                 fail(1);
                                 fit.rate.write(Tensor::scalar(1.0f / static_cast<float>(steps)));
                               }});
    options.evaluate_every = 5;
    options.evaluate = [&] { return fail(2), Metrics{{"w", 1}}; };
    options.should_stop = [&] { return fail(3), false; };
    if (fails) {
      EXPECT_THROW(train(p, loader, options), std::runtime_error);
      EXPECT_GE(p.steps(), 10);
    }
    fails = false;
    EXPECT_EQ(train(p, loader, options).steps, 20);
    EXPECT_EQ(loader.position(), (LoaderPosition{1, 8}));
    if (which < 0) expected = fit.trained();
    EXPECT_EQ(fit.trained(), expected);
    std::vector<std::int64_t> all(20);
    std::iota(all.begin(), all.end(), 0);
    if (which != 0) {
      EXPECT_EQ(told, all);
    }
  }
}

// A function that asks for a Variable is told of the stop in the place of train().
TEST_P(OnDevice, AFunctionThatIsToldOfAStopLeavesTheRightFile) {
  for (std::int64_t steps : {1, 4}) {
    SCOPED_TRACE(steps);
    Fit fit(17);
    Program p = compile(fit.g);
    Loader loader(p, numbers(), order(), {{"x", fit.x}});
    const TemporaryDirectory directory;
    TrainOptions options = quiet({.steps = 1000, .steps_per_launch = steps, .records = {"loss"}});
    options.save = {.folder = directory / "run"};
    options.on_step = [&](const StepValues&) { (void)fit.w.read(); };
    try {
      EXPECT_EQ(train(p, loader, options).end, TrainEnd::stopped);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::stopped) << e.what();
    }
    EXPECT_EQ(loader.position(), (LoaderPosition{1, 6}));
    const Checkpoint file = read_checkpoint(newest_checkpoint(directory / "run"));
    EXPECT_EQ(file.number("step"), 18);
    EXPECT_EQ(file.number("loader.batch"), 6);
    EXPECT_EQ(static_cast<float>(file.tensors.at("w").at(0)), fit.trained()[0]);
  }
}

// run() throws when the steps are done: a guard finds that an op is not the same twice.
TEST_P(OnDevice, ARunThatThrowsLeavesTheRightFile) {
  Graph g;
  const Value x = g.feed("x", f32, {kBatch});
  Variable count("count", Tensor::scalar(0.0f)), noise("noise", Tensor::scalar(0.0f));
  assign(count, g.value(count) + 1.0);
  std::atomic<int> calls = 0;
  ExternalOp op{.name = "count_calls", .outputs = {{DType::f32, {}}}};
  op.cpu = [&](const CpuArgs& a) {
    *a.out<float>(0) = calls < 20 ? 1.0f : static_cast<float>(calls);
    ++calls;
  };
  assign(noise, external_op(op, {mean(x)})[0]);
  Program p = compile(g, {.guards = {.replay_every = 1}});
  Loader loader(p, numbers(), order(), {{"x", x}});
  const TemporaryDirectory directory;
  TrainOptions options = quiet({.steps = 1000, .steps_per_launch = 4});
  options.save = {.folder = directory / "run"};
  EXPECT_THROW(train(p, loader, options), Error);
  const Checkpoint file = read_checkpoint(newest_checkpoint(directory / "run"));
  EXPECT_EQ(file.tensors.at("count").at(0), static_cast<double>(file.number("step")));
  EXPECT_EQ(file.number("step"), loader.position().epoch * kBatches + loader.position().batch);
  EXPECT_EQ(file.number("step"), p.steps());
}

TEST_P(OnDevice, PatienceEndsATraining) {
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  const std::vector<double> found{5, 3, 4, std::numeric_limits<double>::quiet_NaN(), 2, 2, 2, 2};
  std::size_t evaluations = 0;
  TrainOptions options = quiet({.steps = 1000, .steps_per_launch = 4});
  options.evaluate_every = 10;
  options.evaluate = [&] { return Metrics{{"error", found.at(evaluations++)}}; };
  options.patience = {.metric = "error", .evaluations = 3};
  const TrainResult result = train(p, loader, options);
  EXPECT_EQ(result.end, TrainEnd::patience);
  EXPECT_EQ(result.steps, 80);
  EXPECT_TRUE(contains(result.why, "error was no better in 3 evaluations than 2")) << result.why;
  evaluations = 0;
  EXPECT_EQ(train(p, loader, options).steps, 80 + 80) << "without a file it knows of no evaluation before";
  options.patience.metric = "loss";
  evaluations = 0;
  EXPECT_TRUE(contains(message_of([&] { train(p, loader, options); }), "no metric \"loss\"; remedy: it has \"error\""));
}

// While one exists, SIGINT does what it does by default: a shell that starts a program in the background has it
// ignored.
class DefaultInterrupt {
 public:
  DefaultInterrupt() {
    struct sigaction by_default = {};
    by_default.sa_handler = SIG_DFL;
    sigemptyset(&by_default.sa_mask);
    sigaction(SIGINT, &by_default, &before_);
  }
  ~DefaultInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  DefaultInterrupt(const DefaultInterrupt&) = delete;
  DefaultInterrupt& operator=(const DefaultInterrupt&) = delete;

 private:
  struct sigaction before_ = {};
};

TEST_P(OnDevice, AFunctionOrAnInterruptEndsATraining) {
  const DefaultInterrupt by_default;
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 1000, .steps_per_launch = 4});
  options.should_stop = [&] { return p.steps() >= 8; };
  EXPECT_EQ(train(p, loader, options).end, TrainEnd::should_stop);
  options.should_stop = {};
  options.actions.push_back({20, [](std::int64_t) { raise(SIGINT); }});
  const TrainResult result = train(p, loader, options);
  EXPECT_EQ(result.end, TrainEnd::interrupted);
  EXPECT_EQ(result.steps, 20);
  struct sigaction after = {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL) << "the process is as it was";
}

// What threads of others meet while train() or evaluate() is under way on this one, but in no call of the objects.
std::string refused_to_others(Program& program, const Loader& loader) {
  std::string texts;
  std::thread([&] {
    texts = message_of([&] { (void)program.steps(); }) + "; " + message_of([&] { (void)loader.position(); });
  }).join();
  return texts;
}

void expect_refusal(const std::string& texts) {
  EXPECT_TRUE(contains(texts, "Program: another thread is in a call of it")) << texts;
  EXPECT_TRUE(contains(texts, "Loader: another thread is in a call of it")) << texts;
}

TEST_P(OnDevice, ATrainingHoldsItsProgramAndItsLoader) {
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 4});
  std::string refused;
  options.should_stop = [&] { return refused = refused_to_others(p, loader), false; };
  EXPECT_EQ(train(p, loader, options).steps, 4);
  expect_refusal(refused);
  EXPECT_FALSE(contains(refused_to_others(p, loader), "another thread")) << "another thread may take over";
}

TEST_P(OnDevice, AnEvaluationHoldsItsProgramAndItsLoader) {
  Fit fit;
  Program p = compile(fit.g);
  const Loader* read = nullptr;
  std::string refused;
  const auto source = numbers([&](std::int64_t) { refused = refused_to_others(p, *read); });
  Loader loader(p, source, order(), {{"x", fit.x}}, {.workers = 0});
  read = &loader;
  EXPECT_EQ(evaluate(p, loader, std::vector<Metric>{{.record = "loss"}}).size(), 1u);
  expect_refusal(refused);
  EXPECT_FALSE(contains(refused_to_others(p, loader), "another thread")) << "another thread may take over";
}

// The training goes on with what has taken their place, or throws Error.
TEST_P(OnDevice, ATrainingWhoseProgramOrLoaderIsReplacedMeanwhileKeepsWhatItHolds) {
  Fit fit, other;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 4});
  bool is_replaced = false;
  options.should_stop = [&] {
    if (!std::exchange(is_replaced, true)) loader = Loader(p, numbers(), order(), {{"x", fit.x}});
    return false;
  };
  EXPECT_EQ(train(p, loader, options).steps, 4);
  options.steps = 8;
  options.should_stop = [&] { return p = compile(other.g), false; };
  EXPECT_NE(message_of([&] { train(p, loader, options); }), "nothing was thrown");
}

// Who has SIGINT ignored, or handles it, keeps it.
TEST_P(OnDevice, AnInterruptThatIsIgnoredEndsNothing) {
  const DefaultInterrupt restores;
  std::signal(SIGINT, SIG_IGN);
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 30, .steps_per_launch = 4});
  options.actions.push_back({20, [](std::int64_t) { raise(SIGINT); }});
  EXPECT_EQ(train(p, loader, options).end, TrainEnd::steps);
  struct sigaction after = {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

TEST(Train, ASecondInterruptEndsTheProcess) {
  const DefaultInterrupt by_default;
  const pid_t child = fork();
  if (child == 0) {
    Fit fit;
    Program p = graphsink::compile(fit.g);
    Loader loader(p, numbers(), order(), {{"x", fit.x}});
    TrainOptions options = quiet({.steps = 1000, .steps_per_launch = 4});
    options.actions.push_back({20, [](std::int64_t) { raise(SIGINT), raise(SIGINT); }});
    train(p, loader, options);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

TEST_P(OnDevice, EvaluationIsTheSameForAllLaunches) {
  Metrics first;
  for (std::int64_t steps : {1, 5, 64}) {
    Graph g;
    const Value x = g.feed("x", f32, {8}), real = g.feed("real", f32, {8});
    g.record("mean", sum(x * real) / sum(real));
    g.record("real", sum(real));
    Program p = compile(g);
    Loader loader(p, numbers(),
                  sample_order(kSamples, {.batch = 8, .last_batch = LastBatch::pad, .is_shuffled = false}), {{"x", x}},
                  {.steps_per_launch = steps, .mask = real});
    const Metric metrics[] = {
        {.record = "mean"},
        {.record = "mean", .weight = "real", .name = "weighted"},
        {.record = "mean", .kind = Metric::Kind::perplexity, .weight = "real", .name = "perplexity"},
        {.record = "real", .kind = Metric::Kind::sum}};
    for (int i = 0; i < 2; ++i) {
      const Metrics found = evaluate(p, loader, metrics);
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << "bit for bit";
      EXPECT_EQ(found.at("real"), kSamples);
      EXPECT_NEAR(found.at("weighted"), 24.5 / kSamples, 1e-6);
      EXPECT_NEAR(found.at("perplexity"), std::exp(24.5 / kSamples), 1e-6);
      double all = 0;
      for (int b = 0; b < 6; ++b) all += 8 * b + 3.5;
      EXPECT_NEAR(found.at("mean"), (all + 48.5) / 7 / kSamples, 1e-6);
    }
    EXPECT_TRUE(contains(message_of([&] {
                           evaluate(p, loader, std::vector<Metric>{{.record = "mean"}, {.record = "mean"}});
                         }),
                         "two metrics are named \"mean\""));
    EXPECT_TRUE(contains(message_of([&] { evaluate(p, loader, std::vector<Metric>{{.record = "no"}}); }), "no"));
  }
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_P(OnDevice, WritesLinesOfMetricsAndProgress) {
  const TemporaryDirectory directory;
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options{.steps = 20, .steps_per_launch = 3, .records = {"step", "loss"}};
  options.log_file = directory / "metrics";
  options.log_every = 5;
  options.evaluate_every = 10;
  options.evaluate = [] { return Metrics{{"accuracy", 0.5}}; };
  options.progress = std::fopen((directory / "progress").c_str(), "w");
  train(p, loader, options);
  std::fclose(options.progress);
  const std::vector<std::string> metrics = lines_of(directory / "metrics");
  ASSERT_EQ(metrics.size(), 6u);
  EXPECT_EQ(metrics[1].substr(0, 22), R"({"step":5,"step":5,"lo)");
  EXPECT_EQ(metrics[2], R"({"steps":10,"evaluation":{"accuracy":0.5}})");
  const std::vector<std::string> progress = lines_of(directory / "progress");
  ASSERT_GE(progress.size(), 6u);
  EXPECT_TRUE(contains(progress[0], "/20  step ")) << progress[0];
  EXPECT_TRUE(contains(progress[0], " steps/s")) << progress[0];
  EXPECT_TRUE(contains(progress.back(), "ended at step 20: all steps are done")) << progress.back();
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Others that read while it trains, as one that goes on after a kill, see whole lines.
TEST_P(OnDevice, LinesOfMetricsAreWhole) {
  const TemporaryDirectory directory;
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 800, .steps_per_launch = 400, .records = {"step", "loss"}});
  options.log_file = directory / "metrics";
  std::set<std::size_t> sizes;
  options.on_step = [&](const StepValues&) {
    const std::string text = text_of(options.log_file);
    sizes.insert(text.size());
    EXPECT_TRUE(text.empty() || text.ends_with("}\n")) << text.substr(text.rfind('\n') + 1);
  };
  train(p, loader, options);
  EXPECT_GT(sizes.size(), 2u);  // some lines were written before the last step
  EXPECT_EQ(lines_of(options.log_file).size(), 800u);
}

TEST_P(OnDevice, AppendsBehindALineThatAKillHasTorn) {
  const TemporaryDirectory directory;
  const std::string whole = R"({"step":6,"step":6})", line = R"({"step":0,"step":0})", long_line(9000, 'x');
  const struct {
    std::string before, after;
  } rows[] = {
      {"", ""},
      {whole + "\n", whole + "\n"},
      {whole + "\n{\"step\":7,\"st", whole + "\n"},
      {whole + "\n{", whole + "\n"},
      {R"({"steps":10,"eval)", ""},
      {R"({"step)" + long_line, ""},
      {whole + "\n" + R"({"step)" + long_line, whole + "\n"},
      {whole + "\nof another", whole + "\nof another\n"},  // no line of metrics: nothing is removed
  };
  for (const auto& row : rows) {
    Fit fit;
    Program p = compile(fit.g);
    Loader loader(p, numbers(), order(), {{"x", fit.x}});
    TrainOptions options = quiet({.steps = 1, .records = {"step"}});
    options.log_file = directory / "metrics";
    std::ofstream(options.log_file) << row.before;
    train(p, loader, options);
    EXPECT_EQ(text_of(options.log_file), row.after + line + "\n");
  }
}

TEST_P(OnDevice, ASecondTrainingThatLogsToAFileIsRefused) {
  const TemporaryDirectory directory;
  Fit fit, second;
  Program p = compile(fit.g), q = compile(second.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}}), other(q, numbers(), order(), {{"x", second.x}});
  TrainOptions options = quiet({.steps = 2, .records = {"step"}}), both = options;
  options.log_file = both.log_file = directory / "metrics";
  std::string refused;
  both.should_stop = [&] {
    if (refused.empty()) refused = message_of([&] { train(q, other, options); });
    return false;
  };
  EXPECT_EQ(train(p, loader, both).steps, 2);
  EXPECT_TRUE(contains(refused, "metrics: another training writes its lines to this file")) << refused;
  EXPECT_EQ(train(q, other, options).steps, 2) << "another one may take over";
  EXPECT_EQ(lines_of(options.log_file).size(), 4u);
}

// A device takes no lines, and is not asked for its last one.
TEST_P(OnDevice, AFullLogIsToldOf) {
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  TrainOptions options = quiet({.steps = 3, .records = {"step"}});
  std::string told;
  options.log = [&](LogLevel, std::string_view message) { told += message; };
  options.log_file = "/dev/full";
  EXPECT_EQ(train(p, loader, options).steps, 3);
  EXPECT_TRUE(contains(told, "/dev/full takes no more lines of metrics")) << told;
}

TEST_P(OnDevice, RefusesWhatDoesNotFit) {
  Fit fit;
  Program p = compile(fit.g);
  Loader loader(p, numbers(), order(), {{"x", fit.x}});
  const TemporaryDirectory directory;
  Graph other;
  const Value y = other.feed("x", f32, {kBatch});
  other.record("y", mean(y));
  Program q = compile(other);
  EXPECT_TRUE(contains(message_of([&] { train(q, loader, quiet({.steps = 1})); }), "feeds another program"));
  EXPECT_TRUE(contains(message_of([&] { evaluate(q, loader, {}); }), "feeds another program"));
  const auto refused = [&](const TrainOptions& options) {
    return message_of([&] { train(p, loader, quiet(options)); });
  };
  const auto evaluate_nothing = [] { return Metrics(); };
  const struct {
    std::string message;
    std::string part;
  } rows[] = {
      {refused({}), "nothing ends the training"},
      {refused({.steps = -1}), "TrainOptions::steps is -1"},
      {refused({.epochs = -1}), "TrainOptions::epochs is -1"},
      {refused({.steps = 1, .steps_per_launch = -4}), "steps_per_launch is -4"},
      {refused({.steps = 1, .longest_launch = std::chrono::milliseconds(0)}), "longest_launch"},
      {refused({.steps = 1, .records = {"no"}}), "\"no\""},
      {refused({.steps = 1, .records = {"x"}}), "\"x\" has recorded 4 numbers in 1 steps"},
      {refused({.steps = 1, .records = {"loss", "step", "loss"}}), "TrainOptions::records has \"loss\" twice"},
      {refused({.steps = 1, .actions = {{0, [](std::int64_t) {}}}}), "every 0 steps"},
      {refused({.steps = 1, .actions = {{1, {}}}}), "an action is empty"},
      {refused({.steps = 1, .on_step = [](const StepValues&) {}}), "on_step would not be told"},
      {refused({.steps = 1, .evaluate_every = 5}), "nothing evaluates"},
      {refused({.steps = 9, .evaluate = evaluate_nothing, .evaluate_every = 1, .patience = {"error", 2}}),
       "no metric \"error\""},
      {refused({.steps = 1, .patience = {"error", 2}}), "nothing evaluates"},
      {refused({.evaluate = evaluate_nothing, .patience = {"error", 2}}), "nothing ends the training"},
      {refused({.steps = 1, .save = {.every = 5}}), "no folder"},
      {refused({.steps = 1, .save = {.folder = directory / "a", .metadata = {{"step", "1"}}}}), "has \"step\""},
      {refused({.steps = 1, .save = {.folder = directory / "a", .metadata = {{"metric.x", "1"}}}}), "\"metric.x\""},
      {refused({.steps = 1,
                .evaluate = evaluate_nothing,
                .evaluate_every = 3,
                .save = {.folder = directory / "a", .every = 4, .keep_best = 1, .best = "x"}}),
       "none of them is known to be good"},
      {refused({.steps = 1, .evaluate = evaluate_nothing, .save = {.folder = directory / "a", .keep_best = 1}}),
       "no metric tells the best files"},
      {refused({.steps = 1, .save = {.folder = directory / "a", .keep_newest = 0}}), "keep_newest is 0"},
      {refused({.steps = 1, .save = {.folder = "/proc/none/a"}}), "the folder cannot be made"},
      {refused({.steps = 1, .log_file = directory / "none/metrics"}), "cannot be opened for lines of metrics"},
      {refused({.steps = 1, .log_every = 0}), "log_every is 0"},
  };
  for (const auto& row : rows) EXPECT_TRUE(contains(row.message, row.part)) << row.message << "\nexpected " << row.part;
}

TEST(StepsPerLaunchTest, DoublesWhileAStepGetsFaster) {
  using Seconds = StepsPerLaunch::Seconds;
  // Each launch takes 1 ms beside its steps, of 1 ms each.
  const auto size_for = [](double launch, double step, double longest) {
    StepsPerLaunch size(0, Seconds(longest));
    for (int i = 0; i < 100 && !size.is_found(); ++i)
      size.measured(size.steps(), Seconds(launch + step * static_cast<double>(size.steps())), true);
    EXPECT_TRUE(size.is_found());
    return size.steps();
  };
  EXPECT_EQ(size_for(1e-3, 1e-3, 1), 32);    // 64 would save less than 2 %
  EXPECT_EQ(size_for(1e-3, 1e-3, 0.01), 8);  // 16 would take 17 ms
  EXPECT_EQ(size_for(0, 1e-3, 1), 1);        // steps cost the same in any launch
  EXPECT_EQ(size_for(1, 1e-6, 1e9), 1024);   // the most
  EXPECT_EQ(size_for(1, 1, 1), 1);           // one step is too long already
  StepsPerLaunch given(7, Seconds(1));
  EXPECT_TRUE(given.is_found());
  given.measured(7, Seconds(100), true);
  EXPECT_EQ(given.steps(), 7);
}

// The values of a launch have room, whatever was prepared before; here for 15 of them.
TEST_P(OnDevice, LaunchesHaveNoMoreStepsThanRecordsHaveRoom) {
  for (std::int64_t steps : {0, 64}) {
    Graph g;
    const Value x = g.feed("x", f32, {kBatch});
    g.record("step", cast(g.step(), f32) + mean(x) * 0.0, {.capacity = 16});
    Program p = compile(g);
    Loader loader(p, numbers(), order(), {{"x", x}}, {.steps_per_launch = 12, .workers = 2, .ahead = 9});
    EXPECT_EQ(loader.next(1), 1);
    p.run();
    std::int64_t told = 1;
    TrainOptions options = quiet({.steps = 200, .steps_per_launch = steps, .records = {"step"}});
    options.on_step = [&](const StepValues& step) { EXPECT_EQ(step.values[0], static_cast<double>(told++)); };
    EXPECT_EQ(train(p, loader, options).steps, 200);
    EXPECT_EQ(told, 200);
  }
}

TEST(StepsPerLaunchTest, EndsWhereNoLaunchIsSoLongOrIsCaptured) {
  using Seconds = StepsPerLaunch::Seconds;
  StepsPerLaunch size(0, Seconds(1));
  for (int i = 0; i < 3; ++i) size.measured(size.steps(), Seconds(1e-3), true);
  EXPECT_EQ(size.steps(), 8);
  for (int i = 0; i < 7; ++i) size.measured(5, Seconds(100), true);  // where an epoch ends
  EXPECT_FALSE(size.is_found());
  size.measured(5, Seconds(100), true);
  EXPECT_TRUE(size.is_found());
  EXPECT_EQ(size.steps(), 4);
  StepsPerLaunch other(0, Seconds(1));
  for (int i = 0; i < 7; ++i) other.measured(1, Seconds(100), false);  // issued op by op, which takes long
  other.measured(1, Seconds(1e-3), true);
  EXPECT_EQ(other.steps(), 2);
}

}  // namespace
}  // namespace graphsink::train_test
