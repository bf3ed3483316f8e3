// SinkCache's guards: values that a captured graph keeps although the function would choose others, and addresses of
// memory that is gone.
#include <cstring>
#include <functional>

#include "child_graph.h"
#include "guest_fixture.h"

namespace graphsink::testing::cuda_sink_check_test {
namespace {

class SinkCacheChecks : public Guest {
 protected:
  SinkOptions checked(int every) { return logged({.check_every = every}); }

  // What changes at the fourth call, and how the report names it.
  struct Change {
    const char* problem;
    std::function<void(cudaStream_t, bool later)> work;
  };
  void expect_found(const Change& change) {
    SCOPED_TRACE(change.problem);
    SinkCache sinks(checked(2));
    for (int i = 0; i < 6; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t s) { change.work(s, i >= 3); });
    ASSERT_EQ(sinks.report().failures.size(), 1u) << sinks.report();
    const std::string problem = sinks.report().failures[0].problem;
    EXPECT_TRUE(contains(problem, change.problem)) << problem;
    EXPECT_EQ(sinks.report().launches, 2u) << "1 and 2";
  }
};

TEST_F(SinkCacheChecks, ANumberThatChangesIsFoundByName) {
  SinkCache sinks(checked(3));
  int amount = 1, expected = 0;
  for (int i = 0; i < 12; ++i) {
    if (i == 7) amount = 50;
    sinks.run(stream_, Key{"update"}, [&](cudaStream_t s) {
      guest_affine(s, sums_[1], 1, 1);
      guest_affine(s, sums_[0], 1, amount);
    });
    // 0 is warm, 1 captures, 4, 7 and 10 would be checked; the launches from 7 on would use the old amount.
    expected += i < 7 ? 1 : 50;
  }
  EXPECT_EQ(read(sums_[0]), expected);
  EXPECT_EQ(read(sums_[1]), 12);
  const SinkReport report = sinks.report();
  EXPECT_EQ(report.checks, 2u);
  EXPECT_EQ(report.refused, 1u);
  ASSERT_EQ(report.failures.size(), 1u) << report;
  const std::string& problem = report.failures[0].problem;
  EXPECT_TRUE(contains(problem, "affine_kernel(int*, int, int), parameter 2: ")) << problem;
  EXPECT_TRUE(contains(problem, "01 00 00 00 (as an integer 1,")) << problem;
  EXPECT_TRUE(contains(problem, "32 00 00 00 (as an integer 50,")) << problem;
  EXPECT_EQ(messages_.size(), 1u);
  EXPECT_FALSE(contains(to_string(report), "numbers not compared")) << report;
}

// Without the guard, a launch repeats the number that was captured, as documented.
TEST_F(SinkCacheChecks, WithoutAGuardTheOldNumberIsUsed) {
  SinkCache sinks(logged());
  for (int i = 0; i < 4; ++i) sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], i); });
  EXPECT_EQ(read(sums_[0]), 0 + 1 + 1 + 1);
  EXPECT_TRUE(messages_.empty());
  EXPECT_TRUE(contains(to_string(sinks.report()), "numbers not compared: one that a kernel gets by value"))
      << sinks.report();
}

TEST_F(SinkCacheChecks, WorkThatIsTheSamePasses) {
  cudaStream_t side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), cudaSuccess);
  int host_calls = 0;
  SinkCache sinks(checked(1));
  for (int i = 0; i < 20; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      (void)cudaEventRecord(forked, s);
      (void)cudaStreamWaitEvent(side, forked, 0);
      for (int k = 0; k < 4; ++k) guest_add(k % 2 == 0 ? s : side, sums_[k % 2], k);
      (void)cudaMemsetAsync(sums_[2], 1, sizeof(int), side);
      (void)cudaEventRecord(joined, side);
      (void)cudaStreamWaitEvent(s, joined, 0);
      (void)cudaMemcpyAsync(sums_[2], sums_[0], sizeof(int), cudaMemcpyDeviceToDevice, s);
      (void)cudaLaunchHostFunc(
          s, [](void* count) { ++*static_cast<int*>(count); }, &host_calls);
    });
  }
  EXPECT_EQ(read(sums_[0]), 20 * 2);
  EXPECT_EQ(read(sums_[1]), 20 * 4);
  EXPECT_EQ(read(sums_[2]), 20 * 2);
  EXPECT_EQ(host_calls, 20);
  EXPECT_EQ(sinks.report().checks, 18u);
  EXPECT_EQ(sinks.report().launches, 19u) << sinks.report();
  EXPECT_EQ(cudaEventDestroy(forked), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(joined), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
}

TEST_F(SinkCacheChecks, ChildGraphsAreReadToo) {
  cudaGraph_t graphs[2] = {};
  cudaGraphExec_t execs[2] = {};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    guest_add(stream_, sums_[0], 1 + i);
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graphs[i]), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&execs[i], graphs[i], 0), cudaSuccess);
  }
  SinkCache sinks(checked(1));
  for (int i = 0; i < 6; ++i) {
    const int which = i < 4 ? 0 : 1;
    sinks.run(stream_, Key{}, [&](cudaStream_t s) { (void)enqueue_graph(s, graphs[which], execs[which]); });
  }
  EXPECT_EQ(read(sums_[0]), 4 * 1 + 2 * 2);
  EXPECT_EQ(sinks.report().launches, 3u);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "affine_kernel(int*, int, int), parameter 2: 01 00 00 00")) << messages_[0];
  for (cudaGraphExec_t exec : execs) EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  for (cudaGraph_t graph : graphs) EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

// Memory that a graph allocates has another address in each capture.
TEST_F(SinkCacheChecks, WorkThatAllocatesIsTheSame) {
  SinkCache sinks(checked(1));
  for (int i = 0; i < 12; ++i) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) {
      void *one = nullptr, *other = nullptr;
      (void)cudaMallocAsync(&one, 64, s);
      (void)cudaMallocAsync(&other, 64, s);
      (void)cudaMemsetAsync(one, 0, 64, s);
      guest_add(s, static_cast<int*>(one) + 4, 1);
      (void)cudaMemcpyAsync(other, static_cast<int*>(one) + 4, sizeof(int), cudaMemcpyDeviceToDevice, s);
      (void)cudaMemcpyAsync(sums_[0], other, sizeof(int), cudaMemcpyDeviceToDevice, s);
      guest_add(s, sums_[1], 1);
      (void)cudaFreeAsync(other, s);
      (void)cudaFreeAsync(one, s);
    });
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  EXPECT_EQ(read(sums_[0]), 1);
  EXPECT_EQ(read(sums_[1]), 12);
  EXPECT_EQ(sinks.report().launches, 11u) << sinks.report();
  EXPECT_EQ(sinks.report().checks, 10u);
  EXPECT_TRUE(messages_.empty()) << messages_[0];
}

TEST_F(SinkCacheChecks, CopiesFillsHostFunctionsAndMoreWork) {
  int first = 0, second = 0;
  cudaStream_t side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr, outside[2] = {};
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  for (cudaEvent_t* event : {&forked, &joined, &outside[0], &outside[1]}) {
    ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
  }
  // A graph's own memory, of whose two pieces one is used.
  auto use_own_memory = [&](cudaStream_t s, std::size_t bytes, int which, int offset) {
    void* own[2] = {};
    for (void*& memory : own) {
      (void)cudaMallocAsync(&memory, bytes, s);
      (void)cudaMemsetAsync(memory, 0, bytes, s);
    }
    guest_add(s, static_cast<int*>(own[which]) + offset, 1);
    for (void* memory : own) (void)cudaFreeAsync(memory, s);
  };
  const Change changes[] = {
      {"memcpy, source: ",
       [&](cudaStream_t s, bool later) {
         (void)cudaMemcpyAsync(sums_[2], sums_[later ? 1 : 0], 4, cudaMemcpyDeviceToDevice, s);
       }},
      {"memcpy, destination: ",
       [&](cudaStream_t s, bool later) {
         (void)cudaMemcpyAsync(sums_[later ? 1 : 2], sums_[0], 4, cudaMemcpyDeviceToDevice, s);
       }},
      {"memcpy, size: ",
       [&](cudaStream_t s, bool later) {
         (void)cudaMemcpyAsync(sums_[2], sums_[0], later ? 2 : 4, cudaMemcpyDeviceToDevice, s);
       }},
      {"memset, value: ", [&](cudaStream_t s, bool later) { (void)cudaMemsetAsync(sums_[2], later ? 1 : 0, 4, s); }},
      {"host function, data: ",
       [&](cudaStream_t s, bool later) {
         (void)cudaLaunchHostFunc(
             s, [](void* count) { ++*static_cast<int*>(count); }, later ? &second : &first);
       }},
      {"is enqueued now and was not before",
       [&](cudaStream_t s, bool later) {
         guest_add(s, sums_[2], 0);
         if (later) (void)cudaMemsetAsync(sums_[2], 0, 4, s);
       }},
      {"was there before and is not enqueued now",
       [&](cudaStream_t s, bool later) {
         guest_add(s, sums_[2], 0);
         if (!later) guest_add(s, sums_[2], 0);
       }},
      {"memory allocation, size: 40 00 00 00 ",
       [&](cudaStream_t s, bool later) { use_own_memory(s, later ? 128 : 64, 0, 0); }},
      {"parameter 0: 00 00 00 00 00 00 00 00 (at byte 0 an address in memory that the graph allocates, 0 bytes into "
       "it)",
       [&](cudaStream_t s, bool later) { use_own_memory(s, 64, 0, later ? 4 : 0); }},
      {"an address in memory that the graph allocates",
       [&](cudaStream_t s, bool later) { use_own_memory(s, 64, later ? 1 : 0, 0); }},
      {"event record, event: ",
       [&](cudaStream_t s, bool later) {
         guest_add(s, sums_[2], 0);
         cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
         (void)cudaStreamIsCapturing(s, &status);
         (void)cudaEventRecordWithFlags(
             outside[later ? 1 : 0], s,
             status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal);
       }},
      // Two chains of two kernels, of which the second ones change places.
      {"affine_kernel(int*, int, int) depends on other work than before",
       [&](cudaStream_t s, bool later) {
         (void)cudaEventRecord(forked, s);
         (void)cudaStreamWaitEvent(side, forked, 0);
         guest_affine(s, sums_[1], 1, 0);
         guest_affine(side, sums_[2], 1, 0);
         guest_affine(later ? side : s, sums_[1], 1, 3);
         guest_affine(later ? s : side, sums_[2], 1, 4);
         (void)cudaEventRecord(joined, side);
         (void)cudaStreamWaitEvent(s, joined, 0);
       }},
      {"parameter 0: ", [&](cudaStream_t s, bool later) { guest_add(s, sums_[later ? 1 : 2], 0); }},
      {"(as an address 0x", [&](cudaStream_t s, bool later) { guest_add(s, sums_[later ? 1 : 2], 0); }},
      {"parameter 0 from byte 40 on: ... 07 00 00 00 00 00 00 00 ",
       [&](cudaStream_t s, bool later) {
         GuestStruct value = {};
         value.many[10] = 7;
         value.many[11] = later ? 1 : 0;
         guest_take(s, value);
       }},
  };
  for (const Change& change : changes) expect_found(change);
  (void)read(sums_[0]);
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 3);
  for (cudaEvent_t event : {forked, joined, outside[0], outside[1]}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
}

// Adds a node to the capture that `s` takes part in, as cudaMemset2DAsync() does. Does nothing outside of one.
void add_fill(cudaStream_t s, const cudaMemsetParams& fill) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &before, &edges, &count), cudaSuccess);
  if (status == cudaStreamCaptureStatusNone) return;
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeMemset;
  params.memset.dst = fill.dst;
  params.memset.elementSize = fill.elementSize;
  params.memset.width = fill.width;
  params.memset.height = fill.height;
  params.memset.pitch = fill.pitch;
  params.memset.value = fill.value;
  cudaGraphNode_t node = nullptr;
  ASSERT_EQ(cudaGraphAddNode(&node, graph, before, edges, count, &params), cudaSuccess);
  ASSERT_EQ(cudaStreamUpdateCaptureDependencies(s, &node, nullptr, 1, cudaStreamSetCaptureDependencies), cudaSuccess);
}

TEST_F(SinkCacheChecks, PitchesAndElementsOfFills) {
  void* rows = nullptr;
  ASSERT_EQ(cudaMalloc(&rows, 256), cudaSuccess);
  auto fill = [&](cudaStream_t s, unsigned element, std::size_t width, std::size_t height, std::size_t pitch) {
    guest_add(s, sums_[2], 0);
    add_fill(s, {.dst = rows, .pitch = pitch, .value = 7, .elementSize = element, .width = width, .height = height});
  };
  expect_found({"memset, pitch: 10 00 ", [&](cudaStream_t s, bool later) { fill(s, 4, 4, 3, later ? 80 : 16); }});
  expect_found({"memset, element size: 04 00 ",
                [&](cudaStream_t s, bool later) { fill(s, later ? 1 : 4, later ? 16 : 4, 1, 16); }});
  messages_.clear();
  SinkCache sinks(checked(1));
  for (const std::size_t pitch : {16, 16, 16, 80}) {
    sinks.run(stream_, Key{}, [&](cudaStream_t s) { fill(s, 4, 4, 1, pitch); });
  }
  EXPECT_TRUE(messages_.empty()) << "one row has no pitch: " << messages_[0];
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(rows), cudaSuccess);
}

TEST_F(SinkCacheChecks, AttributesOfLaunches) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major < 9) GTEST_SKIP() << "clusters and programmatic launches need compute capability 9.0";
  expect_found(
      {"empty_kernel(), cluster: 01 00 00 00 01 00 00 00 01 00 00 00 before, 02 00 ", [](cudaStream_t s, bool later) {
         cudaLaunchAttribute cluster = {};
         cluster.id = cudaLaunchAttributeClusterDimension;
         cluster.val.clusterDim = {later ? 2u : 1u, 1, 1};
         guest_launch(s, cluster);
       }});
  expect_found({"empty_kernel(), cooperative: 00 00 00 00 ", [](cudaStream_t s, bool later) {
                  cudaLaunchAttribute cooperative = {};
                  cooperative.id = cudaLaunchAttributeCooperative;
                  cooperative.val.cooperative = later ? 1 : 0;
                  guest_launch(s, cooperative);
                }});
  expect_found({"empty_kernel(), ports of its dependencies: 00 before, 01 now", [&](cudaStream_t s, bool later) {
                  guest_add(s, sums_[2], 0);
                  cudaLaunchAttribute early = {};
                  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
                  early.val.programmaticStreamSerializationAllowed = later ? 1 : 0;
                  guest_launch(s, early);
                }});
}

TEST_F(SinkCacheChecks, AnAddressOfFreedMemoryIsFound) {
  SinkCache sinks(checked(1));
  int* sum = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemset(sum, 0, sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int* used = sum;
  auto run = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, used, 1); }); };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(read(sum), 3);
  ASSERT_EQ(cudaFree(sum), cudaSuccess);
  used = sums_[0];
  run();
  EXPECT_EQ(read(sums_[0]), 1);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "parameter 0 is an address of memory that is not alive any more")) << messages_[0];
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(read(sums_[0]), 4);
  EXPECT_EQ(sinks.report().refused, 0u) << "the function has another pointer now";
  EXPECT_EQ(sinks.report().captures, 2u);
}

TEST_F(SinkCacheChecks, RegisteredMemoryMustStayInItsRegistration) {
  SinkCache sinks(checked(1));
  int* pool = sums_[0];  // CUDA knows it all the time
  sinks.register_memory(pool, sizeof(int));
  auto run = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, pool, 1); }); };
  for (int i = 0; i < 4; ++i) run();
  EXPECT_EQ(sinks.report().launches, 3u);
  sinks.forget_memory(pool);
  sinks.register_memory(pool, sizeof(int));  // for another tensor
  run();
  EXPECT_EQ(sinks.report().launches, 3u);
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_TRUE(contains(messages_[0], "not alive any more")) << messages_[0];
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(sinks.report().launches, 6u);
  EXPECT_EQ(read(sums_[0]), 8);
}

TEST_F(SinkCacheChecks, StrictlyAChangeIsAnError) {
  SinkOptions options = checked(1);
  options.strict = true;
  SinkCache sinks(options);
  int amount = 1;
  auto run = [&] { sinks.run(stream_, Key{}, [&](cudaStream_t s) { guest_add(s, sums_[0], amount); }); };
  for (int i = 0; i < 3; ++i) run();
  amount = 2;
  EXPECT_TRUE(contains(message_of(run), "parameter 2: "));
  EXPECT_EQ(read(sums_[0]), 3);
}

}  // namespace
}  // namespace graphsink::testing::cuda_sink_check_test
