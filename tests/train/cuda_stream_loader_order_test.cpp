// StreamLoader on the software device, which tells what has run and makes calls fail.
#ifdef GRAPHSINK_EMULATED
#include <algorithm>
#include <string>
#include <vector>

#include "graphsink/stream_loader.h"
#include "stream_loader_fixture.h"

namespace graphsink::cuda_stream_loader_order_test {
namespace {

using testing::contains;
using testing::guest_append;
using testing::kBatch;
using testing::kSamples;
using testing::message_of;
using testing::numbers;
using testing::samples_of;
using testing::StreamLoaderTest;

// The software device runs nothing before somebody waits for it, and then only what that depends on. Here next()
// waits, for pinned memory that a copy has read. Two copies belong to each step: to the device, and from there to the
// slices. If the first waited for the step before, it would be the only one beyond those of the steps that ran.
TEST_F(StreamLoaderTest, ABatchIsCopiedBesideTheStepBefore) {
  emu::set_seed(0);
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  for (int workers : {0, 1}) {
    SinkCache sinks;
    StreamLoader loader(stream_, numbers(), order, {.workers = workers});
    const emu::Executed before = emu::executed();
    std::size_t furthest = 0;
    while (const std::int64_t samples = loader.next()) {
      const emu::Executed now = emu::executed();
      const std::size_t copies = now.copies - before.copies, steps = now.kernels - before.kernels;
      furthest = std::max(furthest, copies > 2 * steps ? copies - 2 * steps : 0);
      step(sinks, loader, samples);
    }
    EXPECT_GE(furthest, 3u) << "copies beyond those of all steps that ran, with " << workers << " workers";
    EXPECT_EQ(seen(), samples_of(order, 0));
  }
}

TEST_F(StreamLoaderTest, EveryOrderOfTheDeviceGivesTheSameBatches) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .seed = 5});
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    for (int workers : {0, 2}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(workers) + " workers");
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      emu::set_seed(seed);
      SinkCache sinks;
      StreamLoader loader(stream_, numbers(), order, {.workers = workers, .ahead = 1});
      for (int epoch = 0; epoch < 2; ++epoch) run_epoch(sinks, loader);
      std::vector<float> expected = samples_of(order, 0);
      const std::vector<float> more = samples_of(order, 1);
      expected.insert(expected.end(), more.begin(), more.end());
      EXPECT_EQ(seen(), expected);
    }
  }
}

// A call that CUDA refuses is an Error of next(), which names the caller's line, and the next call brings that batch.
TEST_F(StreamLoaderTest, WhatCudaRefusesIsTriedAgain) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  for (const std::uint64_t seed : {0, 6, 12, 15, 18})
    for (const char* call : {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamIsCapturing"}) {
      for (int nth = 1; nth <= 4; ++nth) {
        for (int workers : {0, 2}) {
          SCOPED_TRACE(std::string(call) + ", " + std::to_string(nth) + ", " + std::to_string(workers) + " workers");
          emu::set_seed(seed);
          StreamLoader loader(stream_, numbers(), order, {.workers = workers});
          std::int64_t given = 0, errors = 0;
          std::array<float, kBatch> held{};  // by data() after the Error
          std::int64_t failed = 0;           // the batch that it was about
          const auto next = [&] {
            try {
              if (loader.next() == 0) return false;
            } catch (const Error& e) {
              ++errors;
              EXPECT_TRUE(contains(e.what(), "cuda_stream_loader_order_test.cpp:")) << e.what();
              EXPECT_TRUE(contains(e.what(), call)) << e.what();
              EXPECT_EQ(loader.position(), (LoaderPosition{0, given}));
              failed = given;
              EXPECT_EQ(
                  cudaMemcpyAsync(held.data(), loader.data<float>("x"), sizeof held, cudaMemcpyDeviceToHost, stream_),
                  cudaSuccess);
              return true;
            }
            guest_append(stream_, loader.data<float>("x"), loader.data<std::int32_t>("label"), kBatch, xs_, labels_,
                         count_);
            ++given;
            return true;
          };
          for (int i = 0; i < 3; ++i) next();
          emu::fail(call, nth, cudaErrorInvalidValue);
          for (int i = 0; i < 3; ++i) next();
          emu::clear_faults();
          while (next()) continue;
          EXPECT_LE(errors, 1) << "none where the copy ahead is tried again";
          EXPECT_GE(errors, workers == 0 ? 1 : 0);
          EXPECT_EQ(given, order.batches());
          EXPECT_EQ(seen(), samples_of(order, 0));
          if (errors > 0) {
            const bool is_right =
                held[0] == static_cast<float>((failed - 1) * kBatch) || held[0] == static_cast<float>(failed * kBatch);
            EXPECT_TRUE(is_right) << "batch " << failed << " failed, and data() held a sample " << held[0];
          }
        }
      }
    }
}

// The host waits for work of the caller's only where the stream is several batches behind.
TEST_F(StreamLoaderTest, FirstBatchesDoNotWaitForTheStream) {
  emu::set_seed(0);  // with which nothing runs that nobody waits for
  StreamLoader loader(stream_, numbers(), sample_order(kSamples, {.batch = kBatch}), {.workers = 0});
  bool has_run = false;
  ASSERT_EQ(cudaLaunchHostFunc(
                stream_, [](void* flag) { *static_cast<bool*>(flag) = true; }, &has_run),
            cudaSuccess);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loader.next(), kBatch);
  EXPECT_FALSE(has_run);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(has_run);
}

TEST_F(StreamLoaderTest, GivesEverythingBack) {
  const emu::LiveObjects before = emu::live_objects();
  {
    StreamLoader loader(stream_, numbers(), sample_order(kSamples, {.batch = kBatch}), {.workers = 2});
    for (int i = 0; i < 5; ++i) (void)loader.next();
  }
  EXPECT_EQ(emu::live_objects().total(), before.total());
}

// Each call of a kind fails in turn, in the constructor, in next() or in the destructor, which logs it or, for a wait,
// waits in another way.
TEST_F(StreamLoaderTest, WhatFailsLeavesNothingBehind) {
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  for (const char* call : {"cudaMalloc", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
                           "cudaMemsetAsync", "cudaStreamSynchronize", "cudaStreamGetDevice", "cudaMemcpyAsync",
                           "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize"}) {
    bool has_failed = true;
    for (int nth = 1; has_failed; ++nth) {
      SCOPED_TRACE(std::string(call) + ", " + std::to_string(nth));
      ASSERT_LT(nth, 100);
      const emu::LiveObjects before = emu::live_objects();
      emu::reset_calls();
      emu::fail(call, nth, cudaErrorMemoryAllocation);
      messages_.clear();
      const std::string message = message_of([&] {
        StreamLoader loader(stream_, numbers(), order, {.workers = 0, .log = logged().log});
        for (int i = 0; i < 6; ++i) (void)loader.next();
      });
      emu::clear_faults();
      has_failed = !emu::injected().empty();
      const bool is_said = contains(message, call) || !messages_.empty();
      const bool is_waited_otherwise = message == "nothing was thrown" && std::string(call) == "cudaStreamSynchronize";
      EXPECT_TRUE(is_said == has_failed || is_waited_otherwise) << message;
      EXPECT_EQ(emu::live_objects().total(), before.total());
    }
  }
}

TEST_F(StreamLoaderTest, TheStreamIsOneOfItsDevice) {
  emu::set_device_count(2);
  const SampleOrder order = sample_order(kSamples, {.batch = kBatch, .is_shuffled = false});
  const std::string message = message_of([&] { StreamLoader(stream_, numbers(), order, {.device = 1}); });
  EXPECT_TRUE(contains(message, "the stream belongs to cuda:0")) << message;
  EXPECT_TRUE(contains(message, "StreamLoaderOptions::device")) << message;
  cudaStream_t second = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    StreamLoader loader(second, numbers(), order, {.device = 1});
    EXPECT_EQ(loader.next(), kBatch);
    float first[kBatch] = {};
    EXPECT_EQ(cudaMemcpyAsync(first, loader.data<float>("x"), sizeof first, cudaMemcpyDeviceToHost, second),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_EQ(first[3], 3.0f);
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 0) << "the caller's device stays the current one";
  }
  EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
  emu::set_device_count(1);
}

}  // namespace
}  // namespace graphsink::cuda_stream_loader_order_test
#endif
