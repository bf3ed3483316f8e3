// SinkCache where the work cannot be captured: it runs as it is, once, and the reason is told.
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "guest_fixture.h"

namespace graphsink::testing::cuda_sink_refusal_test {
namespace {

// What the function does besides adding 1, and what the reason and the remedy must name.
struct Illegal {
  const char* name;
  std::function<void(cudaStream_t)> act;
  const char* problem;
  const char* remedy = "allocate, free, wait and query outside of it";
  const char* more = "";  // in the problem, too
};

void fork_to(cudaStream_t from, cudaStream_t to) {
  cudaEvent_t event = nullptr;
  (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  (void)cudaEventRecord(event, from);
  (void)cudaStreamWaitEvent(to, event, 0);
  (void)cudaEventDestroy(event);
}

class SinkCacheRefuses : public Guest {
 protected:
  void SetUp() override {
    Guest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&before_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(before_, other_), cudaSuccess);
    ASSERT_EQ(cudaGraphCreate(&graph_, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec_, graph_, 0), cudaSuccess);
  }
  void TearDown() override {
    if (exec_) (void)cudaGraphExecDestroy(exec_);
    if (graph_) (void)cudaGraphDestroy(graph_);
    if (before_) (void)cudaEventDestroy(before_);
    if (other_) (void)cudaStreamDestroy(other_);
    Guest::TearDown();
  }

  std::vector<Illegal> illegal_calls();

  cudaStream_t other_ = nullptr;
  cudaEvent_t before_ = nullptr;  // recorded before any call of run()
  cudaGraph_t graph_ = nullptr;   // without nodes
  cudaGraphExec_t exec_ = nullptr;
  const int numbers_[6] = {1, 2, 3, 4, 5, 6};
};

std::vector<Illegal> SinkCacheRefuses::illegal_calls() {
  return {
      {"cudaMalloc",
       [](cudaStream_t) {
         void* memory = nullptr;
         if (cudaMalloc(&memory, 16) == cudaSuccess) (void)cudaFree(memory);
       },
       "cuMemAlloc returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ("},
      {"cudaFree", [](cudaStream_t) { (void)cudaFree(nullptr); },
       "cuMemFree returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ("},
      {"cudaMallocHost",
       [](cudaStream_t) {
         void* memory = nullptr;
         if (cudaMallocHost(&memory, 16) == cudaSuccess) (void)cudaFreeHost(memory);
       },
       "cuMemHostAlloc returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ("},
      {"cudaStreamSynchronize", [](cudaStream_t s) { (void)cudaStreamSynchronize(s); },
       "cuStreamSynchronize returned "},
      {"cudaStreamSynchronize of another stream", [this](cudaStream_t) { (void)cudaStreamSynchronize(other_); },
       "cuStreamSynchronize returned "},
      {"cudaStreamQuery", [](cudaStream_t s) { (void)cudaStreamQuery(s); }, "cuStreamQuery returned "},
      {"cudaDeviceSynchronize", [](cudaStream_t) { (void)cudaDeviceSynchronize(); }, "cuCtxSynchronize returned "},
      {"cudaEventSynchronize", [this](cudaStream_t) { (void)cudaEventSynchronize(before_); },
       "cuEventSynchronize returned "},
      {"the legacy stream", [this](cudaStream_t) { guest_add(nullptr, sums_[1], 1); },
       "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "not on the default stream"},
      {"cudaMemcpy",
       [this](cudaStream_t) {
         int value = 0;
         (void)cudaMemcpy(&value, sums_[2], sizeof value, cudaMemcpyDeviceToHost);
       },
       "cuMemcpyDtoH returned ", "not on the default stream"},
      {"an event of before", [this](cudaStream_t s) { (void)cudaStreamWaitEvent(s, before_, 0); },
       "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "in front of run()"},
      {"a capture in it",
       [](cudaStream_t s) {
         cudaGraph_t graph = nullptr;
         if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return;
         (void)cudaStreamEndCapture(s, &graph);
         (void)cudaGraphDestroy(graph);
       },
       "cuStreamBeginCapture returned CUDA_ERROR_ILLEGAL_STATE", "begin no capture"},
      {"a fork that does not join",
       [this](cudaStream_t s) {
         fork_to(s, other_);
         guest_add(other_, sums_[1], 1);
       },
       "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "wait for an event of every stream"},
      {"a launch of a graph", [this](cudaStream_t s) { (void)cudaGraphLaunch(exec_, s); },
       "cuGraphLaunch returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "child graph node"},
      {"a call that fails, then one that is refused",
       [](cudaStream_t) {
         void* memory = nullptr;
         EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
         if (cudaMallocHost(&memory, 16) == cudaSuccess) (void)cudaFreeHost(memory);
         (void)cudaGetLastError();
       },
       "cuMemHostAlloc returned "},
      {"memory that stays",
       [](cudaStream_t s) {
         void* memory = nullptr;
         (void)cudaMallocAsync(&memory, 16, s);
         cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
         (void)cudaStreamIsCapturing(s, &status);
         if (status == cudaStreamCaptureStatusNone) (void)cudaFree(memory);
       },
       "allocates memory in stream order 1 time and frees it 0 times", "cudaMallocAsync() allocates there"},
      {"an exception in a capture",
       [](cudaStream_t s) {
         cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
         (void)cudaStreamIsCapturing(s, &status);
         if (status != cudaStreamCaptureStatusNone) throw std::runtime_error("not while capturing");
       },
       "the function threw: not while capturing", "mend the cause"},
      {"an exception after a fork that does not join",
       [this](cudaStream_t s) {
         fork_to(s, other_);
         cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
         (void)cudaStreamIsCapturing(s, &status);
         if (status != cudaStreamCaptureStatusNone) throw Error("loader", Where(), "the data has ended", "begin anew");
       },
       "the function threw: loader: the data has ended", "begin anew"},
      {"an exception after a call that was refused",
       [](cudaStream_t s) {
         if (cudaStreamSynchronize(s) != cudaSuccess) throw std::runtime_error("cannot wait");
       },
       "the function threw: cannot wait", "allocate, free, wait and query outside of it",
       "cuStreamSynchronize returned "},
  };
}

TEST_F(SinkCacheRefuses, EachIllegalCallByNameAndRunsTheWorkOnce) {
  for (const Illegal& illegal : illegal_calls()) {
    SCOPED_TRACE(illegal.name);
    messages_.clear();
    SinkCache sinks(logged({.watch_legacy_stream = true}));
    const int before = read(sums_[0]), beside = read(sums_[1]);
    constexpr int kRuns = 6;
    for (int i = 0; i < kRuns; ++i) {
      sinks.run(stream_, Key{"batch", 0}, [&](cudaStream_t s) {
        guest_add(s, sums_[0], 1);
        illegal.act(s);
      });
      EXPECT_EQ(read(sums_[0]), before + i + 1) << "call " << i;
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
      EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
      EXPECT_EQ(status, cudaStreamCaptureStatusNone);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "call " << i;
    }
    const int more = read(sums_[1]) - beside;
    EXPECT_TRUE(more == 0 || more == kRuns) << more;
    const SinkReport report = sinks.report();
    EXPECT_EQ(report.launches, 0u);
    EXPECT_EQ(report.as_is, kRuns - 1u);
    EXPECT_EQ(report.refused, 1u) << "after three failures";
    ASSERT_EQ(report.failures.size(), 1u) << report;
    EXPECT_EQ(report.failures[0].count, 3u);
    EXPECT_EQ(report.failures[0].key, R"({"batch", 0})");
    const std::string& problem = report.failures[0].problem;
    EXPECT_TRUE(contains(problem, illegal.problem)) << problem;
    EXPECT_TRUE(contains(problem, illegal.more)) << problem;
    EXPECT_TRUE(contains(report.failures[0].remedy, illegal.remedy)) << problem << ": " << report.failures[0].remedy;
    ASSERT_EQ(messages_.size(), 1u) << "logged once";
    EXPECT_TRUE(contains(messages_[0], problem) && contains(messages_[0], R"({"batch", 0})")) << messages_[0];
    EXPECT_TRUE(contains(to_string(report), problem)) << report;
  }
}

TEST_F(SinkCacheRefuses, StrictlyNothingRunsAndTheUsersLineIsNamed) {
  SinkCache sinks(logged({.strict = true}));
  auto work = [&](cudaStream_t s) {
    guest_add(s, sums_[0], 1);
    (void)cudaStreamSynchronize(s);
  };
  sinks.run(stream_, Key{8}, work);
  for (int i = 0; i < 5; ++i) {
    const int line = __LINE__ + 1;
    const std::string message = message_of([&] { sinks.run(stream_, Key{8}, work); });
    EXPECT_TRUE(contains(message, "cuda_sink_refusal_test.cpp:" + std::to_string(line))) << message;
    EXPECT_TRUE(contains(message, "sink: the work of key {8} cannot be launched")) << message;
    EXPECT_TRUE(contains(message, "remedy: ")) << message;
  }
  EXPECT_EQ(read(sums_[0]), 1) << "the warm run";
  EXPECT_EQ(sinks.report().as_is, 0u);
}

TEST_F(SinkCacheRefuses, UntilAskedAgain) {
  SinkCache sinks(logged());  // the tenth call is the sixth as it is: two before the next attempt
  bool waits = true;
  int functions = 0;
  auto run = [&] {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      ++functions;
      guest_add(s, sums_[0], 1);
      if (waits) (void)cudaStreamSynchronize(s);
    });
  };
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(functions, 10 + 3) << "three attempts";
  waits = false;
  run();
  EXPECT_EQ(sinks.report().launches, 0u);
  sinks.try_again();
  EXPECT_EQ(sinks.report().refused, 0u);
  for (int i = 0; i < 2; ++i) run();
  EXPECT_EQ(sinks.report().launches, 2u);
  EXPECT_EQ(read(sums_[0]), 13);
}

// A library that allocates in its first calls is sunk by itself; work that always does is tried ever more rarely.
TEST_F(SinkCacheRefuses, AKeyIsTriedAgainEverMoreRarely) {
  for (int allocating : {10, 100, 1 << 20}) {
    SCOPED_TRACE(std::to_string(allocating) + " calls allocate");
    messages_.clear();
    SinkCache sinks(logged());
    const int before = read(sums_[0]);
    int functions = 0;
    constexpr int kCalls = 1000;
    for (int i = 0; i < kCalls; ++i) {
      sinks.run(stream_, Key{}, [&](cudaStream_t s) {
        void* memory = nullptr;
        if (++functions <= allocating && cudaMalloc(&memory, 16) == cudaSuccess) (void)cudaFree(memory);
        guest_add(s, sums_[0], 1);
      });
    }
    EXPECT_EQ(read(sums_[0]), before + kCalls);
    const SinkReport report = sinks.report();
    if (allocating == 10) {
      EXPECT_GT(report.launches, 980u) << report;
    } else if (allocating == 100) {
      EXPECT_GT(report.launches, 850u) << report;
    } else {
      EXPECT_EQ(functions, kCalls + 3 + 6) << "attempts with calls 2 to 4, and 8, 16, 32, 64, 128, 256 calls later";
      EXPECT_EQ(report.refused, 1u);
      EXPECT_TRUE(contains(to_string(report), "SinkOptions::warm_runs")) << report;
    }
    ASSERT_EQ(messages_.size(), 1u);
    EXPECT_TRUE(contains(messages_[0], "SinkOptions::warm_runs")) << messages_[0];
    EXPECT_TRUE(contains(messages_[0], "try_again()")) << messages_[0];
  }
}

TEST_F(SinkCacheRefuses, AnEmptyCaptureWhoseWorkWentElsewhere) {
  SinkCache sinks(logged());
  for (int i = 0; i < 6; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t) { guest_add(other_, sums_[0], 1); });
  EXPECT_EQ(read(sums_[0]), 6) << "once in each call, also in those that were captured";
  EXPECT_EQ(sinks.report().launches, 0u);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "enqueued nothing on the stream that it was given")) << messages_[0];
}

TEST_F(SinkCacheRefuses, AnErrorFromBeforeIsNotTakenForOne) {
  SinkCache sinks(logged());
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);  // an error that nobody looked at
  for (int i = 0; i < 3; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], 1); });
  EXPECT_EQ(sinks.report().launches, 2u) << sinks.report();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice) << "it is still there";
  EXPECT_EQ(read(sums_[0]), 3);
}

// The function makes a graph of its own, and gives up where it cannot, so that the capture is empty but not broken.
TEST_F(SinkCacheRefuses, ACaptureInItIsFoundWhateverTheLastErrorIs) {
  bool clears = false;
  auto own_graph = [&](cudaStream_t s) {
    if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
      if (clears) (void)cudaGetLastError();
      return;
    }
    guest_add(s, sums_[0], 1);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  };
  auto fail_to_begin = [&] {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
    EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  };
  const std::function<void()> failures[] = {[] { EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice); },
                                            fail_to_begin,  // has the code that the function will meet
                                            nullptr};
  for (const auto& fail : failures) {
    clears = !fail;
    SinkCache sinks(logged());
    const int before = read(sums_[0]);
    for (int i = 0; i < 5; ++i) {
      if (fail) fail();
      sinks.run(stream_, Key{}, own_graph);
      EXPECT_EQ(read(sums_[0]), before + i + 1);
    }
    (void)cudaGetLastError();
    ASSERT_EQ(sinks.report().failures.size(), 1u) << sinks.report();
    EXPECT_TRUE(contains(sinks.report().failures[0].problem, "cuStreamBeginCapture returned CUDA_ERROR_ILLEGAL_STATE"))
        << sinks.report();
  }
}

// CUDA lets nobody set the last error.
TEST_F(SinkCacheRefuses, AnErrorFromBeforeThatTheCaptureReplacesIsTold) {
  SinkCache sinks(logged({.warm_runs = 0}));
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  sinks.run(stream_, Key{}, [&](cudaStream_t s) {
    guest_add(s, sums_[0], 1);
    (void)cudaStreamQuery(s);
  });
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error of the capture is no business of the caller's";
  EXPECT_EQ(read(sums_[0]), 1);
  ASSERT_EQ(messages_.size(), 2u);
  EXPECT_TRUE(contains(messages_[0], "cudaErrorInvalidDevice")) << messages_[0];
  EXPECT_TRUE(contains(messages_[0], "from before the call")) << messages_[0];
  EXPECT_TRUE(contains(messages_[1], "cuStreamQuery returned ")) << messages_[1];
}

TEST_F(SinkCacheRefuses, AnErrorFromBeforeStaysWhereTheFunctionThrows) {
  SinkCache sinks(logged({.warm_runs = 0}));
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  sinks.run(stream_, Key{}, [&, first = true](cudaStream_t s) mutable {
    guest_add(s, sums_[0], 1);
    if (std::exchange(first, false)) throw std::runtime_error("not while capturing");
  });
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(read(sums_[0]), 1);
  EXPECT_EQ(messages_.size(), 1u);
}

TEST_F(SinkCacheRefuses, CallsOfOtherThreadsThatFailAreNotTheReason) {
  SinkCache sinks(logged({.warm_runs = 0}));
  sinks.run(stream_, Key{}, [&](cudaStream_t s) {
    guest_add(s, sums_[0], 1);
    std::thread([] { EXPECT_NE(cudaSetDevice(99), cudaSuccess); }).join();
    (void)cudaStreamSynchronize(s);
  });
  EXPECT_EQ(read(sums_[0]), 1);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "runs as it is: cuStreamSynchronize returned ")) << messages_[0];
}

TEST_F(SinkCacheRefuses, ManyReasonsAreBounded) {
  SinkCache sinks(logged({.warm_runs = 0}));
  for (int i = 0; i < 50; ++i) {
    sinks.run(stream_, Key{i}, [&](cudaStream_t s) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      (void)cudaStreamIsCapturing(s, &status);
      if (status != cudaStreamCaptureStatusNone) throw std::runtime_error("reason " + std::to_string(i));
      guest_add(s, sums_[0], 1);
    });
  }
  EXPECT_EQ(read(sums_[0]), 50);
  EXPECT_EQ(sinks.report().failures.size(), 32u);
  EXPECT_EQ(sinks.report().other_failures, 18u);
  EXPECT_EQ(messages_.size(), 32u);
}

// Without the watch the legacy stream's work runs at the capture, as documented. The checks watch.
TEST_F(SinkCacheRefuses, TheLegacyStreamIsWatchedWhereItIsAskedFor) {
  auto run = [&](SinkCache& sinks) {
    for (int i = 0; i < 4; ++i) {
      sinks.run(stream_, Key{}, [&](cudaStream_t s) {
        guest_add(s, sums_[0], 1);
        guest_add(nullptr, sums_[1], 1);
      });
    }
  };
  {
    SinkCache sinks(logged());
    run(sinks);
    EXPECT_EQ(read(sums_[0]), 4);
    EXPECT_EQ(read(sums_[1]), 2);
    EXPECT_TRUE(messages_.empty());
    EXPECT_TRUE(contains(to_string(sinks.report()), "legacy stream not watched")) << sinks.report();
  }
  for (const SinkOptions& options : {SinkOptions{.watch_legacy_stream = true}, SinkOptions{.check_every = 1}}) {
    messages_.clear();
    SinkCache sinks(logged(options));
    run(sinks);
    EXPECT_EQ(messages_.size(), 1u) << sinks.report();
    EXPECT_TRUE(contains(to_string(sinks.report()), "not on the default stream")) << sinks.report();
    EXPECT_FALSE(contains(to_string(sinks.report()), "not watched")) << sinks.report();
  }
  EXPECT_EQ(read(sums_[0]), 12);
}

// A stream that waits for an event of a broken capture does not join it.
TEST_F(SinkCacheRefuses, WorkOnOtherStreamsMayHaveRunTwiceAndThatIsSaid) {
  for (const bool looks : {false, true}) {
    messages_.clear();
    SinkCache sinks(logged({.warm_runs = 0}));
    const int before = read(sums_[0]);
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      guest_add(s, sums_[0], 1);
      const cudaError_t waited = cudaStreamSynchronize(s);
      fork_to(s, other_);
      guest_add(other_, sums_[1], 1);
      fork_to(other_, s);
      if (looks && waited != cudaSuccess) throw std::runtime_error("cannot wait");
    });
    EXPECT_EQ(read(sums_[0]), before + 1);
    ASSERT_EQ(messages_.size(), 1u);
    EXPECT_TRUE(contains(messages_[0], "gave to other streams after that call may have run twice")) << messages_[0];
  }
  EXPECT_GE(read(sums_[1]), 2);
}

// A launch would copy what is on the stack then.
TEST_F(SinkCacheRefuses, WhatWasGivenALocalVariable) {
  struct Row {
    const char* problem;
    std::function<void(cudaStream_t, int)> work;
  };
  const Row rows[] = {
      {"it copies from 0x",
       [&](cudaStream_t s, int i) {
         const int amount = i + 1;
         (void)cudaMemcpyAsync(sums_[1], &amount, sizeof amount, cudaMemcpyHostToDevice, s);
         (void)cudaMemcpyAsync(sums_[0], sums_[1], sizeof(int), cudaMemcpyDeviceToDevice, s);
       }},
      {"it copies to 0x",
       [&](cudaStream_t s, int i) {
         int seen = 0;
         (void)cudaMemcpyAsync(sums_[0], &numbers_[i], sizeof(int), cudaMemcpyHostToDevice, s);
         (void)cudaMemcpyAsync(&seen, sums_[0], sizeof seen, cudaMemcpyDeviceToHost, s);
         cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
         (void)cudaStreamIsCapturing(s, &status);
         if (status == cudaStreamCaptureStatusNone) (void)cudaStreamSynchronize(s);
       }},
      {"it gives a host function 0x",
       [&](cudaStream_t s, int i) {
         int local = i;
         (void)cudaMemcpyAsync(sums_[0], &numbers_[i], sizeof(int), cudaMemcpyHostToDevice, s);
         (void)cudaLaunchHostFunc(
             s, [](void* data) { EXPECT_NE(data, nullptr); }, &local);
       }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.problem);
    messages_.clear();
    SinkCache sinks(logged());
    for (int i = 0; i < 6; ++i) {
      sinks.run(stream_, Key{}, [&](cudaStream_t s) { row.work(s, i); });
      EXPECT_EQ(read(sums_[0]), i + 1);
    }
    EXPECT_EQ(sinks.report().launches, 0u);
    ASSERT_EQ(messages_.size(), 1u) << sinks.report();
    EXPECT_TRUE(contains(messages_[0], row.problem)) << messages_[0];
    EXPECT_TRUE(contains(messages_[0], "a variable of a function that has returned")) << messages_[0];
  }
}

TEST_F(SinkCacheRefuses, NothingForPageableMemoryThatLastsButSaysSoOnce) {
  SinkCache sinks(logged());
  int on_the_stack = 0;  // of a function that has not returned
  for (int i = 0; i < 12; ++i) {
    on_the_stack = i;
    sinks.run(stream_, Key{i % 2}, [&](cudaStream_t s) {
      (void)cudaMemcpyAsync(sums_[0], &on_the_stack, sizeof(int), cudaMemcpyHostToDevice, s);
    });
    EXPECT_EQ(read(sums_[0]), i);
  }
  EXPECT_EQ(sinks.report().launches, 10u) << sinks.report();
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "a copy of pageable host memory")) << messages_[0];
}

// What another thread does with CUDA while a key is captured.
TEST_F(SinkCacheRefuses, ACaptureMakesNoCallOfAnotherThreadFail) {
  SinkCache sinks(logged());
  cudaError_t code = cudaSuccess;
  for (int i = 0; i < 6; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      guest_add(s, sums_[0], 1);
      std::thread([&] {
        const int value = 7;
        code = cudaMemcpy(sums_[1], &value, sizeof value, cudaMemcpyHostToDevice);
      }).join();
      EXPECT_EQ(code, cudaSuccess);
    });
  }
  EXPECT_EQ(read(sums_[0]), 6);
  EXPECT_EQ(sinks.report().launches, 5u) << sinks.report();
}

// The function is not to blame, and the reason does not blame it.
TEST_F(SinkCacheRefuses, ACaptureThatAnotherThreadBreaksSaysSo) {
  struct Row {
    const char* name;
    std::function<void()> act;
    bool watch;
  };
  const Row rows[] = {
      {"waits for the device", [] { EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess); }, false},
      {"uses the legacy stream", [this] { EXPECT_NE(cudaMemsetAsync(sums_[1], 0, 4, nullptr), cudaSuccess); }, true}};
  for (const bool looks : {false, true}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(std::string(row.name) + (looks ? ", the function looks at the results of its calls" : ""));
      messages_.clear();
      SinkCache sinks(logged({.warm_runs = 0, .watch_legacy_stream = row.watch}));
      const int before = read(sums_[0]);
      sinks.run(stream_, Key{}, [&, first = true](cudaStream_t s) mutable {
        if (std::exchange(first, false)) std::thread(row.act).join();
        guest_add(s, sums_[0], 1);
        if (looks && cudaMemsetAsync(sums_[2], 0, 4, s) != cudaSuccess) throw std::runtime_error("cannot fill");
      });
      EXPECT_EQ(read(sums_[0]), before + 1);
      ASSERT_EQ(messages_.size(), 1u);
      EXPECT_TRUE(contains(messages_[0], "another thread has broken the capture")) << messages_[0];
      EXPECT_TRUE(contains(messages_[0], "let no other thread wait for the device")) << messages_[0];
    }
  }
}

TEST_F(SinkCacheRefuses, NegativeOptions) {
  const std::string warm = message_of([] { SinkCache({.warm_runs = -1}); });
  EXPECT_TRUE(contains(warm, "SinkCache: SinkOptions::warm_runs is -1; remedy: give a number of at least 0")) << warm;
  EXPECT_TRUE(contains(warm, "cuda_sink_refusal_test.cpp")) << warm;
  const std::string every = message_of([] { SinkCache({.check_every = -1}); });
  EXPECT_TRUE(contains(every, "SinkOptions::check_every is -1")) << every;
}

}  // namespace
}  // namespace graphsink::testing::cuda_sink_refusal_test
