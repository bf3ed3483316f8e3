// SinkCache: which calls run as they are, which are captured, which are launched, and that each does its work once.
#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "guest_fixture.h"

namespace graphsink::testing::cuda_sink_cache_test {
namespace {

class SinkCacheRuns : public Guest {};

TEST_F(SinkCacheRuns, AKeyIsWarmThenCapturedThenLaunched) {
  SinkCache sinks;
  int calls = 0;
  for (int i = 0; i < 5; ++i) {
    sinks.run(stream_, Key{32}, [&](cudaStream_t s) {
      ++calls;
      guest_add(s, sums_[0], 1);
      guest_add(s, sums_[0], 10);
    });
    EXPECT_EQ(read(sums_[0]), 11 * (i + 1));
  }
  EXPECT_EQ(calls, 2) << "once as it is, once for the capture";
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.calls, 5u);
  EXPECT_EQ(report.warm, 1u);
  EXPECT_EQ(report.launches, 4u);
  EXPECT_EQ(report.captures, 1u);
  EXPECT_EQ(report.instantiations, 1u);
  EXPECT_EQ(report.keys, 1u);
  EXPECT_EQ(report.captured, 1u);
  EXPECT_EQ(report.as_is + report.inside + report.refused + report.evictions, 0u);
  EXPECT_GE(report.bytes, (112u + 2 * 5 / 2) * 1024) << "a graph of two nodes";
  EXPECT_TRUE(report.failures.empty());
}

TEST_F(SinkCacheRuns, WarmRunsCanBeManyOrNone) {
  for (int warm : {0, 3}) {
    SinkCache sinks({.warm_runs = warm});
    for (int i = 0; i < 5; ++i)
      sinks.run(stream_, Key{warm}, [&](cudaStream_t s) { guest_add(s, sums_[warm / 3], 1); });
    EXPECT_EQ(read(sums_[warm / 3]), 5);
    EXPECT_EQ(sinks.report().warm, static_cast<std::uint64_t>(warm));
    EXPECT_EQ(sinks.report().launches, static_cast<std::uint64_t>(5 - warm));
  }
}

TEST_F(SinkCacheRuns, ASecondThreadIsRefused) {
  SinkCache sinks;
  std::string refused;
  sinks.run(stream_, Key{1}, [&](cudaStream_t s) {
    guest_add(s, sums_[0], 1);
    std::thread([&] { refused = message_of([&] { (void)sinks.report(); }); }).join();
    EXPECT_EQ(sinks.report().calls, 1u) << "its own thread may ask";
  });
  EXPECT_TRUE(contains(refused, "SinkCache: another thread is in a call of it")) << refused;
  std::thread([&] { EXPECT_EQ(sinks.report().calls, 1u) << "another thread may take over"; }).join();
}

TEST_F(SinkCacheRuns, AlternatingKeysKeepTheirWork) {
  SinkCache sinks;
  int expected = 0;
  for (int i = 0; i < 12; ++i) {
    const int amount = i % 3 == 0 ? 1 : 100;
    sinks.run(stream_, Key{amount}, [&](cudaStream_t s) { guest_affine(s, sums_[0], 2, amount); });
    expected = 2 * expected + amount;
  }
  EXPECT_EQ(read(sums_[0]), expected) << "in this order";
  EXPECT_EQ(sinks.report().captures, 2u);
  EXPECT_EQ(sinks.report().launches, 10u);
}

TEST_F(SinkCacheRuns, PointersThatChangeArePartOfTheKey) {
  SinkCache sinks;
  for (int i = 0; i < 9; ++i) {
    int* sum = sums_[i % 3];
    sinks.run(stream_, Key{sum}, [&](cudaStream_t s) { guest_add(s, sum, i % 3 + 1); });
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(sums_[i]), 3 * (i + 1));
}

TEST_F(SinkCacheRuns, GrowingShapesAreKeysOfTheirOwn) {
  SinkCache sinks;
  int expected = 0;
  for (int length = 1; length <= 6; ++length) {
    for (int i = 0; i < 3; ++i) {
      sinks.run(stream_, Key{length}, [&](cudaStream_t s) {
        for (int k = 0; k < length; ++k) guest_add(s, sums_[0], k + 1);
      });
      expected += length * (length + 1) / 2;
    }
  }
  EXPECT_EQ(read(sums_[0]), expected);
  EXPECT_EQ(sinks.report().captured, 6u);
}

TEST_F(SinkCacheRuns, EachStreamHasAnExecutableGraphOfItsOwn) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamDefault), cudaSuccess);
  SinkCache sinks;
  for (int i = 0; i < 8; ++i) {
    const bool first = i % 2 == 0;
    sinks.run(first ? stream_ : other, Key{1}, [&](cudaStream_t s) { guest_add(s, sums_[first ? 0 : 1], 1); });
  }
  EXPECT_EQ(read(sums_[0]), 4);
  EXPECT_EQ(read(sums_[1]), 4);
  EXPECT_EQ(sinks.report().captured, 2u);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(SinkCacheRuns, ForksThatJoinAndHostFunctionsAreCaptured) {
  cudaStream_t side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), cudaSuccess);
  std::atomic<int> on_host = 0;
  SinkCache sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      guest_add(s, sums_[0], 1);
      (void)cudaEventRecord(forked, s);
      (void)cudaStreamWaitEvent(side, forked, 0);
      guest_add(side, sums_[1], 2);
      (void)cudaEventRecord(joined, side);
      (void)cudaStreamWaitEvent(s, joined, 0);
      (void)cudaLaunchHostFunc(
          s, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &on_host);
    });
  }
  EXPECT_EQ(read(sums_[0]), 4);
  EXPECT_EQ(read(sums_[1]), 8);
  EXPECT_EQ(on_host, 4);
  EXPECT_EQ(sinks.report().launches, 3u) << sinks.report();
  EXPECT_EQ(cudaEventDestroy(forked), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(joined), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
}

TEST_F(SinkCacheRuns, MemoryThatIsAllocatedAndFreedInTheFunctionIsCaptured) {
  SinkCache sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      void* scratch = nullptr;
      (void)cudaMallocAsync(&scratch, sizeof(int), s);
      (void)cudaMemsetAsync(scratch, 0, sizeof(int), s);
      guest_add(s, static_cast<int*>(scratch), 1);
      guest_add(s, sums_[0], 1);
      (void)cudaFreeAsync(scratch, s);
    });
  }
  EXPECT_EQ(read(sums_[0]), 4);
  EXPECT_EQ(sinks.report().launches, 3u) << sinks.report();
}

// A library's handle is bound to the caller's stream, whatever stream the function is given.
TEST_F(SinkCacheRuns, WorkOnTheCallersStreamIsCapturedToo) {
  SinkCache sinks;
  for (int i = 0; i < 4; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t) { guest_add(stream_, sums_[0], 1); });
  EXPECT_EQ(read(sums_[0]), 4);
  EXPECT_EQ(sinks.report().launches, 3u) << sinks.report();
}

TEST_F(SinkCacheRuns, CallsForTheLegacyStreamAreCapturedOnAStreamOfTheCache) {
  for (cudaStream_t legacy : {cudaStream_t{nullptr}, cudaStreamLegacy}) {
    SinkCache sinks(logged());
    const int before = read(sums_[0]);
    for (int i = 0; i < 4; ++i) sinks.run(legacy, Key{}, [&](cudaStream_t s) { guest_affine(s, sums_[0], 2, 1); });
    EXPECT_EQ(read(sums_[0]), 16 * before + 15);
    EXPECT_EQ(sinks.report().launches, 3u) << sinks.report();
  }
  EXPECT_TRUE(messages_.empty());
}

TEST_F(SinkCacheRuns, InsideOfACaptureTheWorkBecomesAPartOfIt) {
  SinkCache sinks;
  auto run = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); }); };
  for (int i = 0; i < 2; ++i) run();
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  run();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(read(sums_[0]), 2) << "what is captured does not run";
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(read(sums_[0]), 3);
  EXPECT_EQ(sinks.report().inside, 1u);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(SinkCacheRuns, AFunctionMayUseTheCacheItself) {
  SinkCache sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.run(stream_, Key{"outer"}, [&](cudaStream_t s) {
      guest_add(s, sums_[0], 1);
      sinks.run(s, Key{"inner"}, [&](cudaStream_t t) { guest_add(t, sums_[1], 1); });
    });
  }
  EXPECT_EQ(read(sums_[0]), 5);
  EXPECT_EQ(read(sums_[1]), 5);
  EXPECT_EQ(sinks.report().captured, 1u) << "the outer one, with what is in it";
}

// It would be done at the capture, and be missing from every launch.
TEST_F(SinkCacheRuns, ACaptureRefusesACallForAStreamThatTakesNoPart) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  SinkCache sinks({.warm_runs = 0});
  for (int i = 0; i < 3; ++i) {
    sinks.run(stream_, Key{"outer"}, [&](cudaStream_t s) {
      guest_add(s, sums_[0], 1);
      sinks.run(other, Key{"inner"}, [&](cudaStream_t t) { guest_add(t, sums_[1], 1); });
    });
  }
  EXPECT_EQ(read(sums_[0]), 3);
  EXPECT_EQ(read(sums_[1]), 3);
  const SinkReport report = sinks.report();
  ASSERT_EQ(report.failures.size(), 1u) << report;
  EXPECT_TRUE(contains(report.failures[0].problem, "the function threw: cuda_sink_cache_test.cpp:")) << report;
  EXPECT_TRUE(contains(report.failures[0].problem, "on a stream that takes no part in that")) << report;
  EXPECT_TRUE(contains(report.failures[0].remedy, "pass the stream that the function is given")) << report;
  EXPECT_EQ(report.launches, 3u) << "of the inner key";
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(SinkCacheRuns, AnotherThreadMayAllocateDuringACapture) {
  SinkCache sinks({.warm_runs = 0});
  sinks.run(stream_, Key{}, [&](cudaStream_t s) {
    guest_add(s, sums_[0], 1);
    std::thread([] {
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
      EXPECT_EQ(cudaFree(memory), cudaSuccess);
    }).join();
  });
  EXPECT_EQ(read(sums_[0]), 1);
  EXPECT_EQ(sinks.report().launches, 1u) << sinks.report();
}

TEST_F(SinkCacheRuns, WhatAFunctionThrowsAsItIsPassesThrough) {
  SinkCache sinks;
  auto fail = [](cudaStream_t) { throw std::runtime_error("no more data"); };
  EXPECT_THROW(sinks.run(stream_, Key{}, fail), std::runtime_error);
  for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
  EXPECT_EQ(read(sums_[0]), 3);
  EXPECT_EQ(sinks.report().launches, 2u) << "the call that threw was not a warm run";
}

int* plain_sum = nullptr;
int plain_function(cudaStream_t stream) {
  guest_add(stream, plain_sum, 1);
  return 7;
}

TEST_F(SinkCacheRuns, AnythingThatCanBeCalledIsAFunction) {
  SinkCache sinks;
  plain_sum = sums_[0];
  int mutable_calls = 0;
  auto owned = std::make_unique<int>(1);
  const std::function<void(cudaStream_t)> wrapped = [&](cudaStream_t s) { guest_add(s, sums_[0], 1); };
  for (int i = 0; i < 3; ++i) {
    sinks.run(stream_, Key{"function"}, plain_function);
    sinks.run(stream_, Key{"pointer"}, &plain_function);
    sinks.run(stream_, Key{"mutable"}, [&, n = 0](cudaStream_t s) mutable {
      mutable_calls += ++n;
      guest_add(s, sums_[0], 1);
    });
    sinks.run(stream_, Key{"std::function"}, wrapped);
    sinks.run(stream_, Key{"bound"}, std::bind_front([](int* sum, cudaStream_t s) { guest_add(s, sum, 1); }, sums_[0]));
  }
  auto move_only = [&, p = std::move(owned)](cudaStream_t s) { guest_add(s, sums_[0], *p); };
  for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{"move-only"}, move_only);
  EXPECT_EQ(read(sums_[0]), 18);
  EXPECT_EQ(mutable_calls, 2);
  EXPECT_EQ(sinks.report().launches, 12u) << sinks.report();
}

TEST_F(SinkCacheRuns, ACacheThatWasMovedFromSaysSo) {
  SinkCache sinks;
  const SinkCache moved = std::move(sinks);
  const int line = __LINE__ + 1;
  const std::string message = message_of([&] { sinks.run(stream_, Key{}, plain_function); });
  EXPECT_TRUE(contains(message, "cuda_sink_cache_test.cpp:" + std::to_string(line))) << message;
  EXPECT_TRUE(contains(message, "it was moved from")) << message;
  EXPECT_TRUE(contains(message_of([&] { sinks.clear(); }), "it was moved from"));
  EXPECT_EQ(moved.report().calls, 0u);
}

TEST_F(SinkCacheRuns, ALaunchUnderWayOutlivesItsCache) {
  for (int i = 0; i < 3; ++i) {
    SinkCache sinks({.warm_runs = 0});
    sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
    SinkCache moved = std::move(sinks);
    moved.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
  }
  EXPECT_EQ(read(sums_[0]), 6);
}

TEST_F(SinkCacheRuns, TwoThreadsCaptureAtOnceWhileAThirdAllocates) {
  constexpr int kRuns = 200;
  std::atomic<bool> stop = false;
  std::thread allocating([&] {
    while (!stop) {
      void* memory = nullptr;
      if (cudaMalloc(&memory, 64) == cudaSuccess) (void)cudaFree(memory);
    }
  });
  std::uint64_t launches[2] = {};
  std::thread threads[2];
  for (int t = 0; t < 2; ++t) {
    threads[t] = std::thread([&, t] {
      cudaStream_t stream = nullptr;
      (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      SinkCache sinks({.max_bytes = 400 << 10});  // so that many are captured
      for (int i = 0; i < kRuns; ++i) {
        sinks.run(stream, Key{i / 4}, [&](cudaStream_t s) { guest_add(s, sums_[t], 1); });
      }
      launches[t] = sinks.report().launches;
      (void)cudaStreamSynchronize(stream);
      (void)cudaStreamDestroy(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  allocating.join();
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(read(sums_[t]), kRuns);
    EXPECT_EQ(launches[t], kRuns * 3u / 4);
  }
}

#ifdef GRAPHSINK_EMULATED
// CUDA refuses a kernel for a stream of another device than the current one, which a thread may well have.
TEST_F(SinkCacheRuns, TheStreamsDeviceIsTheCurrentOneOfEachCall) {
  emu::set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int* sum = nullptr;
  cudaStream_t on_second = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemset(sum, 0, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&on_second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    SinkCache sinks(logged({.warm_runs = 2}));
    for (int i = 0; i < 6; ++i) {
      for (const bool throws : {false, true}) {
        for (const int steps : {1, 3}) {
          const auto work = [&](cudaStream_t s) {
            int device = -1;
            EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
            EXPECT_EQ(device, 1);
            guest_add(s, sum, 1);
            cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            EXPECT_EQ(cudaStreamIsCapturing(s, &status), cudaSuccess);
            if (throws && status != cudaStreamCaptureStatusNone) throw std::runtime_error("not while it captures");
          };
          sinks.run(on_second, Key{throws, steps}, work, {.steps = steps});
          int device = -1;
          EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
          EXPECT_EQ(device, 0) << "the caller's";
        }
      }
      guest_add(stream_, sums_[0], 1);
      sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
    }
    EXPECT_GT(sinks.report().launches, 0u);
    EXPECT_GT(sinks.report().as_is, 0u);
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(read(sums_[0]), 12);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(read(sum), 6 * 2 * (1 + 3));
  EXPECT_EQ(cudaFree(sum), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(on_second), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  emu::set_device_count(1);
}
#endif

}  // namespace
}  // namespace graphsink::testing::cuda_sink_cache_test
