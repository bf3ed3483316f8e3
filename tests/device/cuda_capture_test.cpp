// Captures of the CUDA device: what is captured, what runs, what is refused.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "cuda_device_fixture.h"
#include "graphsink/cuda.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#include "ir/step_state.h"
#endif

namespace graphsink::testing::cuda_capture_test {
namespace {

class CudaCaptureTest : public CudaDeviceTest {};

TEST_F(CudaCaptureTest, NothingRunsBeforeTheLaunch) {
  float* x = make(1.0f);
  auto captured = capture([&](Stream& s) {
    call(s, affine, {x}, Affine{2, 0});
    call(s, affine, {x}, Affine{1, 5});
  });
  EXPECT_EQ(get(x), 1.0f);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 7.0f);
  device_->launch(*stream_, *captured);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 43.0f);
}

TEST_F(CudaCaptureTest, CaptureInfoCountsNodes) {
  float *x = make(1.0f), *y = make(0.0f);
  bool* flag = make(true);
  auto captured = capture([&](Stream& s) {
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
  CaptureInfo info = captured->info();
  EXPECT_EQ(info.kernels, 4);  // three ops and the branch's decision
  EXPECT_EQ(info.copies, 1);
  EXPECT_EQ(info.conditional_nodes, 1);
  EXPECT_EQ(info.empty_nodes, 1);  // the else branch
  EXPECT_EQ(info.host_nodes, 0);
  EXPECT_EQ(info.edges, 4);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(y), 6.0f);
}

TEST_F(CudaCaptureTest, CapturedStreamsForkAndJoin) {
  auto other = device_->make_stream();
  float *x = make(1.0f), *y = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  auto issue = [&](Streams s) {
    call(*s[0], slow_affine, {x}, Affine{3, 0});
    device_->make_wait(*s[1], *s[0]);
    call(*s[1], slow_affine, {x}, Affine{1, 1});
    call(*s[0], slow_affine, {y}, Affine{2, 0});
    device_->make_wait(*s[0], *s[1]);
    call(*s[0], slow_affine, {x}, Affine{2, 0});
  };
  auto captured = capture(streams, issue);
  EXPECT_EQ(captured->info().kernels, 4);
  EXPECT_EQ(captured->info().edges, 4);
  device_->launch(*stream_, *captured);
  EXPECT_EQ(get(x), 8.0f);
  EXPECT_EQ(get(y), 2.0f);
  issue(streams);
  EXPECT_EQ(get(x), 50.0f);
}

TEST_F(CudaCaptureTest, AStreamThatWasNotJoinedFailsTheCapture) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  EXPECT_THROW(capture(streams,
                       [&](Streams s) {
                         call(*s[0], affine, {x});
                         device_->make_wait(*s[1], *s[0]);
                         call(*s[1], affine, {x});
                       }),
               CaptureFailed);
  EXPECT_EQ(get(x), 1.0f);
  expect_usable();
}

TEST_F(CudaCaptureTest, WorkForAStreamOutsideTheCaptureIsRefusedBeforeItRuns) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  Stream* const streams[] = {stream_.get(), other.get()};
  std::string message = message_of([&] {
    capture(streams, [&](Streams s) { call(*s[1], affine, {x}, Affine{5, 0}); });
  });
  EXPECT_TRUE(contains(message, "affine: its stream takes no part in the capture")) << message;
  device_->wait(*other);
  EXPECT_EQ(get(x), 1.0f);
  expect_usable();
}

// Collatz-like, with a loop in one arm of a branch in a loop: x depends on every decision.
TEST_F(CudaCaptureTest, NestedControlFlowGivesTheSameLiveAndCaptured) {
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
  auto captured = capture(issue);
  EXPECT_EQ(captured->info().conditional_nodes, 3);
  EXPECT_EQ(captured->info().kernels, 11 + 2 + 1 + 2);  // a loop decides before and in its body
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
    device_->launch(*stream_, *captured);
    EXPECT_EQ(get(x), expected) << "captured, " << count;
  }
}

TEST_F(CudaCaptureTest, ALaunchRunsManySteps) {
  constexpr std::int64_t kSlices = 8;
  StepState* block = make(StepState{});
  std::int64_t* sum = make(std::int64_t{0});
  Memory ring = device_->allocate(kSlices * sizeof(std::int64_t));
  std::vector<std::int64_t> values = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
  device_->upload(*stream_, ring.get(), values.data(), values.size() * sizeof(std::int64_t));
  FeedTables feeds{make<const void*>(ring.get()), make(std::int64_t{sizeof(std::int64_t)})};
  LaunchQueue launches;
  launches.allocate(*device_, block, make(std::uint32_t{0}));
  auto step = [&](Stream& s) {
    call(s, add_slice, {sum}, feeds, block);
    call(s, next_slice, {}, {}, block);
  };
  auto captured = capture([&](Stream& s) {
    device_->begin(s, launches.ring());
    loop(s, &block->more, step);
  });
  auto launch = [&](int first, int end) {
    launches.push({.first_slice = first, .end_slice = end}, *device_, *stream_);
    device_->launch(*stream_, *captured, std::max(end - first, 1));
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

  launches.push({.first_slice = 2, .end_slice = 2}, *device_, *stream_);
  device_->begin(*stream_, launches.ring());
  step(*stream_);
  EXPECT_EQ(get(sum), 11111111 + 100);
}

TEST_F(CudaCaptureTest, ACaptureBrokenByAnotherThreadIsCaptureFailedToo) {
  float* x = make(1.0f);
  auto attempt = [&] {
    capture([&](Stream& s) {
      call(s, affine, {x});
      std::thread([] { (void)cudaDeviceSynchronize(); }).join();
      call(s, affine, {x});
    });
  };
  // Sources disagree whether a wait of another thread breaks a capture that is thread-local.
  bool is_broken = true;
  std::string message = message_of([&] {
    attempt();
    is_broken = false;
  });
  std::cout << "either way: cudaDeviceSynchronize of another thread " << (is_broken ? "breaks" : "does not break")
            << " a thread-local capture\n";
  if (is_broken) {
    EXPECT_THROW(attempt(), CaptureFailed);
    EXPECT_TRUE(contains(message, "from outside")) << message;
  }
#ifdef GRAPHSINK_EMULATED
  EXPECT_TRUE(is_broken);
#endif
  expect_usable();
}

TEST_F(CudaCaptureTest, WhatNeedsALiveStreamIsRefusedWhileCapturing) {
  float* x = make(1.0f);
  float value = 2;
  for (auto action : {std::function<void(Stream&)>([&](Stream& s) { device_->wait(s); }),
                      std::function<void(Stream&)>([&](Stream& s) { device_->upload(s, x, &value, sizeof value); })}) {
    EXPECT_THROW(capture(action), CaptureFailed);
    expect_usable();
  }
}

}  // namespace
}  // namespace graphsink::testing::cuda_capture_test
