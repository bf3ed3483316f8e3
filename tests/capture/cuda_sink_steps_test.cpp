// SinkCache: several steps in one call of run(), as one launch where CUDA can hold them in a loop.
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "guest_fixture.h"

namespace graphsink::testing::cuda_sink_steps_test {
namespace {

class SinkSteps : public Guest {
 protected:
  // After `steps` of x = 2 x + 1, which depends on their number.
  static int doubled(int steps, int x = 0) {
    for (int i = 0; i < steps; ++i) x = 2 * x + 1;
    return x;
  }
  void run(SinkCache& sinks, std::int64_t steps) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_affine(s, sums_[0], 2, 1); }, {.steps = steps});
  }
};

TEST_F(SinkSteps, AreOneLaunch) {
  SinkCache sinks(logged());
  run(sinks, 5);
  EXPECT_EQ(read(sums_[0]), doubled(5));
  EXPECT_EQ(sinks.report().warm, 1u);
  EXPECT_EQ(sinks.report().launches, 1u) << "of the 4 steps after the warm one";
  run(sinks, 7);
  run(sinks, 2);
  run(sinks, 1);
  EXPECT_EQ(read(sums_[0]), doubled(15)) << "each call has its own number of steps, in order";
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.calls, 4u);
  EXPECT_EQ(report.steps, 15u);
  EXPECT_EQ(report.launches, 4u);
  EXPECT_EQ(report.loops, 3u);
  EXPECT_EQ(report.captures, 1u);
  EXPECT_GE(report.bytes, 2u * 112 * 1024 + 4 * 2560) << "the step, its copy, the loop and its count";
  EXPECT_TRUE(messages_.empty());
  EXPECT_TRUE(contains(to_string(report), "4 calls of 15 steps: 4 launches (3 of several steps), 1 warm"))
      << to_string(report);
}

// The handle cudaStreamPerThread is another stream in each thread, so the stream alone does not order two launches.
TEST_F(SinkSteps, OfOneHandleInTwoThreadsAreAsManyAsEachAskedFor) {
  SinkCache sinks({.warm_runs = 0});
  auto run_here = [&](std::int64_t steps) {
    sinks.run(cudaStreamPerThread, Key{}, [&](cudaStream_t s) { guest_affine(s, sums_[0], 2, 1); }, {.steps = steps});
  };
  run_here(10);
  std::thread([&] {
    run_here(3);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  }).join();
  EXPECT_EQ(sinks.report().loops, 2u) << sinks.report();
  EXPECT_EQ(read(sums_[0]), doubled(13));
}

TEST_F(SinkSteps, WarmRunsAndTheCaptureComeFirst) {
  SinkCache sinks({.warm_runs = 3});
  run(sinks, 2);
  EXPECT_EQ(sinks.report().warm, 2u);
  EXPECT_EQ(sinks.report().captures, 0u);
  run(sinks, 2);
  EXPECT_EQ(sinks.report().warm, 3u);
  EXPECT_EQ(sinks.report().launches, 1u);
  EXPECT_EQ(sinks.report().loops, 0u) << "there was one step left";
  EXPECT_EQ(read(sums_[0]), doubled(4));
}

// Work of several nodes, in order and on a fork, is repeated as a whole.
TEST_F(SinkSteps, RepeatTheWholeWorkInOrder) {
  cudaStream_t side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), cudaSuccess);
  SinkCache sinks(logged({.warm_runs = 0}));
  auto work = [&](cudaStream_t s) {
    guest_affine(s, sums_[0], 2, 1);
    (void)cudaEventRecord(forked, s);
    (void)cudaStreamWaitEvent(side, forked, 0);
    (void)cudaMemcpyAsync(sums_[1], sums_[0], sizeof(int), cudaMemcpyDeviceToDevice, side);
    (void)cudaEventRecord(joined, side);
    (void)cudaStreamWaitEvent(s, joined, 0);
    guest_affine(s, sums_[0], 3, 0);
    guest_affine(s, sums_[1], 5, 0);
  };
  int first = 0, second = 0;
  for (int steps : {4, 1, 3}) {
    sinks.run(stream_, Key{}, work, {.steps = steps});
    for (int i = 0; i < steps; ++i) {
      second = 5 * (2 * first + 1);
      first = 3 * (2 * first + 1);
    }
    EXPECT_EQ(read(sums_[0]), first);
    EXPECT_EQ(read(sums_[1]), second);
  }
  EXPECT_EQ(sinks.report().launches, 3u) << sinks.report();
  EXPECT_EQ(cudaEventDestroy(forked), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(joined), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
}

// Where CUDA cannot repeat the work, each step is a launch, and the reason is in the report.
TEST_F(SinkSteps, AreAChainOfLaunchesWhereCudaCannotLoop) {
  std::atomic<int> on_host = 0;
  struct Row {
    const char* name;
    const char* reason;
    std::function<void(cudaStream_t)> enqueue;
  };
  const Row rows[] = {
      {"host function", "it calls host functions (cudaLaunchHostFunc)",
       [&](cudaStream_t s) {
         (void)cudaLaunchHostFunc(
             s, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &on_host);
       }},
      {"allocation", "it allocates memory in stream order (cudaMallocAsync)",
       [](cudaStream_t s) {
         void* scratch = nullptr;
         (void)cudaMallocAsync(&scratch, sizeof(int), s);
         (void)cudaFreeAsync(scratch, s);
       }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    messages_.clear();
    SinkCache sinks(logged());
    const int before = read(sums_[0]);
    auto work = [&](cudaStream_t s) {
      guest_affine(s, sums_[0], 2, 1);
      row.enqueue(s);
    };
    for (int i = 0; i < 5; ++i) sinks.run(stream_, Key{"work"}, work, {.steps = 3});
    EXPECT_EQ(read(sums_[0]), doubled(15, before));
    const SinkReport report = sinks.report();
    EXPECT_EQ(report.launches, 14u) << report;
    EXPECT_EQ(report.loops, 0u);
    EXPECT_EQ(report.as_is, 0u);
    EXPECT_EQ(report.refused, 0u) << "single steps are launched";
    ASSERT_EQ(report.failures.size(), 1u);
    EXPECT_TRUE(contains(report.failures[0].problem, row.reason)) << report.failures[0].problem;
    EXPECT_EQ(report.failures[0].count, 3u) << "attempts";
    ASSERT_EQ(messages_.size(), 1u);
    EXPECT_TRUE(contains(messages_[0], "the work of key {\"work\"} takes a launch for each step: CUDA cannot repeat"))
        << messages_[0];
  }
  EXPECT_EQ(on_host, 15);
}

TEST_F(SinkSteps, RunAsTheyAreWhereNothingCanBeCaptured) {
  SinkCache sinks(logged());
  for (int i = 0; i < 3; ++i) {
    sinks.run(stream_, Key{},
              [&](cudaStream_t s) {
                guest_affine(s, sums_[0], 2, 1);
                (void)cudaStreamSynchronize(s);
                (void)cudaGetLastError();
              },
              {.steps = 4});
  }
  EXPECT_EQ(read(sums_[0]), doubled(12));
  EXPECT_EQ(sinks.report().as_is, 11u) << sinks.report();
  EXPECT_EQ(sinks.report().launches, 0u);
}

TEST_F(SinkSteps, InsideOfACaptureAllBecomeAPartOfIt) {
  SinkCache sinks;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  run(sinks, 3);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  std::size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 3u);
  EXPECT_EQ(sinks.report().inside, 3u);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(SinkSteps, LessThanOneIsAnError) {
  SinkCache sinks;
  for (int steps : {0, -3}) {
    const std::string message = message_of([&] { run(sinks, steps); });
    EXPECT_TRUE(contains(message, std::to_string(steps) + " steps")) << message;
    EXPECT_TRUE(contains(message, "ask for at least 1")) << message;
    EXPECT_TRUE(contains(message, "cuda_sink_steps_test.cpp:")) << message;
  }
  EXPECT_EQ(sinks.report().calls, 0u);
}

// A guard that finds a change refuses the key; captured anew, the loop has the new values as well.
TEST_F(SinkSteps, ALoopIsMadeAnewWithTheCapture) {
  SinkCache sinks(logged({.warm_runs = 0, .check_every = 1}));
  int amount = 1;
  auto add = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], amount); }, {.steps = 10}); };
  add();
  EXPECT_EQ(read(sums_[0]), 10);
  amount = 100;
  add();
  EXPECT_EQ(read(sums_[0]), 1010);
  EXPECT_EQ(sinks.report().as_is, 10u) << "the change was found";
  sinks.try_again();
  add();
  EXPECT_EQ(read(sums_[0]), 2010);
  EXPECT_EQ(sinks.report().loops, 2u) << sinks.report();
}

TEST_F(SinkSteps, ALoopUnderWayOutlivesItsCache) {
  for (int i = 0; i < 3; ++i) {
    SinkCache sinks({.warm_runs = 0});
    run(sinks, 3);
  }
  EXPECT_EQ(read(sums_[0]), doubled(9));
}

}  // namespace
}  // namespace graphsink::testing::cuda_sink_steps_test
