// SinkCache: what keys cost is bounded; graphs that are about to go are updated in place.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include "guest_fixture.h"

namespace graphsink::testing::cuda_sink_bound_test {
namespace {

class SinkCacheBound : public Guest {
 protected:
  // Three calls with this key, the last two of which are launches.
  void sink(SinkCache& sinks, int key, const std::function<void(cudaStream_t)>& work) {
    for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{key}, work);
  }
  std::function<void(cudaStream_t)> adds(int amount, int kernels = 1) {
    return [this, amount, kernels](cudaStream_t s) {
      for (int i = 0; i < kernels; ++i) guest_add(s, sums_[0], amount);
    };
  }
  // What a key of so many kernels takes, as SinkReport::bytes counts it.
  std::size_t bytes_of(int kernels) {
    SinkCache sinks;
    for (int i = 0; i < 2; ++i) sinks.run(stream_, Key{1}, adds(0, kernels));
    return sinks.report().bytes;
  }
  // Three keys of one kernel fit, and a fourth does not.
  std::size_t three_graphs() { return bytes_of(1) * 7 / 2; }
};

TEST_F(SinkCacheBound, TheLeastRecentlyUsedGoes) {
  const std::size_t bound = three_graphs();
  SinkCache sinks({.max_bytes = bound});
  for (int key : {1, 2, 3}) sink(sinks, key, adds(key));
  sinks.run(stream_, Key{1}, adds(1));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  sink(sinks, 4, adds(4));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::uint64_t launches = sinks.report().launches;
  EXPECT_GE(sinks.report().evictions, 1u);
  sinks.run(stream_, Key{1}, adds(1));
  EXPECT_EQ(sinks.report().launches, launches + 1) << "1 is still there";
  sinks.run(stream_, Key{2}, adds(2));
  EXPECT_EQ(sinks.report().launches, launches + 1) << "2 is not";
  EXPECT_EQ(read(sums_[0]), 3 * (1 + 2 + 3 + 4) + 1 + 1 + 2);
  EXPECT_LE(sinks.report().bytes, bound);
}

TEST_F(SinkCacheBound, AGraphThatIsAboutToGoIsUpdatedInPlace) {
  const std::size_t bound = three_graphs();
  SinkCache sinks({.max_bytes = bound});
  int expected = 0;
  for (int key = 1; key <= 20; ++key) {
    sink(sinks, key, adds(key));
    expected += 3 * key;
    ASSERT_EQ(read(sums_[0]), expected) << "key " << key;  // and none is in flight
  }
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.captures, 20u);
  EXPECT_EQ(report.instantiations + report.updates, 20u);
  EXPECT_LE(report.instantiations, 3u);
  EXPECT_EQ(report.update_refusals, 0u);
  EXPECT_LE(report.keys, 4u) << "a key whose graph was taken over is gone";
  for (int key = 1; key <= 20; ++key) sink(sinks, key, adds(key));
  EXPECT_EQ(read(sums_[0]), 2 * expected);
  EXPECT_EQ(sinks.report().as_is, 0u) << sinks.report();
}

// Four kernels and three edges, in a chain or as a star: the cache asks CUDA, which refuses.
TEST_F(SinkCacheBound, WhatCudaDoesNotUpdateIsInstantiatedAnew) {
  SinkCache sinks({.max_bytes = bytes_of(4) * 9 / 4});
  cudaStream_t sides[2] = {};
  cudaEvent_t forked = nullptr, joined[2] = {};
  ASSERT_EQ(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&sides[i], cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&joined[i], cudaEventDisableTiming), cudaSuccess);
  }
  for (int key = 0; key < 12; ++key) {
    sink(sinks, key, [&](cudaStream_t s) {
      if (key % 3 != 2) return adds(1, 4)(s);
      guest_add(s, sums_[0], 1);
      (void)cudaEventRecord(forked, s);
      for (int i = 0; i < 2; ++i) {
        (void)cudaStreamWaitEvent(sides[i], forked, 0);
        guest_add(sides[i], sums_[i + 1], 1);
        (void)cudaEventRecord(joined[i], sides[i]);
      }
      guest_add(s, sums_[0], 1);
      for (cudaEvent_t event : joined) (void)cudaStreamWaitEvent(s, event, 0);
    });
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  EXPECT_EQ(read(sums_[0]), 8 * 3 * 4 + 4 * 3 * 2);
  EXPECT_EQ(read(sums_[1]), 12);
  EXPECT_EQ(read(sums_[2]), 12);
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.captures, 12u);
  EXPECT_EQ(report.instantiations + report.updates, 12u);
  EXPECT_GT(report.update_refusals, 0u);
  EXPECT_GT(report.updates, 0u);
  EXPECT_EQ(cudaEventDestroy(forked), cudaSuccess);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cudaEventDestroy(joined[i]), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(sides[i]), cudaSuccess);
  }
}

// Holds launches up, but for at most 15 s: where a call waits for the device, the test fails instead of hanging.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> is_open = open.get_future().share();
  std::atomic<bool> was_forced = false;

  static void pass(void* self) {
    auto& gate = *static_cast<Gate*>(self);
    if (gate.is_open.wait_for(std::chrono::seconds(15)) != std::future_status::ready) gate.was_forced = true;
  }
};

TEST_F(SinkCacheBound, NoneInFlightGoes) {
  SinkCache sinks({.max_bytes = 1, .warm_runs = 0});
  Gate gate;
  for (int key = 1; key <= 3; ++key) {
    sinks.run(stream_, Key{key}, [&](cudaStream_t s) {
      (void)cudaLaunchHostFunc(s, Gate::pass, &gate);
      guest_add(s, sums_[0], key);
    });
    EXPECT_EQ(sinks.report().keys, static_cast<std::size_t>(key));
  }
  sinks.clear();
  EXPECT_EQ(sinks.report().keys, 3u);
  gate.open.set_value();
  EXPECT_EQ(read(sums_[0]), 1 + 2 + 3);
  EXPECT_FALSE(gate.was_forced) << "capturing, launching or dropping waits for launches under way";
  sinks.run(stream_, Key{4}, adds(4));
  EXPECT_EQ(sinks.report().keys, 1u);
  EXPECT_EQ(read(sums_[0]), 1 + 2 + 3 + 4);
}

TEST_F(SinkCacheBound, ClearDropsAllThatHaveEnded) {
  SinkCache sinks;
  for (int key : {1, 2, 3}) sink(sinks, key, adds(key));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  sinks.clear();
  EXPECT_EQ(sinks.report().keys, 0u);
  EXPECT_EQ(sinks.report().bytes, 0u);
  EXPECT_EQ(sinks.report().evictions, 3u);
  sink(sinks, 1, adds(1));
  EXPECT_EQ(read(sums_[0]), 3 * 7);
}

// Two steps in turn, of which only one fits.
TEST_F(SinkCacheBound, KeysThatDriveEachOtherOutAreSaidOnce) {
  for (const bool fits : {false, true}) {
    messages_.clear();
    SinkCache sinks(logged({.max_bytes = fits ? std::size_t{1} << 20 : std::size_t{250} << 10}));
    const int before = read(sums_[0]);
    for (int i = 0; i < 200; ++i) {
      sinks.run(stream_, Key{i % 2 == 0 ? "train" : "evaluate"}, adds(1, 20));
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    }
    EXPECT_EQ(read(sums_[0]), before + 200 * 20);
    ASSERT_EQ(messages_.size(), fits ? 0u : 1u) << sinks.report();
    if (fits) continue;
    for (const char* part : {"keys are dropped and captured again in turn", "may take 250 KiB",
                             "one key takes up to about 16", "SinkOptions::max_bytes"}) {
      EXPECT_TRUE(contains(messages_[0], part)) << messages_[0];
    }
    EXPECT_TRUE(contains(to_string(sinks.report()), "captured again in turn")) << sinks.report();
  }
}

TEST_F(SinkCacheBound, KeysThatDoNotReturnAreSaidOnce) {
  for (const int warm_runs : {0, 1}) {
    for (const int calls_per_key : {1, 3}) {
      SCOPED_TRACE(std::to_string(warm_runs) + ", " + std::to_string(calls_per_key));
      messages_.clear();
      SinkCache sinks(logged({.warm_runs = warm_runs}));
      for (int i = 0; i < 400; ++i) sinks.run(stream_, Key{i / calls_per_key}, adds(1));
      ASSERT_EQ(messages_.size(), calls_per_key == 1 ? 1u : 0u) << sinks.report();
      if (calls_per_key > 1) continue;
      EXPECT_TRUE(contains(messages_[0], "each of the last 128 calls had a key that the cache did not hold"));
      EXPECT_TRUE(contains(messages_[0], "in device memory instead of the key")) << messages_[0];
    }
  }
}

// Each call makes several steps of a shape, as an epoch may: that is of use.
TEST_F(SinkCacheBound, ManyStepsOfANewKeyAreOfUse) {
  SinkCache sinks(logged());
  for (int i = 0; i < 200; ++i) sinks.run(stream_, Key{i}, adds(1), {.steps = 4});
  EXPECT_TRUE(messages_.empty()) << messages_[0];
}

TEST_F(SinkCacheBound, IsAShareOfTheDevicesMemory) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  SinkCache sinks;
  sink(sinks, 1, adds(1));
  EXPECT_EQ(sinks.report().max_bytes, total / 64);
  const std::size_t bound = three_graphs();
  SinkCache bounded({.max_bytes = bound});
  EXPECT_EQ(bounded.report().max_bytes, bound);
}

#ifdef GRAPHSINK_EMULATED
TEST_F(SinkCacheBound, WithoutTheDevicesAnswerItIsSaid) {
  SinkCache sinks(logged());
  emu::fail("cudaMemGetInfo", 1, cudaErrorUnknown);
  sink(sinks, 1, adds(1));
  EXPECT_EQ(read(sums_[0]), 3);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "may take 64 MiB, because cudaMemGetInfo returned")) << messages_[0];
}

TEST_F(SinkCacheBound, ARefusedUpdateIsCounted) {
  const std::size_t bound = three_graphs();
  SinkCache sinks({.max_bytes = bound});
  emu::fail("cudaGraphExecUpdate", 1, cudaErrorGraphExecUpdateFailure, true);
  for (int key = 1; key <= 10; ++key) {
    sink(sinks, key, adds(key));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  emu::clear_faults();
  EXPECT_EQ(read(sums_[0]), 3 * 55);
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.instantiations, 10u);
  EXPECT_EQ(report.updates, 0u);
  EXPECT_GE(report.update_refusals, 7u);
  EXPECT_LE(report.bytes, bound);
}

TEST_F(SinkCacheBound, ManyCallsOverManyKeysTakeBoundedMemory) {
  constexpr int kKeys = 1000, kCalls = 100'000, kRepeats = 4;
  const std::size_t average = bytes_of(2);
  SinkCache sinks({.max_bytes = 16 * average});
  const std::size_t live_before = emu::live_objects().total();
  std::size_t most_bytes = 0, most_live = 0;
  for (int i = 0; i < kCalls; ++i) {
    const int key = i / kRepeats % kKeys;
    sinks.run(stream_, Key{key}, adds(1, 1 + key % 3));
    if (i % 100 != 99) continue;
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    most_live = std::max(most_live, emu::live_objects().total());
    most_bytes = std::max(most_bytes, sinks.report().bytes);
  }
  int expected = 0;
  for (int i = 0; i < kCalls; ++i) expected += 1 + i / kRepeats % kKeys % 3;
  EXPECT_EQ(read(sums_[0]), expected);
  const SinkReport report = sinks.report();
  EXPECT_LE(most_bytes, 20 * average) << "what is in flight may exceed the bound";
  EXPECT_LE(most_live - live_before, 20u * 3) << "a graph, an executable graph and an event for each key";
  EXPECT_EQ(report.warm, kCalls / kRepeats + 0u);
  EXPECT_EQ(report.launches, kCalls - report.warm);
  EXPECT_GE(report.evictions, kCalls / kRepeats - 100u);
  EXPECT_GE(report.updates, report.captures * 3 / 4) << report;
}
#endif

}  // namespace
}  // namespace graphsink::testing::cuda_sink_bound_test
