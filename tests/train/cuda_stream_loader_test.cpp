// StreamLoader: the batches of a Loader for code that knows nothing of graphsink, in the order of its stream.
#include "graphsink/stream_loader.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "stream_loader_fixture.h"

namespace graphsink::cuda_stream_loader_test {
namespace {

using testing::contains;
using testing::guest_append;
using testing::kBatch;
using testing::kSamples;
using testing::message_of;
using testing::numbers;
using testing::samples_of;
using testing::StreamLoaderTest;

// The reference is a program that a Loader feeds with the same source and order.
std::vector<float> epochs_of_a_program(const SampleOrder& order, std::int64_t epochs) {
  Graph g;
  const Value x = g.feed("x", f32, {kBatch}), label = g.feed("label", i32, {kBatch});
  g.record("x", x + cast(label, f32) * 0.0);
  Program p = compile(g);
  Loader loader(p, numbers(), order, {{"x", x}, {"label", label}});
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    while (const std::int64_t steps = loader.next()) p.run(sink, {.steps = steps});
  return p.records("x");
}

TEST_F(StreamLoaderTest, GivesTheBatchesOfALoaderInEverySetting) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 3});
  const std::vector<float> expected = epochs_of_a_program(order, 2);
  for (int workers : {0, 1, 4}) {
    for (int ahead : {1, 3}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(ahead) + " ahead");
      SinkCache sinks(logged());
      StreamLoader loader(stream_, numbers(), order, {.workers = workers, .ahead = ahead});
      EXPECT_EQ(loader.batches(), order.batches());
      for (std::int64_t epoch : {0, 1}) {
        EXPECT_EQ(loader.position(), (LoaderPosition{epoch, 0}));
        run_epoch(sinks, loader);
      }
      EXPECT_EQ(seen(), expected);
      const auto batches = static_cast<std::uint64_t>(2 * order.batches());
      EXPECT_EQ(sinks.report().launches, batches - 1) << "one key, warmed up once: " << sinks.report();
      const StreamLoaderReport report = loader.report();
      EXPECT_EQ(report.launches, 2 * order.batches());
      EXPECT_EQ(report.batches, 2 * order.batches());
      EXPECT_EQ(report.samples, 2 * order.batches() * kBatch);
      EXPECT_EQ(report.workers, workers);
      EXPECT_GE(report.copies, report.batches);
      EXPECT_LE(report.copies, report.batches + 1) << "one for each batch, and that of the next epoch";
      EXPECT_EQ(report.copied_bytes, report.copies * 512) << "two fields, each padded to 256 bytes";
      EXPECT_EQ(workers == 0 ? report.copied_ahead : 0, 0);
      EXPECT_TRUE(contains(to_string(report), std::to_string(report.copies) + " copies to the device of "))
          << to_string(report);
    }
  }
  EXPECT_TRUE(messages_.empty());
}

TEST_F(StreamLoaderTest, AddressesNeverChange) {
  SinkCache sinks(logged({.check_every = 1}));
  StreamLoader loader(stream_, numbers(), sample_order(kSamples, {.batch = kBatch}));
  const float* x = loader.data<float>("x");
  const int* label = loader.data<std::int32_t>("label");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(label) % 256, 0u);
  StreamLoader moved = std::move(loader);
  while (const std::int64_t samples = moved.next()) {
    EXPECT_EQ(moved.data<float>("x"), x);
    EXPECT_EQ(moved.data<std::int32_t>("label"), label);
    step(sinks, moved, samples);
  }
  moved.seek({3, 1});
  EXPECT_EQ(moved.next(), kBatch);
  EXPECT_EQ(moved.data<float>("x"), x);
  EXPECT_EQ(sinks.report().as_is, 0u) << "no check found a change: " << sinks.report();
}

TEST_F(StreamLoaderTest, GoesOnFromAPosition) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 9});
  for (int workers : {0, 2}) {
    SinkCache sinks;
    LoaderPosition saved;
    {
      StreamLoader loader(stream_, numbers(), order, {.workers = workers});
      run_epoch(sinks, loader);
      for (int i = 0; i < 5; ++i) step(sinks, loader, loader.next());  // and workers have begun what comes after it
      saved = loader.position();
      EXPECT_EQ(saved, (LoaderPosition{1, 5}));
      (void)seen();
      sinks.clear();
    }
    StreamLoader loader(stream_, numbers(), order, {.workers = workers});
    (void)loader.next();  // another batch is on its way
    loader.seek(saved);
    EXPECT_EQ(loader.position(), saved);
    run_epoch(sinks, loader);
    EXPECT_EQ(seen(), samples_of(order, 1, 5));
    EXPECT_EQ(loader.position(), (LoaderPosition{2, 0}));
    EXPECT_TRUE(contains(message_of([&] { loader.seek({0, order.batches()}); }), "StreamLoader::seek"));
  }
}

TEST_F(StreamLoaderTest, ABatchMayBeShorterAndHasAKeyOfItsOwn) {
  const SampleOrder order =
      sample_order(kSamples, {.batch = 8, .last_batch = LastBatch::shorter, .is_shuffled = false});
  SinkCache sinks;
  StreamLoader loader(stream_, numbers(), order);
  std::vector<std::int64_t> sizes;
  while (const std::int64_t samples = loader.next()) {
    sizes.push_back(samples);
    step(sinks, loader, samples);
  }
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{8, 8, 8, 8, 8, 8, 2}));
  EXPECT_EQ(seen(), samples_of(order, 0));
  EXPECT_EQ(sinks.report().keys, 2u);
}

TEST_F(StreamLoaderTest, BucketsOfSeveralSizes) {
  std::vector<std::int64_t> lengths(kSamples, 1);
  std::fill(lengths.begin() + 20, lengths.end(), 10);
  std::fill(lengths.begin() + 44, lengths.end(), 100);
  const LengthBucket buckets[] = {{1, 4}, {10, 12}, {100, 2}};
  const SampleOrder order = length_order(lengths, buckets, {.is_shuffled = false});
  SinkCache sinks;
  StreamLoader loader(stream_, numbers(), order, {.most_samples = 12});
  EXPECT_EQ(loader.most_samples(), 12);
  run_epoch(sinks, loader);
  EXPECT_EQ(seen(), samples_of(order, 0));
  StreamLoader small(stream_, numbers(), order);
  const std::string message = message_of([&] { run_epoch(sinks, small); });
  EXPECT_TRUE(contains(message, "batch 5 has 12 samples, and there is room for 4")) << message;
  EXPECT_TRUE(contains(message, "most_samples")) << message;
  EXPECT_EQ(seen().size(), 20u) << "the batches before it were brought";
}

TEST_F(StreamLoaderTest, PreparedFieldsAndAMask) {
  const SampleOrder order = sample_order(kSamples, {.batch = 8, .last_batch = LastBatch::pad, .is_shuffled = false});
  const auto prepare = [](const SampleKey& key, SampleMemory from, SampleMemory to) {
    EXPECT_EQ(key.seed, 7u);
    std::memcpy(to[0].data(), from[1].data(), sizeof(int));
    float x[2] = {};
    std::memcpy(x, from[0].data(), sizeof(float));
    x[1] = static_cast<float>(key.epoch) - x[0];
    std::memcpy(to[1].data(), x, sizeof x);
  };
  StreamLoader loader(stream_, numbers(), order,
                      {.prepare = prepare,
                       .seed = 7,
                       .fields = {{"twice", {DType::i32, {}}}, {"pair", {DType::f32, {2}}}},
                       .mask = "real"});
  ASSERT_EQ(loader.fields().size(), 3u);
  EXPECT_EQ(loader.fields()[2], (Field{"real", {DType::f32, {}}}));
  std::vector<float> pairs(16), mask(8);
  std::vector<int> twice(8);
  std::int64_t first = 0;
  while (loader.next()) {
    const auto fetch = [&](auto& to, const auto* from) {
      EXPECT_EQ(cudaMemcpyAsync(to.data(), from, to.size() * sizeof to[0], cudaMemcpyDeviceToHost, stream_),
                cudaSuccess);
    };
    fetch(pairs, loader.data<float>("pair"));
    fetch(twice, loader.data<std::int32_t>("twice"));
    fetch(mask, loader.data<float>("real"));
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (std::int64_t i = 0; i < 8; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto sample = static_cast<float>((first + i) % kSamples);
      EXPECT_EQ(pairs[2 * at], sample);
      EXPECT_EQ(pairs[2 * at + 1], -sample);
      EXPECT_EQ(twice[at], 2 * static_cast<int>(sample));
      EXPECT_EQ(mask[at], first + i < kSamples ? 1.0f : 0.0f);
    }
    first += 8;
  }
  EXPECT_EQ(first, 56);
}

// Samples 21 and 30, of batches 5 and 7, cannot be read, at first.
TEST_F(StreamLoaderTest, AnErrorComesInThePlaceOfItsBatch) {
  for (int workers : {0, 1, 4}) {
    std::atomic<bool> fails = true;
    const auto source = numbers([&](std::int64_t i) {
      if (fails && (i == 21 || i == 30)) throw std::runtime_error("sample " + std::to_string(i));
    });
    const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
    SinkCache sinks;
    StreamLoader loader(stream_, source, order, {.workers = workers});
    for (int batch = 0; batch < 5; ++batch) step(sinks, loader, loader.next());
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        (void)loader.next();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_TRUE(contains(e.what(), "sample 21")) << e.what();
      }
      EXPECT_EQ(loader.position(), (LoaderPosition{0, 5})) << "nothing is skipped";
    }
    fails = false;
    run_epoch(sinks, loader);
    EXPECT_EQ(seen(), samples_of(order, 0));
  }
}

// The loop of a trainer that waits for each step: the copy of the next batch was begun before the step.
TEST_F(StreamLoaderTest, TheNextBatchIsSentBeforeAStepIsWaitedFor) {
  std::mutex mutex;
  std::condition_variable is_prepared;
  std::int64_t begun = 0;  // samples, in order, as there is one worker
  const auto source = numbers([&](std::int64_t) {
    {
      const std::lock_guard lock(mutex);
      ++begun;
    }
    is_prepared.notify_all();
  });
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  SinkCache sinks;
  StreamLoader loader(stream_, source, order, {.ahead = 3});
  step(sinks, loader, loader.next());
  for (std::int64_t batch = 1; batch < order.batches(); ++batch) {
    {  // once a sample of batch + 2 was begun, batch + 1 is made
      std::unique_lock lock(mutex);
      is_prepared.wait(lock, [&] { return begun > (batch + 2) * kBatch; });
    }
    const std::int64_t copies = loader.report().copied_ahead;
    step(sinks, loader, loader.next());
    EXPECT_EQ(loader.report().copied_ahead, copies + 1) << "that of batch " << batch + 1;
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  EXPECT_EQ(seen(), samples_of(order, 0));
}

TEST_F(StreamLoaderTest, TheMemoryMayOutliveTheLoader) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  std::shared_ptr<void> kept;
  const float* x = nullptr;
  {
    StreamLoader loader(stream_, numbers(), order);
    EXPECT_EQ(loader.most_samples(), kBatch);
    ASSERT_EQ(loader.next(), kBatch);
    x = loader.data<float>("x");
    kept = loader.memory();
  }
  const std::weak_ptr<void> memory = kept;
  std::vector<float> seen(kBatch);
  ASSERT_EQ(cudaMemcpy(seen.data(), x, seen.size() * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen, (std::vector<float>{0, 1, 2, 3}));
  kept.reset();
  EXPECT_TRUE(memory.expired()) << "nothing else keeps it";
}

TEST_F(StreamLoaderTest, StepsOfOneLaunchShareABatch) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  SinkCache sinks;
  StreamLoader loader(stream_, numbers(), order);
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(loader.next(), kBatch);
    sinks.run(stream_, Key{},
              [&](cudaStream_t s) {
                guest_append(s, loader.data<float>("x"), loader.data<std::int32_t>("label"), kBatch, xs_, labels_,
                             count_);
              },
              {.steps = 2});
  }
  EXPECT_EQ(seen(), (std::vector<float>{0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7}));
}

TEST_F(StreamLoaderTest, TheLegacyStreamTakesBatches) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 4});
  StreamLoader loader(nullptr, numbers(), order);
  while (loader.next()) {
    guest_append(nullptr, loader.data<float>("x"), loader.data<std::int32_t>("label"), kBatch, xs_, labels_, count_);
  }
  EXPECT_EQ(seen(), samples_of(order, 0));
}

TEST_F(StreamLoaderTest, NeverBecomesAPartOfACapture) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  StreamLoader loader(stream_, numbers(), order);
  std::string in_capture, made_in_capture;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  in_capture = message_of([&] { (void)loader.next(); });
  made_in_capture = message_of([&] { StreamLoader(stream_, numbers(), order); });
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess) << "the capture is whole";
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_TRUE(contains(in_capture, "the stream is being captured")) << in_capture;
  EXPECT_TRUE(contains(in_capture, "StreamLoader::next")) << in_capture;
  EXPECT_TRUE(contains(made_in_capture, "the stream is being captured")) << made_in_capture;

  SinkCache sinks(logged());
  auto wrong = [&](cudaStream_t s) {
    (void)loader.next();
    guest_append(s, loader.data<float>("x"), loader.data<std::int32_t>("label"), kBatch, xs_, labels_, count_);
  };
  for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{}, wrong);
  ASSERT_EQ(sinks.report().failures.size(), 1u);
  EXPECT_TRUE(contains(sinks.report().failures[0].problem, "in a function that a SinkCache captures"))
      << sinks.report().failures[0].problem;
  EXPECT_EQ(seen(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})) << "so each call runs as it is";
}

// Somebody captures in the mode that refuses unsafe calls to all threads.
TEST_F(StreamLoaderTest, WorksBesideACaptureOfOthers) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 6});
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal), cudaSuccess);
  {
    StreamLoader loader(stream_, numbers(), order, {.workers = 2});
    while (loader.next())
      guest_append(stream_, loader.data<float>("x"), loader.data<std::int32_t>("label"), kBatch, xs_, labels_, count_);
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(seen(), samples_of(order, 0));
}

TEST_F(StreamLoaderTest, RefusesWhatDoesNotFit) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch});
  auto refused = [&](const StreamLoaderOptions& options, std::shared_ptr<const Source> source = numbers()) {
    return message_of([&] { StreamLoader(stream_, std::move(source), order, options); });
  };
  const Prepare prepare = [](const SampleKey&, SampleMemory, SampleMemory) {};
  const Field f32_field{"x", {DType::f32, {}}};
  StreamLoader loader(stream_, numbers(), order);
  const struct {
    std::string message;
    std::vector<std::string> parts;
  } rows[] = {
      {refused({}, nullptr), {"StreamLoader: no source", "source.h"}},
      {refused({.workers = -1}), {"workers is -1"}},
      {refused({.workers = 257}), {"256"}},
      {refused({.ahead = 0}), {"ahead is 0", "workers = 0"}},
      {refused({.most_samples = -1}), {"most_samples is -1"}},
      {refused({.most_samples = std::int64_t{1} << 62}), {"2^"}},
      {refused({.fields = {f32_field}}), {"fields without `prepare`"}},
      {refused({.prepare = prepare, .fields = {f32_field, f32_field}}), {"two fields are named \"x\""}},
      {refused({.prepare = prepare, .fields = {{"", {DType::f32, {}}}}}), {"a field without a name"}},
      {refused({.prepare = prepare, .fields = {{"x", {DType::f32, {1, 1, 1, 1, 1, 1, 1, 1}}}}}),
       {"more than 8 dimensions"}},
      {refused({.mask = "label"}), {"two fields are named \"label\""}},
      {refused({.device = 99}), {"StreamLoader: cuda:99", "feed a Program by a Loader"}},
      {message_of([&] { (void)loader.data<float>("y"); }), {"no field \"y\"", "\"x\", \"label\""}},
      {message_of([&] { (void)loader.data<float>("label"); }), {"\"label\" is i32[]", "f32 was asked for"}},
      {message_of([&] {
         StreamLoader gone(stream_, numbers(), order), moved = std::move(gone);
         (void)gone.next();
       }),
       {"moved-from StreamLoader"}},
  };
  for (const auto& row : rows) {
    EXPECT_TRUE(contains(row.message, "cuda_stream_loader_test.cpp:")) << row.message;
    for (const std::string& part : row.parts) EXPECT_TRUE(contains(row.message, part)) << row.message;
  }
}

TEST_F(StreamLoaderTest, AChildOfForkCanDropIt) {
  StreamLoader loader(stream_, numbers(), sample_order(kSamples, {.batch = kBatch}), {.workers = 3});
  EXPECT_EQ(loader.next(), kBatch);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool is_refused = contains(message_of([&] { (void)loader.next(); }), "StreamLoader::next");
    { StreamLoader gone = std::move(loader); }
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(loader.next(), kBatch);
}

}  // namespace
}  // namespace graphsink::cuda_stream_loader_test
