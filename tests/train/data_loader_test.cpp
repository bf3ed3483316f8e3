// Loader: the same batches for every setting, errors at their place, and what happens while launches run.
#include "graphsink/data_loader.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "messages.h"
#include "program_fixture.h"
#include "resident_bytes.h"
#include "temporary_directory.h"

namespace graphsink::data_loader_test {
namespace {

using testing::contains;
using testing::message_of;
using testing::OnDevice;

constexpr std::int64_t kSamples = 50, kBatch = 4;

// Sample i is the number i and the label 2 i.
std::shared_ptr<const Source> numbers(std::function<void(std::int64_t)> seen = {}) {
  return function_source(kSamples, {{"x", {DType::f32, {}}}, {"label", {DType::i32, {}}}},
                         [seen = std::move(seen)](std::int64_t i, SampleMemory to) {
                           if (seen) seen(i);
                           const auto x = static_cast<float>(i);
                           const auto label = static_cast<std::int32_t>(2 * i);
                           std::memcpy(to[0].data(), &x, sizeof x);
                           std::memcpy(to[1].data(), &label, sizeof label);
                         });
}

// Records the batches that its steps see.
struct Seeing {
  Graph g;
  Value x, label;
  explicit Seeing(Dim batch = kBatch) : x(g.feed("x", f32, {batch})), label(g.feed("label", i32, {batch})) {
    g.record("sum", sum(x));
    if (batch.is_open) return;
    g.record("x", x);
    g.record("label", cast(label, f32));
  }
};

std::vector<float> epoch_of(const SampleOrder& order, std::int64_t epoch, std::int64_t from = 0) {
  std::vector<float> all;
  for (std::int64_t b = from; b < order.batches(); ++b)
    for (std::int64_t sample : order.batch(epoch, b).samples) all.push_back(static_cast<float>(sample));
  return all;
}

TEST_P(OnDevice, LoaderGivesTheSameBatchesInEverySetting) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 3});
  std::vector<float> expected;
  for (std::int64_t epoch : {0, 1}) {
    const std::vector<float> more = epoch_of(order, epoch);
    expected.insert(expected.end(), more.begin(), more.end());
  }
  for (std::int64_t steps : {1, 4, 16}) {
    for (int workers : {0, 1, 4}) {
      for (int ahead : {1, 3}) {
        SCOPED_TRACE(std::to_string(steps) + " steps, " + std::to_string(workers) + " workers, " +
                     std::to_string(ahead) + " ahead");
        Seeing seeing;
        Program p = compile(seeing.g);
        Loader loader(p, numbers(), order, {{"x", seeing.x}, {"label", seeing.label}},
                      {.steps_per_launch = steps, .workers = workers, .ahead = ahead});
        for (std::int64_t epoch : {0, 1}) {
          EXPECT_EQ(loader.position(), (LoaderPosition{epoch, 0}));
          std::int64_t batches = 0;
          while (const std::int64_t next = loader.next()) {
            EXPECT_LE(next, steps);
            p.run(sink, {.steps = next});
            batches += next;
          }
          EXPECT_EQ(batches, order.batches());
        }
        EXPECT_EQ(p.records("x"), expected);
        std::vector<float> labels;
        for (float x : expected) labels.push_back(2 * x);
        EXPECT_EQ(p.records("label"), labels);
        const LoaderReport report = loader.report();
        EXPECT_EQ(report.batches, 2 * order.batches());
        EXPECT_EQ(report.samples, 2 * order.batches() * kBatch);
        EXPECT_EQ(report.launches, 2 * ((order.batches() + steps - 1) / steps));
        EXPECT_EQ(report.workers, workers);
      }
    }
  }
}

// What was trained does not depend on the setting either: the sums are those of floats, in the order of the steps.
TEST_P(OnDevice, TrainingDoesNotDependOnTheLoader) {
  std::optional<float> expected;
  for (std::int64_t steps : {1, 5}) {
    for (int workers : {0, 3}) {
      Graph g;
      Value x = g.feed("x", f32, {kBatch}), label = g.feed("label", i32, {kBatch});
      Variable w("w", Tensor({0.5f}));
      Value error = x * g.value(w) - cast(label, f32);
      sgd(mean(error * error), {w}, {.lr = 1e-4});
      Program p = compile(g);
      Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .seed = 1}), {{"x", x}, {"label", label}},
                    {.steps_per_launch = steps, .workers = workers});
      for (int epoch = 0; epoch < 3; ++epoch)
        while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
      const float trained = static_cast<float>(w.read().at(0));
      if (!expected) expected = trained;
      EXPECT_EQ(trained, *expected) << steps << " steps, " << workers << " workers";
    }
  }
}

// Data that live on the device and are gathered in the step train as data that are fed do, bit by bit.
TEST_P(OnDevice, TrainingOnGatheredDataIsTheSame) {
  const Tensor x = Tensor::uniform({kSamples, 3}, 5), labels = [] {
    Tensor t(i32, {kSamples});
    for (std::int64_t i = 0; i < kSamples; ++i)
      t.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<int>(i % 4);
    return t;
  }();
  auto train = [&](bool is_resident) {
    Graph g;
    Variable w("w", Tensor::uniform({3, 4}, 6)), all_x("x", x), all_labels("labels", labels);
    std::vector<std::pair<std::string, Value>> feeds;
    Value batch_x, batch_labels;
    if (is_resident) {
      const Value index = g.feed("index", i32, {kBatch});
      feeds = {{"index", index}};
      batch_x = gather(all_x, index);
      batch_labels = gather(all_labels, index);
    } else {
      batch_x = g.feed("x", f32, {kBatch, 3});
      batch_labels = g.feed("label", i32, {kBatch});
      feeds = {{"x", batch_x}, {"label", batch_labels}};
    }
    adamw(cross_entropy(matmul(batch_x, w), batch_labels), {w});
    Program p = compile(g);
    Loader loader(p, is_resident ? index_source(kSamples) : tensor_source({{"x", x}, {"label", labels}}),
                  sample_order(kSamples, {.batch = kBatch, .seed = 1}), feeds, {.steps_per_launch = 5, .workers = 2});
    for (int epoch = 0; epoch < 2; ++epoch)
      while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    return w.read();
  };
  const Tensor fed = train(false), gathered = train(true);
  ASSERT_EQ(gathered.type(), fed.type());
  EXPECT_EQ(std::memcmp(gathered.data(), fed.data(), fed.bytes()), 0);
}

TEST_P(OnDevice, LoaderGoesOnFromAPosition) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 9});
  for (int workers : {0, 2}) {
    Seeing seeing;
    Program p = compile(seeing.g);
    Loader loader(p, numbers(), order, {{"x", seeing.x}, {"label", seeing.label}},
                  {.steps_per_launch = 3, .workers = workers});
    EXPECT_EQ(loader.next(), 3);  // and workers have begun what comes after it
    EXPECT_EQ(loader.position(), (LoaderPosition{0, 3}));
    loader.seek({5, 7});
    EXPECT_EQ(loader.position(), (LoaderPosition{5, 7}));
    while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    EXPECT_EQ(p.records("x"), epoch_of(order, 5, 7));
    EXPECT_EQ(loader.position(), (LoaderPosition{6, 0}));
    loader.seek({0, 0});
    Loader moved = std::move(loader);
    EXPECT_EQ(moved.next(), 3);
  }
}

TEST_P(OnDevice, LoaderMasksWhatPads) {
  const SampleOrder order = sample_order(kSamples, {.batch = 8, .last_batch = LastBatch::pad, .is_shuffled = false});
  for (DType dtype : {DType::f32, DType::boolean}) {
    Graph g;
    Value x = g.feed("x", f32, {8}), label = g.feed("label", i32, {8}), real = g.feed("real", dtype, {8});
    g.record("real", sum(cast(real, f32)));
    g.record("sum", sum(x * cast(real, f32)) + cast(sum(label), f32) * 0.0);
    Program p = compile(g);
    Loader loader(p, numbers(), order, {{"x", x}, {"label", label}}, {.steps_per_launch = 3, .mask = real});
    while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    EXPECT_EQ(p.records("real"), (std::vector<float>{8, 8, 8, 8, 8, 8, 2}));
    EXPECT_EQ(p.records("sum").back(), 48.0f + 49.0f);
  }
}

TEST_P(OnDevice, ShorterBatchesAreLaunchesOfTheirOwn) {
  const SampleOrder order =
      sample_order(kSamples, {.batch = 8, .last_batch = LastBatch::shorter, .is_shuffled = false});
  Seeing seeing(open(8));
  Program p = compile(seeing.g);
  Loader loader(p, numbers(), order, {{"x", seeing.x}, {"label", seeing.label}}, {.steps_per_launch = 4});
  std::vector<std::int64_t> launches;
  while (const std::int64_t next = loader.next()) {
    launches.push_back(next);
    p.run(sink, {.steps = next});
  }
  EXPECT_EQ(launches, (std::vector<std::int64_t>{4, 2, 1}));
  EXPECT_EQ(p.records("sum").back(), 48.0f + 49.0f);
}

TEST_P(OnDevice, SamplesArePrepared) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch});
  for (int workers : {0, 3}) {
    Graph g;
    Value prepared = g.feed("prepared", f32, {kBatch, 2});
    g.record("prepared", prepared);
    Program p = compile(g);
    const auto prepare = [](const SampleKey& key, SampleMemory from, SampleMemory to) {
      float x = 0;
      std::memcpy(&x, from[0].data(), sizeof x);
      EXPECT_EQ(key.seed, 7u);
      EXPECT_EQ(static_cast<float>(key.sample), x);
      const float made[2] = {x + 0.5f, static_cast<float>(key.epoch)};
      std::memcpy(to[0].data(), made, sizeof made);
    };
    Loader loader(p, numbers(), order, {{"", prepared}}, {.workers = workers, .prepare = prepare, .seed = 7});
    std::vector<float> expected;
    for (std::int64_t epoch : {0, 1}) {
      while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
      for (float x : epoch_of(order, epoch)) {
        expected.push_back(x + 0.5f);
        expected.push_back(static_cast<float>(epoch));
      }
    }
    EXPECT_EQ(p.records("prepared"), expected);
  }
}

// Samples 21 and 30, of batches 5 and 7, cannot be read, at first. The batches before them are given, however many
// steps a launch has.
TEST_P(OnDevice, AnErrorComesInThePlaceOfItsBatch) {
  for (auto [workers, steps] : {std::pair{0, 2}, {4, 2}, {0, 16}, {3, 16}, {2, 1}}) {
    SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(steps) + " steps");
    std::atomic<bool> fails = true;
    const auto source = numbers([&](std::int64_t i) {
      if (fails && (i == 21 || i == 30)) throw Error("disk", Where(), "sample " + std::to_string(i), "try again");
    });
    Seeing seeing;
    Program p = compile(seeing.g);
    Loader loader(p, source, sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}),
                  {{"x", seeing.x}, {"label", seeing.label}}, {.steps_per_launch = steps, .workers = workers});
    for (std::int64_t batches = 0, next = 0; batches < 5; batches += next) {
      next = loader.next();
      p.run(sink, {.steps = next});
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_TRUE(contains(message_of([&] { loader.next(); }), "sample 21"));
      EXPECT_EQ(loader.position(), (LoaderPosition{0, 5})) << "nothing is skipped";
    }
    fails = false;
    while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    EXPECT_EQ(p.records("x"), epoch_of(sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}), 0));
  }
}

// Launches that end where the caller says, and those whose length was changed meanwhile.
TEST_P(OnDevice, LaunchesAreCutWhereTheyAreAskedTo) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 2});  // 12 batches
  for (int workers : {0, 3}) {
    SCOPED_TRACE(workers);
    Seeing seeing;
    Program p = compile(seeing.g);
    Loader loader(p, numbers(), order, {{"x", seeing.x}, {"label", seeing.label}},
                  {.steps_per_launch = 5, .workers = workers});
    const auto next = [&](std::int64_t most) {
      const std::int64_t steps = loader.next(most);
      if (steps > 0) p.run(sink, {.steps = steps});
      return steps;
    };
    EXPECT_EQ(next(3), 3);
    EXPECT_EQ(loader.position(), (LoaderPosition{0, 3}));
    EXPECT_EQ(next(100), 2);
    EXPECT_EQ(next(1), 1);
    EXPECT_EQ(next(4), 4);
    EXPECT_EQ(loader.position(), (LoaderPosition{0, 10}));
    EXPECT_EQ(next(1), 1);
    EXPECT_EQ(next(1), 1);
    EXPECT_EQ(loader.position(), (LoaderPosition{1, 0}));
    EXPECT_EQ(next(1), 0);
    EXPECT_EQ(p.records("x"), epoch_of(order, 0));
    loader.set_steps_per_launch(12);
    std::int64_t longest = 0;
    while (const std::int64_t steps = next(12)) longest = std::max(longest, steps);
    EXPECT_EQ(p.records("x"), epoch_of(order, 1));
    EXPECT_EQ(longest, 12);
    EXPECT_EQ(next(3), 3);
    loader.set_steps_per_launch(4);  // what was prepared behind is prepared anew
    EXPECT_EQ(next(100), 4);
    while (next(100) > 0) continue;
    EXPECT_EQ(p.records("x"), epoch_of(order, 2));
    EXPECT_TRUE(contains(message_of([&] { (void)loader.next(0); }), "at most 0 steps"));
    EXPECT_TRUE(contains(message_of([&] { loader.set_steps_per_launch(0); }), "steps_per_launch is 0"));
  }
}

TEST_P(OnDevice, ASecondThreadOfALoaderIsRefused) {
  const Loader* called = nullptr;
  std::string refused;
  const auto source = numbers(
      [&](std::int64_t) { std::thread([&] { refused = message_of([&] { (void)called->position(); }); }).join(); });
  Seeing seeing;
  Program p = compile(seeing.g);
  Loader loader(p, source, sample_order(kSamples, {.batch = kBatch}), {{"x", seeing.x}, {"label", seeing.label}},
                {.workers = 0});
  called = &loader;
  EXPECT_EQ(loader.next(), 1);
  EXPECT_TRUE(contains(refused, "Loader: another thread is in a call of it")) << refused;
  std::thread([&] { EXPECT_EQ(loader.position(), (LoaderPosition{0, 1})) << "another thread may take over"; }).join();
}

// Sample 5 comes when the function has been called twice.
TEST_P(OnDevice, AFunctionIsCalledWhileDataAreLate) {
  for (int workers : {1, 3}) {
    SCOPED_TRACE(workers);
    std::mutex mutex;
    std::condition_variable called;
    int calls = 0;
    const auto source = numbers([&](std::int64_t i) {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(called.wait_for(lock, std::chrono::minutes(1), [&] { return i != 5 || calls >= 2; }));
    });
    const std::thread::id caller = std::this_thread::get_id();
    const auto while_waiting = [&] {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(std::this_thread::get_id(), caller);
      called.notify_all();
      if (++calls == 1) throw std::runtime_error("no patience");
    };
    const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
    Seeing seeing;
    Program p = compile(seeing.g);
    Loader loader(p, source, order, {{"x", seeing.x}, {"label", seeing.label}},
                  {.steps_per_launch = 3, .workers = workers, .while_waiting = while_waiting});
    EXPECT_THROW(loader.next(), std::runtime_error);
    EXPECT_EQ(loader.position(), (LoaderPosition{0, 0}));
    EXPECT_GE(loader.report().waited_seconds, 0.05) << "the wait that was ended counts";
    EXPECT_EQ(loader.report().starved, 0) << "no launch was returned";
    while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    EXPECT_EQ(p.records("x"), epoch_of(order, 0)) << "nothing is skipped";
  }
}

TEST_P(OnDevice, WhatNextCallsCannotChangeTheLoader) {
  for (const bool is_waiting : {true, false}) {
    SCOPED_TRACE(is_waiting);
    Loader* called = nullptr;
    std::vector<std::string> refused;
    std::atomic<bool> may_go_on = !is_waiting;
    const auto use = [&] {
      if (!refused.empty()) return;
      refused = {message_of([&] { (void)called->next(); }), message_of([&] {
                   called->seek({0, 3});
                 }),
                 message_of([&] { called->set_steps_per_launch(7); })};
      EXPECT_EQ(called->position(), (LoaderPosition{0, 0}));
      EXPECT_EQ(called->report().launches, 0);
      may_go_on = true;
    };
    const auto source = numbers([&](std::int64_t) {
      while (!may_go_on) std::this_thread::yield();
      if (!is_waiting) use();
    });
    const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
    Seeing seeing;
    Program p = compile(seeing.g);
    LoaderOptions options{.steps_per_launch = 3, .workers = is_waiting ? 1 : 0};
    if (is_waiting) options.while_waiting = use;
    Loader loader(p, source, order, {{"x", seeing.x}, {"label", seeing.label}}, options);
    called = &loader;
    while (const std::int64_t next = loader.next()) p.run(sink, {.steps = next});
    EXPECT_EQ(p.records("x"), epoch_of(order, 0));
    ASSERT_EQ(refused.size(), 3u);
    for (const std::string& each : refused)
      EXPECT_TRUE(contains(each, "was called in a function that next() calls")) << each;
  }
}

TEST_P(OnDevice, AFunctionIsCalledWhileDataAreRead) {
  using Clock = std::chrono::steady_clock;
  bool is_late = true;
  const auto source = numbers([&](std::int64_t) {
    const auto begin = Clock::now();
    while (is_late && Clock::now() - begin < std::chrono::milliseconds(60)) continue;
  });
  const auto while_waiting = [&] {
    is_late = false;
    throw std::runtime_error("no patience");
  };
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  Seeing seeing;
  Program p = compile(seeing.g);
  Loader loader(p, source, order, {{"x", seeing.x}, {"label", seeing.label}},
                {.steps_per_launch = 3, .workers = 0, .while_waiting = while_waiting});
  EXPECT_THROW(loader.next(), std::runtime_error);
  std::int64_t batches = 0;
  // On a machine that stops for a while, the function is called again.
  while (batches < order.batches()) {
    try {
      const std::int64_t next = loader.next();
      p.run(sink, {.steps = next});
      batches += next;
    } catch (const std::runtime_error&) {
      continue;
    }
  }
  EXPECT_EQ(p.records("x"), epoch_of(order, 0)) << "nothing is skipped";
}

// The third batch of the only launch comes when the first two were returned.
TEST_P(OnDevice, AStarvedLaunchIsShrunk) {
  std::mutex mutex;
  std::condition_variable may_go_on;
  bool goes_on = false;
  const auto source = numbers([&](std::int64_t i) {
    std::unique_lock lock(mutex);
    may_go_on.wait(lock, [&] { return i < 2 * kBatch || goes_on; });
  });
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  Seeing seeing;
  Program p = compile(seeing.g);
  Loader loader(p, source, order, {{"x", seeing.x}, {"label", seeing.label}},
                {.steps_per_launch = 12, .workers = 1, .when_starved = WhenStarved::shrink});
  std::int64_t given = 0;
  while (given < 2) {
    const std::int64_t steps = loader.next();
    p.run(sink, {.steps = steps});
    given += steps;
  }
  EXPECT_EQ(given, 2);
  EXPECT_GE(loader.report().starved, 1);
  EXPECT_GE(loader.report().shrunk, 1);
  {
    const std::lock_guard lock(mutex);
    goes_on = true;
  }
  may_go_on.notify_all();
  while (const std::int64_t steps = loader.next()) p.run(sink, {.steps = steps});
  EXPECT_EQ(p.records("x"), epoch_of(order, 0));
  EXPECT_EQ(loader.report().batches, 12);
}

TEST(DataLoader, AReportSaysWhatToChange) {
  LoaderReport report{.launches = 20,
                      .batches = 80,
                      .samples = 320,
                      .starved = 10,
                      .shrunk = 4,
                      .ready = 50,
                      .seconds = 10,
                      .waited_seconds = 5,
                      .read_seconds = 2,
                      .prepared_seconds = 13,
                      .workers = 1};
  EXPECT_EQ(idle_share(report), 0.5);
  EXPECT_EQ(workers_to_keep_up(report), 3);
  EXPECT_TRUE(contains(to_string(report), "without data for at most 50 % of the time"));
  EXPECT_TRUE(contains(to_string(report), "10 launches were starved, 4 of them shrunk; 2.5 batches were ready"));
  EXPECT_TRUE(contains(to_string(report), "preparing limits: 2 more workers would keep up"));
  report.workers = 3;
  EXPECT_TRUE(contains(to_string(report), "preparing limits: more launches ahead"));
  report.starved = 1;
  EXPECT_FALSE(contains(to_string(report), "limits"));
  report.workers = 0;
  EXPECT_TRUE(contains(to_string(report), "workers would read beside the launches"));
  EXPECT_EQ(idle_share({}), 0);
  EXPECT_EQ(workers_to_keep_up({}), 1);
}

// An op on the host waits in step n until batch n + 1 is prepared: if nobody prepared it meanwhile, it would not come.
TEST_P(OnDevice, ABatchIsPreparedWhileTheLaunchBeforeRuns) {
  std::mutex mutex;
  std::condition_variable is_prepared;
  std::map<std::int64_t, std::int64_t> prepared;  // samples of a batch
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  Graph g;
  const Value x = g.feed("x", f32, {kBatch}), label = g.feed("label", i32, {kBatch});
  ExternalOp wait{.name = "wait_for_the_next", .outputs = {{DType::f32, {kBatch}}}};
  wait.cpu = [&](const CpuArgs& a) {
    const auto next = static_cast<std::int64_t>(*a.in<float>(0)) / kBatch + 1;
    std::unique_lock lock(mutex);
    const auto is_there = [&] { return next >= order.batches() || prepared[next] == kBatch; };
    if (!is_prepared.wait_for(lock, std::chrono::minutes(2), is_there)) throw std::runtime_error("it does not come");
    std::copy_n(a.in<float>(0), kBatch, a.out<float>(0));
  };
  g.record("x", external_op(wait, {x})[0] + cast(label, f32) * 0.0);
  CompileOptions options;
  options.tuning.threads = 1;
  Program p = compile(g, options);
  const auto prepare = [&](const SampleKey& key, SampleMemory from, SampleMemory to) {
    for (std::size_t i = 0; i < from.size(); ++i) std::memcpy(to[i].data(), from[i].data(), from[i].size());
    {
      const std::lock_guard lock(mutex);
      ++prepared[key.sample / kBatch];
    }
    is_prepared.notify_all();
  };
  Loader loader(p, numbers(), order, {{"x", x}, {"label", label}}, {.workers = 1, .ahead = 1, .prepare = prepare});
  while (const std::int64_t steps = loader.next()) p.run(sink, {.steps = steps});
  EXPECT_EQ(p.records("x"), epoch_of(order, 0));
}

// Windows at random places of a file of 8 GiB, which has holes in the place of zeros.
TEST(DataLoader, ATokenFileMayBeLargerThanMemory) {
  const TemporaryDirectory directory;
  const auto path = directory / "tokens.bin";
  std::ofstream(path) << "";
  std::filesystem::resize_file(path, std::uintmax_t{8} << 30);
  const auto source = token_source(path, {.length = 64, .stride = 1, .type = TokenType::uint16});
  EXPECT_GT(source->size(), std::int64_t{4'000'000'000});
  Graph g;
  const Value input = g.feed("input", i32, {8, 64}), target = g.feed("target", i32, {8, 64});
  g.record("sum", cast(sum(input) + sum(target), f32));
  Program p = compile(g);
  Loader loader(p, source, sample_order(source->size(), {.batch = 8, .seed = 1}),
                {{"input", input}, {"target", target}}, {.steps_per_launch = 4, .workers = 2});
  const auto run = [&](int launches) {
    for (int i = 0; i < launches; ++i) p.run(sink, {.steps = loader.next()});
    p.sync();
  };
  run(10);
  const std::size_t before = testing::resident_bytes("RssAnon:");
  run(100);
  if (!testing::kSanitized) {
    EXPECT_LT(testing::resident_bytes("RssAnon:"), before + (std::size_t{20} << 20));
  }
}

// Workers read no more than the launches that are prepared ahead, however long the program takes.
TEST(DataLoader, WorkersStopWhereEnoughIsReady) {
  std::mutex mutex;
  std::multiset<std::int64_t> read;
  const auto source = numbers([&](std::int64_t i) {
    const std::lock_guard lock(mutex);
    read.insert(i);
  });
  Seeing seeing;
  Program p = compile(seeing.g);
  {
    Loader loader(p, source, sample_order(kSamples, {.batch = kBatch, .is_shuffled = false}),
                  {{"x", seeing.x}, {"label", seeing.label}}, {.steps_per_launch = 2, .workers = 3, .ahead = 2});
    EXPECT_TRUE(read.empty()) << "before the first call";
    EXPECT_EQ(loader.next(), 2);
  }  // the workers have ended
  EXPECT_GE(read.size(), 8u);
  EXPECT_LE(read.size(), 3u * 8u);
  for (std::int64_t i : read) EXPECT_EQ(read.count(i), 1u) << i;
}

TEST(DataLoader, SamplesThatNoMemoryHoldsAreRefused) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers end a process that asks for so much";
  Seeing seeing;
  Program p = compile(seeing.g);
  const auto large =
      function_source(kSamples, {{"x", {DType::u8, {std::int64_t{1} << 55}}}}, [](std::int64_t, SampleMemory) {});
  for (int workers : {0, 2}) {
    EXPECT_TRUE(contains(message_of([&] {
                           Loader(p, large, sample_order(kSamples, {.batch = kBatch}), {{"x", seeing.x}},
                                  {.workers = workers, .prepare = [](const SampleKey&, SampleMemory, SampleMemory) {}});
                         }),
                         "there is no memory for a sample"));
  }
}

// An order for more samples than there are. The error names the line that made the Loader.
TEST(DataLoader, ASampleThatIsNotThereIsAnError) {
  Seeing seeing;
  Program p = compile(seeing.g);
  try {
    const Loader loader(p, numbers(), sample_order(kSamples + 1, {.batch = kBatch}),
                        {{"x", seeing.x}, {"label", seeing.label}});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.where().file_name(), "data_loader_test.cpp")) << e.what();
    EXPECT_EQ(e.problem(), "the order is of " + std::to_string(kSamples + 1) + " samples, and the source has " +
                               std::to_string(kSamples));
  }
}

TEST(DataLoader, AChildOfForkCanDropIt) {
  Seeing seeing;
  Program p = compile(seeing.g);
  Loader loader(p, numbers(), sample_order(kSamples, {.batch = kBatch}), {{"x", seeing.x}, {"label", seeing.label}},
                {.workers = 3});
  EXPECT_EQ(loader.next(), 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool is_refused = false;
    try {
      (void)loader.next();
    } catch (const Error&) {
      is_refused = true;
    }
    { Loader gone = std::move(loader); }
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(loader.next(), 1);
}

TEST(DataLoader, RefusesWhatDoesNotFit) {
  Graph g;
  Value x = g.feed("x", f32, {kBatch}), label = g.feed("label", i32, {kBatch}), wide = g.feed("wide", f32, {kBatch, 2}),
        other = g.feed("other", f32, {5}), scalar = g.feed("scalar", f32, Shape{}),
        second = g.feed("second", f32, {kBatch, open(2)}), again = g.feed("again", f32, {kBatch}),
        given = g.input("given", f32, {kBatch});
  g.output("sum",
           sum(x) + cast(sum(label), f32) + sum(wide) + sum(other) + scalar + sum(second) + sum(again) + sum(given));
  Program p = compile(g);
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch});
  using Feeds = std::vector<std::pair<std::string, Value>>;
  auto refused = [&](Feeds feeds, const LoaderOptions& options = {}, std::shared_ptr<const Source> source = numbers()) {
    return message_of([&] { Loader(p, source, order, std::move(feeds), options); });
  };
  const Feeds both{{"x", x}, {"label", label}};
  const struct {
    std::string message;
    std::vector<std::string> parts;
  } rows[] = {
      {refused(both, {}, nullptr), {"no source", "source.h"}},
      {refused({}), {"no feeds"}},
      {refused({{"x", x}}), {"1 feeds for 2 fields"}},
      {refused({{"y", x}, {"label", label}}), {"no field \"y\"", "\"x\", \"label\""}},
      {refused({{"x", wide}, {"label", label}}), {"the field \"x\" is f32[], and a sample of its feed is f32[2]"}},
      {refused({{"x", other}, {"label", label}}), {"f32[5]", "a batch has 4 samples"}},
      {refused({{"x", scalar}, {"label", label}}), {"f32[]", "[batch, ...]"}},
      {refused({{"x", second}, {"label", label}}), {"axis 1 is open"}},
      {refused({{"x", x}, {"x", again}}), {"field \"x\" has two feeds"}},
      {refused({{"x", x}, {"label", x}}), {"that of another field"}},
      {refused({{"x", given}, {"label", label}}), {"no slices", "feed()"}},
      {refused({{"x", Graph().feed("x", f32, {kBatch})}, {"label", label}}), {"another graph"}},
      {message_of([&] {
         Loader(p, numbers(), sample_order(kSamples, {.batch = kBatch, .last_batch = LastBatch::shorter}), both);
       }),
       {"the last batch has 2 samples", "be open"}},
      {refused(both, {.steps_per_launch = 0}), {"steps_per_launch is 0"}},
      {refused(both, {.workers = -1}), {"workers is -1"}},
      {refused(both, {.workers = 257}), {"256"}},
      {refused(both, {.ahead = 0}), {"ahead is 0", "workers = 0"}},
      {refused(both, {.mask = label}), {"the mask is i32[4]"}},
      {refused(both, {.mask = other}), {"the mask is f32[5]"}},
      {message_of([&] {
         Loader loader(p, numbers(), order, both);
         loader.seek({0, order.batches()});
       }),
       {"no batch 12 of epoch 0", "0 to 11"}},
      {message_of([&] {
         Loader loader(p, numbers(), order, both), moved = std::move(loader);
         loader.next();
       }),
       {"moved-from Loader"}},
  };
  for (const auto& row : rows)
    for (const std::string& part : row.parts) EXPECT_TRUE(contains(row.message, part)) << row.message;
}

}  // namespace
}  // namespace graphsink::data_loader_test
