// The device boundary on CUDA: a GPU, or the software device that stands in for it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "cuda_device_fixture.h"
#include "device/cuda/blas_lt.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing {
namespace {

TEST_F(CudaDeviceTest, TargetHasTheRulesOfCuda) {
  const Target& target = device_->target();
  EXPECT_EQ(target.id, cuda(0));
  EXPECT_GE(target.sm, 50);
  EXPECT_FALSE(target.name.empty());
  EXPECT_TRUE(target.separate_memory);
  EXPECT_FALSE(target.host_nodes_in_bodies);
}

TEST_F(CudaDeviceTest, OpeningAnotherDeviceSaysHowManyThereAre) {
  std::string message = message_of([] { open_cuda_device(99); });
  EXPECT_TRUE(contains(message, "cuda:99")) << message;
  EXPECT_TRUE(contains(message, "there are " + std::to_string(count_cuda_devices()))) << message;
}

TEST_F(CudaDeviceTest, AllocatedMemoryIsZeroAndAligned) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{70000}}) {
    Memory memory = device_->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 256, 0u);
    std::vector<char> seen(bytes, 'x');
    device_->copy(*stream_, seen.data(), memory.get(), bytes);
    device_->sync(*stream_);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), '\0'), static_cast<std::ptrdiff_t>(bytes));
  }
  Memory host = device_->allocate_host(100);
  EXPECT_EQ(static_cast<const char*>(host.get())[99], 0);
}

TEST_F(CudaDeviceTest, MemoryMayOutliveItsDevice) {
  Memory memory = device_->allocate(64), host = device_->allocate_host(64);
  std::unique_ptr<Arena> arena = device_->reserve();
  arena->grow(100);
  stream_.reset();
  device_.reset();
  memory.reset();
  host.reset();
}

TEST_F(CudaDeviceTest, OutOfMemorySaysHowMuchIsThereAndWhatToDo) {
  for (auto action : {std::function<void()>([&] { device_->allocate(std::size_t{1} << 60); }),
                      std::function<void()>([&] { device_->allocate(~std::size_t{0}); }),
                      std::function<void()>([&] { device_->reserve()->grow(std::size_t{1} << 60); })}) {
    std::string message = message_of(action);
    EXPECT_TRUE(contains(message, "out of memory")) << message;
    EXPECT_TRUE(contains(message, " MiB are free")) << message;
    EXPECT_TRUE(contains(message, "remedy: use smaller shapes")) << message;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  expect_usable();
}

TEST_F(CudaDeviceTest, ArenaGrowsInPlaceAndKeepsItsData) {
  std::unique_ptr<Arena> arena = device_->reserve();
  EXPECT_EQ(arena->size(), 0u);
  arena->grow(1000);
  std::byte* base = arena->base();
  std::size_t first = arena->size();
  EXPECT_GE(first, 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % 256, 0u);
  auto* x = reinterpret_cast<float*>(base);
  set(x, 7.0f);
  arena->grow(first);
  EXPECT_EQ(arena->size(), first);
  arena->grow(first + 1);
  EXPECT_GT(arena->size(), first);
  EXPECT_EQ(arena->base(), base);
  EXPECT_EQ(get(x), 7.0f);
  auto* last = reinterpret_cast<float*>(base + arena->size() - 256);
  set(last, 8.0f);
  call(*stream_, affine, {last}, Affine{2, 0});
  EXPECT_EQ(get(last), 16.0f);
}

TEST_F(CudaDeviceTest, UploadsMayReuseTheirSourceAtOnce) {
  constexpr std::size_t kCount = 3'000'000;  // several slots
  Memory memory = device_->allocate(kCount * sizeof(int));
  std::vector<int> source(kCount), seen(kCount);
  for (std::size_t i = 0; i < kCount; ++i) source[i] = static_cast<int>(i);
  device_->upload(*stream_, memory.get(), source.data(), kCount * sizeof(int));
  std::fill(source.begin(), source.end(), -1);
  device_->copy(*stream_, seen.data(), memory.get(), kCount * sizeof(int));
  device_->sync(*stream_);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(seen[i], static_cast<int>(i));

  auto* small = static_cast<int*>(memory.get());
  for (int i = 0; i < 20; ++i) set(small + i, 1000 + i);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get(small + i), 1000 + i);
}

TEST_F(CudaDeviceTest, CallsRunInStreamOrder) {
  float* x = make(1.0f);
  call(*stream_, affine, {x}, Affine{2, 0});
  call(*stream_, affine, {x}, Affine{1, 3});
  call(*stream_, affine, {x}, Affine{10, 0});
  EXPECT_EQ(get(x), 50.0f);
}

TEST_F(CudaDeviceTest, FencesOrderStreams) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  for (int i = 0; i < 20; ++i) {
    device_->fence(*other, *stream_);
    call(*other, slow_affine, {x}, Affine{2, 0});
    device_->fence(*stream_, *other);
    call(*stream_, slow_affine, {x}, Affine{1, -1});
  }
  device_->fence(*stream_, *stream_);
  EXPECT_EQ(get(x), 1.0f);
}

TEST_F(CudaDeviceTest, RefusedLaunchesNameTheOp) {
  int* x = make(0);
  for (const OpDef* op : {&launches_too_much, &launches_too_much_checked}) {
    auto issue = [&](Stream& s) { call(s, *op, {x}); };
    std::string live = message_of([&] { issue(*stream_); });
    EXPECT_TRUE(contains(live, op->name)) << live;
    EXPECT_TRUE(contains(live, "cuda_device_test.cpp:")) << live;
    EXPECT_TRUE(contains(live, "cudaErrorInvalid")) << live;
    EXPECT_THROW(record(issue), RecordingFailed);
    expect_usable();
  }
}

TEST_F(CudaDeviceTest, AnEarlierErrorOfTheUsersIsNotBlamedOnAnOp) {
  EXPECT_NE(cudaSetDevice(99), cudaSuccess);
  expect_usable();
  (void)cudaGetLastError();
}

TEST_F(CudaDeviceTest, AnOpWithoutABodyForThisDeviceIsNamed) {
  static const OpDef cpu_only = {.name = "cpu_only"};
  std::string message = message_of([&] { call(*stream_, cpu_only, {}); });
  EXPECT_TRUE(contains(message, "cpu_only: it has no .cuda body")) << message;
}

TEST_F(CudaDeviceTest, NothingRunsBeforeTheLaunch) {
  float* x = make(1.0f);
  auto recording = record([&](Stream& s) {
    call(s, affine, {x}, Affine{2, 0});
    call(s, affine, {x}, Affine{1, 5});
  });
  EXPECT_EQ(get(x), 1.0f);
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(x), 7.0f);
  device_->launch(*stream_, *recording, nullptr);
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(x), 43.0f);
}

TEST_F(CudaDeviceTest, RecordingInfoCountsNodes) {
  float *x = make(1.0f), *y = make(0.0f);
  bool* flag = make(true);
  auto recording = record([&](Stream& s) {
    call(s, affine, {x}, Affine{2, 0});
    device_->copy(s, y, x, sizeof(float));
    branch(
        s, flag,
        [&](Stream& b) {
          call(b, affine, {y}, Affine{1, 1});
        },
        [](Stream&) {});
    call(s, affine, {y}, Affine{2, 0});
  });
  RecordingInfo info = recording->info();
  EXPECT_EQ(info.kernels, 4);  // three ops and the branch's decision
  EXPECT_EQ(info.copies, 1);
  EXPECT_EQ(info.conditional_nodes, 1);
  EXPECT_EQ(info.empty_nodes, 1);  // the else branch
  EXPECT_EQ(info.host_nodes, 0);
  EXPECT_EQ(info.edges, 4);
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(y), 6.0f);
}

TEST_F(CudaDeviceTest, CountersCountWhatWasAskedFor) {
  float* x = make(1.0f);
  StepBlock* block = make(StepBlock{});
  auto recording = record([&](Stream& s) {
    call(s, affine, {x}, Affine{2, 0});
    call(s, affine, {x}, Affine{2, 0});
  });
  LaunchParams params;
  params.block = block;
  Counters before = device_->counters();
  device_->launch(*stream_, *recording, &params);
  Counters after = device_->counters();
  EXPECT_EQ(after.api_calls - before.api_calls, 2u);
  EXPECT_EQ(after.kernels - before.kernels, 3u);
  EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  before = after;
  call(*stream_, affine, {x}, Affine{2, 0});
  after = device_->counters();
  EXPECT_EQ(after.api_calls - before.api_calls, 1u);
  EXPECT_EQ(after.kernels - before.kernels, 1u);
  EXPECT_EQ(after.recordings, 1u);
}

TEST_F(CudaDeviceTest, RecordedStreamsForkAndJoin) {
  auto other = device_->make_stream();
  float *x = make(1.0f), *y = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  auto issue = [&](Streams s) {
    call(*s[0], slow_affine, {x}, Affine{3, 0});
    device_->fence(*s[1], *s[0]);
    call(*s[1], slow_affine, {x}, Affine{1, 1});
    call(*s[0], slow_affine, {y}, Affine{2, 0});
    device_->fence(*s[0], *s[1]);
    call(*s[0], slow_affine, {x}, Affine{2, 0});
  };
  auto recording = record(streams, issue);
  EXPECT_EQ(recording->info().kernels, 4);
  EXPECT_EQ(recording->info().edges, 4);
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(x), 8.0f);
  EXPECT_EQ(get(y), 2.0f);
  issue(streams);
  EXPECT_EQ(get(x), 50.0f);
}

TEST_F(CudaDeviceTest, AStreamThatWasNotJoinedFailsTheRecording) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  EXPECT_THROW(record(streams,
                      [&](Streams s) {
                        call(*s[0], affine, {x});
                        device_->fence(*s[1], *s[0]);
                        call(*s[1], affine, {x});
                      }),
               RecordingFailed);
  EXPECT_EQ(get(x), 1.0f);
  expect_usable();
}

TEST_F(CudaDeviceTest, WorkForAStreamOutsideTheRecordingIsRefusedBeforeItRuns) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  std::string message = message_of([&] {
    record(streams, [&](Streams s) { call(*s[1], affine, {x}, Affine{5, 0}); });
  });
  EXPECT_TRUE(contains(message, "affine: its stream takes no part in the recording")) << message;
  device_->sync(*other);
  EXPECT_EQ(get(x), 1.0f);
  expect_usable();
}

// Collatz-like, with a loop in one arm of a branch in a loop: x depends on every decision.
TEST_F(CudaDeviceTest, NestedControlFlowGivesTheSameLiveAndRecorded) {
  float* x = make(1.0f);
  std::int32_t *outer = make(0), *inner = make(0);
  bool *more = make(false), *odd = make(false), *again = make(false);
  auto issue = [&](Stream& s) {
    call(s, is_positive, {outer, more});
    loop(s, more, [&](Stream& body) {
      call(body, is_odd, {outer, odd});
      branch(
          body, odd,
          [&](Stream& t) {
            call(t, affine, {x}, Affine{1, 1});
          },
          [&](Stream& e) {
            call(e, set_count, {inner}, 2);
            call(e, is_positive, {inner, again});
            loop(e, again, [&](Stream& i) {
              call(i, affine, {x}, Affine{1.5f, 0});
              call(i, count_down, {inner});
              call(i, is_positive, {inner, again});
            });
          });
      call(body, count_down, {outer});
      call(body, is_positive, {outer, more});
    });
    call(s, affine, {x}, Affine{1, 0.25f});
  };
  auto recording = record(issue);
  EXPECT_EQ(recording->info().conditional_nodes, 3);
  EXPECT_EQ(recording->info().kernels, 11 + 2 + 1 + 2);  // a loop decides before and in its body
  for (int count : {0, 1, 2, 5}) {
    float expected = 1;
    for (int i = count; i > 0; --i) expected = i % 2 != 0 ? expected + 1 : expected * 1.5f * 1.5f;
    expected += 0.25f;
    set(x, 1.0f);
    set(outer, count);
    issue(*stream_);
    EXPECT_EQ(get(x), expected) << "live, " << count;
    set(x, 1.0f);
    set(outer, count);
    device_->launch(*stream_, *recording, nullptr);
    EXPECT_EQ(get(x), expected) << "recorded, " << count;
  }
}

TEST_F(CudaDeviceTest, ABodyMayUseSeveralStreamsAndNeedNotJoinThem) {
  auto other = device_->make_stream();
  float *x = make(1.0f), *y = make(1.0f);
  std::int32_t* counter = make(3);
  bool* more = make(true);
  Stream* const streams[] = {stream_.get(), other.get()};
  auto recording = record(streams, [&](Streams s) {
    device_->loop(s, more, [&](Streams body) {
      ASSERT_EQ(body.size(), 2u);
      device_->fence(*body[1], *body[0]);
      call(*body[1], slow_affine, {y}, Affine{3, 0});
      call(*body[0], slow_affine, {x}, Affine{2, 0});
      call(*body[0], count_down, {counter});
      call(*body[0], is_positive, {counter, more});
    });
  });
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(x), 8.0f);
  EXPECT_EQ(get(y), 27.0f);
}

TEST_F(CudaDeviceTest, ALaunchRunsManySteps) {
  constexpr std::int64_t kSlices = 8;
  StepBlock* block = make(StepBlock{});
  std::int64_t* sum = make(std::int64_t{0});
  Memory ring = device_->allocate(kSlices * sizeof(std::int64_t));
  Memory tables = device_->allocate(2 * kMaxFeeds * sizeof(std::int64_t));
  std::vector<std::int64_t> values = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
  device_->upload(*stream_, ring.get(), values.data(), values.size() * sizeof(std::int64_t));
  LaunchParams params;
  params.block = block;
  params.rings = static_cast<const void**>(tables.get());
  params.strides = static_cast<std::int64_t*>(tables.get()) + kMaxFeeds;
  params.feeds = 1;
  params.ring[0] = ring.get();
  params.stride[0] = sizeof(std::int64_t);
  auto step = [&](Stream& s) {
    call(s, add_slice, {sum}, FeedTables{params.rings, params.strides}, block);
    call(s, next_slice, {}, {}, block);
  };
  auto recording = record([&](Stream& s) { loop(s, &block->more, step); });
  auto launch = [&](int first, int end) {
    params.first_slice = first;
    params.end_slice = end;
    device_->launch(*stream_, *recording, &params);
  };
  Counters before = device_->counters();
  launch(0, 5);
  EXPECT_EQ(device_->counters().kernels - before.kernels, 2u + 5u * 3u);
  EXPECT_EQ(get(sum), 11111);
  launch(5, 8);
  EXPECT_EQ(get(sum), 11111111);
  launch(2, 2);
  EXPECT_EQ(get(sum), 11111111);
  EXPECT_FALSE(get(block).more);
  EXPECT_EQ(get(block).ok, 1u);

  device_->begin(*stream_, params);
  step(*stream_);
  EXPECT_EQ(get(sum), 11111111 + 100);
}

const OpDef host_double = {.name = "host_double",
                           .cpu = [](const CpuArgs& a) { *a.in_out<float>(1) = 2 * *a.in<float>(0); }};
const OpDef host_throws = {.name = "host_throws",
                           .cpu = [](const CpuArgs&) { throw std::runtime_error("the file is not there"); }};

TEST_F(CudaDeviceTest, HostCallsAreOrderedWithCopies) {
  float *x = make(1.0f), *y = make(0.0f);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  auto& reported = *new (status.get()) HostStatus;
  const BoundNode& doubles = node(host_double, {on_host, on_host + 1});
  auto issue = [&](Stream& s) {
    call(s, slow_affine, {x}, Affine{1, 1});
    device_->copy(s, on_host, x, sizeof(float));
    device_->host_call(s, doubles, reported);
    device_->copy(s, y, on_host + 1, sizeof(float));
    call(s, affine, {y}, Affine{1, 0.5f});
  };
  issue(*stream_);
  EXPECT_EQ(get(y), 4.5f);
  auto recording = record(issue);
  EXPECT_EQ(recording->info().host_nodes, 1);
  EXPECT_EQ(recording->info().copies, 2);
  for (int i = 0; i < 3; ++i) {
    Counters before = device_->counters();
    device_->launch(*stream_, *recording, nullptr);
    EXPECT_EQ(device_->counters().host_nodes - before.host_nodes, 1u);
    EXPECT_EQ(get(y), 2.0f * static_cast<float>(3 + i) + 0.5f);
  }
  EXPECT_EQ(reported.failed, 0u);
}

TEST_F(CudaDeviceTest, AnExceptionOfAHostCallIsReportedAndTheFirstIsKept) {
  Memory host = device_->allocate_host(sizeof(HostStatus));
  auto& status = *new (host.get()) HostStatus;
  const BoundNode& first = node(host_throws, {});
  const BoundNode& second = node(host_throws, {});
  auto issue = [&](Stream& s) {
    device_->host_call(s, first, status);
    device_->host_call(s, second, status);
  };
  auto expect_reported = [&] {
    device_->sync(*stream_);
    EXPECT_EQ(status.failed, 1u);
    EXPECT_EQ(status.node, first.id);
    EXPECT_STREQ(status.message, "the file is not there");
    status = HostStatus{};
  };
  issue(*stream_);
  expect_reported();
  auto recording = record(issue);
  EXPECT_EQ(status.failed, 0u);
  device_->launch(*stream_, *recording, nullptr);
  expect_reported();
}

TEST_F(CudaDeviceTest, AHostCallInALoopCannotBeRecorded) {
  float* x = make(1.0f);
  bool* more = make(true);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  const BoundNode& doubles = node(host_double, {on_host, on_host + 1});
  auto attempt = [&] {
    record([&](Stream& s) {
      loop(s, more, [&](Stream& body) {
        call(body, affine, {x});
        device_->host_call(body, doubles, *static_cast<HostStatus*>(status.get()));
      });
    });
  };
  EXPECT_THROW(attempt(), RecordingFailed);
  std::string message = message_of(attempt);
  EXPECT_TRUE(contains(message, "cuda_device_test.cpp:")) << message;
  EXPECT_TRUE(contains(message, "host_double: it recorded a host node in the body of a loop or branch")) << message;
  EXPECT_TRUE(contains(message, "remedy: give it a .cuda body")) << message;
  expect_usable();
}

TEST_F(CudaDeviceTest, ABodyThatBreaksTheCaptureIsNamed) {
  float* x = make(1.0f);
  bool* more = make(true);
  for (const OpDef* op : {&allocates, &waits}) {
    for (bool in_body : {false, true}) {
      auto attempt = [&] {
        record([&](Stream& s) {
          call(s, affine, {x});
          auto bad = [&](Stream& b) {
            call(b, affine, {x});
            call(b, *op, {});
          };
          in_body ? loop(s, more, bad) : bad(s);
        });
      };
      EXPECT_THROW(attempt(), RecordingFailed);
      std::string message = message_of(attempt);
      EXPECT_TRUE(contains(message, op->name)) << message;
      EXPECT_TRUE(contains(message, "remedy: bodies may only enqueue")) << message;
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
      expect_usable();
    }
  }
}

TEST_F(CudaDeviceTest, ACaptureBrokenByAnotherThreadIsRecordingFailedToo) {
  float* x = make(1.0f);
  auto attempt = [&] {
    record([&](Stream& s) {
      call(s, affine, {x});
      std::thread([] { (void)cudaDeviceSynchronize(); }).join();
      call(s, affine, {x});
    });
  };
  EXPECT_THROW(attempt(), RecordingFailed);
  std::string message = message_of(attempt);
  EXPECT_TRUE(contains(message, "from outside")) << message;
  expect_usable();
}

TEST_F(CudaDeviceTest, MemoryMayBeMadeWhileRecording) {
  float* x = make(1.0f);
  auto recording = record([&](Stream& s) {
    call(s, affine, {x}, Affine{1, 1});
    Memory dropped = device_->allocate(64);
    Memory pinned = device_->allocate_host(64);
    device_->reserve()->grow(1);
    call(s, affine, {x}, Affine{1, 1});
  });
  device_->launch(*stream_, *recording, nullptr);
  EXPECT_EQ(get(x), 3.0f);
}

TEST_F(CudaDeviceTest, WhatNeedsALiveStreamIsRefusedWhileRecording) {
  float* x = make(1.0f);
  float value = 2;
  StepBlock* block = make(StepBlock{});
  LaunchParams params;
  params.block = block;
  for (auto action : {std::function<void(Stream&)>([&](Stream& s) { device_->sync(s); }),
                      std::function<void(Stream&)>([&](Stream& s) { device_->upload(s, x, &value, sizeof value); }),
                      std::function<void(Stream&)>([&](Stream& s) { device_->begin(s, params); })}) {
    EXPECT_THROW(record(action), RecordingFailed);
    expect_usable();
  }
}

struct MatmulCase {
  MatmulSpec spec;
};
const OpDef product = {
    .name = "product",
    .prepare = [](const PrepareArgs& a) { return prepare_matmul(a.attrs.as<MatmulCase>().spec, a); },
};
void run_product(CudaArgs& a) { run_matmul(a, a.in<void>(0), a.in<void>(1), a.in_out<void>(2)); }
const CudaBody kProduct[] = {{0, run_product}};

class MatmulTest : public CudaDeviceTest {
 protected:
  template <class T>
  void check(const MatmulSpec& spec) {
    auto elements = [](std::int64_t rows, std::int64_t cols) { return static_cast<std::size_t>(rows * cols); };
    std::vector<T> lhs(elements(spec.m, spec.k)), rhs(elements(spec.k, spec.n)), seen(elements(spec.m, spec.n));
    for (std::size_t i = 0; i < lhs.size(); ++i) lhs[i] = static_cast<T>(static_cast<int>(i * 7 % 11) - 5);
    for (std::size_t i = 0; i < rhs.size(); ++i) rhs[i] = static_cast<T>(static_cast<int>(i * 5 % 13) - 6);
    Memory a = filled(lhs), b = filled(rhs), out = filled(seen);

    OpDef op = product;
    op.cuda = kProduct;
    BoundNode bound = node(op, {a.get(), b.get(), out.get()}, MatmulCase{spec});
    Attrs attrs = MatmulCase{spec};
    Prepared prepared = op.prepare({op.name, bound.where, {}, 2, attrs, true, device_.get()});
    EXPECT_LE(prepared.workspace, std::size_t{32} << 20);
    Memory workspace = device_->allocate(prepared.workspace);
    bound.local = prepared.data.get();
    bound.workspace = workspace.get();
    auto recording = record([&](Stream& s) { device_->call(s, bound); });
    auto expect_right = [&] {
      device_->copy(*stream_, seen.data(), out.get(), seen.size() * sizeof(T));
      device_->sync(*stream_);
      for (std::int64_t i = 0; i < spec.m; ++i) {
        for (std::int64_t j = 0; j < spec.n; ++j) {
          T sum = 0;  // of small whole numbers: exact in any order
          for (std::int64_t l = 0; l < spec.k; ++l) {
            sum += lhs[elements(1, spec.transpose_a ? l * spec.m + i : i * spec.k + l)] *
                   rhs[elements(1, spec.transpose_b ? j * spec.k + l : l * spec.n + j)];
          }
          ASSERT_EQ(seen[elements(1, i * spec.n + j)], sum) << i << ", " << j;
        }
      }
    };
    device_->call(*stream_, bound);
    expect_right();
    std::fill(seen.begin(), seen.end(), T{-1});
    device_->upload(*stream_, out.get(), seen.data(), seen.size() * sizeof(T));
    device_->launch(*stream_, *recording, nullptr);
    expect_right();
  }
  template <class T>
  Memory filled(const std::vector<T>& values) {
    Memory memory = device_->allocate(values.size() * sizeof(T));
    device_->upload(*stream_, memory.get(), values.data(), values.size() * sizeof(T));
    return memory;
  }
};

TEST_F(MatmulTest, AgreesWithTheDefinition) {
  for (bool a : {false, true}) {
    for (bool b : {false, true}) {
      for (DType dtype : {f32, f64}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + (a ? ", lhs transposed" : "") + (b ? ", rhs transposed" : ""));
        MatmulSpec spec{dtype, 5, 7, 3, a, b};
        dtype == f64 ? check<double>(spec) : check<float>(spec);
        spec = {dtype, 1, 33, 17, a, b};
        dtype == f64 ? check<double>(spec) : check<float>(spec);
      }
    }
  }
}

TEST_F(MatmulTest, AnEmptyProductDoesNothing) { check<float>({f32, 0, 4, 3, false, false}); }

TEST_F(MatmulTest, UnalignedOperandsAreRefused) {
  Memory memory = device_->allocate(4096);
  auto* data = static_cast<float*>(memory.get());
  OpDef op = product;
  op.cuda = kProduct;
  Attrs attrs = MatmulCase{{f32, 2, 2, 2, false, false}};
  BoundNode bound = node(op, {data + 1, data + 256, data + 512}, attrs);
  Prepared prepared = op.prepare({op.name, bound.where, {}, 2, attrs, true, device_.get()});
  bound.local = prepared.data.get();
  std::string message = message_of([&] { device_->call(*stream_, bound); });
  EXPECT_TRUE(contains(message, "product: an operand of the product is not 256-byte aligned")) << message;
}

#ifdef GRAPHSINK_EMULATED

class FaultTest : public CudaDeviceTest {
 protected:
  void TearDown() override { emu::reset(); }
};

TEST_F(CudaDeviceTest, CountersAgreeWithTheDevice) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  std::int32_t* counter = make(3);
  bool* more = make(false);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  const BoundNode& doubles = node(host_double, {on_host, on_host + 1});
  auto issue = [&](Stream& s) {
    device_->fence(*other, s);
    call(*other, affine, {x}, Affine{2, 0});
    device_->fence(s, *other);
    device_->copy(s, on_host, x, sizeof(float));
    device_->host_call(s, doubles, *static_cast<HostStatus*>(status.get()));
    call(s, set_count, {counter}, 3);
    call(s, is_positive, {counter, more});
    loop(s, more, [&](Stream& body) {
      call(body, count_down, {counter});
      call(body, is_positive, {counter, more});
    });
  };
  device_->sync(*stream_);
  emu::reset_calls();
  Counters before = device_->counters();
  auto expect_agreement = [&](const char* what) {
    device_->sync(*stream_);
    Counters now = device_->counters();
    EXPECT_EQ(now.api_calls - before.api_calls, emu::total_calls()) << what;
    EXPECT_EQ(now.kernels - before.kernels, emu::executed().kernels) << what;
    EXPECT_EQ(now.copies - before.copies, emu::executed().copies) << what;
    EXPECT_EQ(now.host_nodes - before.host_nodes, emu::executed().host_functions) << what;
  };
  issue(*stream_);
  expect_agreement("live");
  Stream* const streams[] = {stream_.get(), other.get()};
  auto recording = record(streams, [&](Streams s) { issue(*s[0]); });
  expect_agreement("recording");
  before = device_->counters();
  emu::reset_calls();
  device_->launch(*stream_, *recording, nullptr);
  device_->sync(*stream_);
  EXPECT_EQ(device_->counters().api_calls - before.api_calls, emu::total_calls());
  // The body of a loop within a step counts once, however often it runs.
  EXPECT_EQ(device_->counters().kernels - before.kernels + 2u * 3u, emu::executed().kernels);
}

TEST_F(FaultTest, AFailedGrowthChangesNothing) {
  std::unique_ptr<Arena> arena = device_->reserve();
  arena->grow(1);
  auto* x = reinterpret_cast<float*>(arena->base());
  set(x, 5.0f);
  std::size_t size = arena->size();
  std::size_t blocks = emu::live_objects().physical_blocks;
  for (const char* function : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    emu::fail(function, 1, cudaErrorMemoryAllocation);
    EXPECT_THROW(arena->grow(size + 1), Error) << function;
    EXPECT_EQ(arena->size(), size);
    EXPECT_EQ(emu::live_objects().physical_blocks, blocks) << function;
  }
  arena->grow(size + 1);
  EXPECT_EQ(get(x), 5.0f);
}

TEST_F(FaultTest, AfterAStickyErrorEveryCallSaysWhatHappenedFirst) {
  emu::fail("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  std::string message = message_of([&] { device_->sync(*stream_); });
  EXPECT_TRUE(contains(message, "cudaStreamSynchronize returned cudaErrorIllegalAddress")) << message;
  for (int i = 0; i < 2; ++i) {
    message = message_of([&] { device_->allocate(1); });
    EXPECT_TRUE(contains(message, "the device is lost: cudaStreamSynchronize returned cudaErrorIllegalAddress"));
    EXPECT_TRUE(contains(message, "remedy: restart the process")) << message;
  }
}

TEST_F(FaultTest, AStickyErrorWhileRecordingIsNotTransient) {
  float* x = make(1.0f);
  emu::fail("cudaLaunchKernelExC", 1, cudaErrorIllegalAddress);
  try {
    record([&](Stream& s) { call(s, affine, {x}); });
    FAIL() << "nothing was thrown";
  } catch (const RecordingFailed&) {
    FAIL() << "a lost device is more than a failed recording";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "affine");
  }
  EXPECT_TRUE(contains(message_of([&] { device_->sync(*stream_); }), "the device is lost: affine: "));
}

// Each call of a recording fails once. The streams must be live afterwards, and nothing left behind.
TEST_F(FaultTest, AnyFailureLeavesTheStreamsUsable) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  bool* more = make(true);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  Stream* const streams[] = {stream_.get(), other.get()};
  auto attempt = [&] {
    return record(streams, [&](Streams s) {
      call(*s[0], affine, {x});
      device_->fence(*s[1], *s[0]);
      device_->copy(*s[1], on_host, x, sizeof(float));
      device_->host_call(*s[1], node(host_double, {on_host, on_host + 1}), *static_cast<HostStatus*>(status.get()));
      device_->loop(s.first(1), more, [&](Streams body) {
        branch(
            *body[0], more, [&](Stream& b) { call(b, affine, {x}); }, [](Stream&) {});
      });
      device_->fence(*s[0], *s[1]);
    });
  };
  attempt();
  auto is_left = [] { return emu::live_objects().graphs + emu::live_objects().execs; };
  int failures = 0;
  for (int n = 1;; ++n) {
    emu::reset_calls();
    emu::fail("*", n, cudaErrorUnknown);
    std::unique_ptr<Recording> recording;
    try {
      recording = attempt();
    } catch (const RecordingFailed&) {
      ++failures;
    }
    bool is_done = emu::total_calls() < static_cast<std::size_t>(n);
    emu::clear_faults();
    recording.reset();
    EXPECT_EQ(is_left(), 0u) << "call " << n;
    set(x, 1.0f);
    device_->fence(*other, *stream_);
    call(*other, affine, {x}, Affine{1, 1});
    device_->fence(*stream_, *other);
    EXPECT_EQ(get(x), 2.0f) << "call " << n;
    if (is_done) break;
  }
  EXPECT_GT(failures, 40);
}

#endif

}  // namespace
}  // namespace graphsink::testing
