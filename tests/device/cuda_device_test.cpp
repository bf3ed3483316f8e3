// The device boundary on CUDA: a GPU, or the software device that stands in for it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "cuda_device_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#include "ir/step_state.h"
#endif

namespace graphsink::testing::cuda_device_test {
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
    device_->make_wait(*other, *stream_);
    call(*other, slow_affine, {x}, Affine{2, 0});
    device_->make_wait(*stream_, *other);
    call(*stream_, slow_affine, {x}, Affine{1, -1});
  }
  device_->make_wait(*stream_, *stream_);
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
    EXPECT_THROW(capture(issue), CaptureFailed);
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
  EXPECT_TRUE(contains(message, "cpu_only: it has no CUDA body")) << message;
}

TEST_F(CudaDeviceTest, HostCallsAreOrderedWithCopies) {
  float *x = make(1.0f), *y = make(0.0f);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  auto& reported = *new (status.get()) HostStatus;
  const BoundNode& doubles = host_node(host_double, {on_host, on_host + 1}, reported);
  auto issue = [&](Stream& s) {
    call(s, slow_affine, {x}, Affine{1, 1});
    device_->copy(s, on_host, x, sizeof(float));
    device_->call(s, doubles);
    device_->copy(s, y, on_host + 1, sizeof(float));
    call(s, affine, {y}, Affine{1, 0.5f});
  };
  issue(*stream_);
  EXPECT_EQ(get(y), 4.5f);
  auto captured = capture(issue);
  EXPECT_EQ(captured->info().host_nodes, 1);
  EXPECT_EQ(captured->info().copies, 2);
  for (int i = 0; i < 3; ++i) {
    Counters before = device_->counters();
    device_->launch(*stream_, *captured);
    EXPECT_EQ(device_->counters().host_nodes - before.host_nodes, 1u);
    EXPECT_EQ(get(y), 2.0f * static_cast<float>(3 + i) + 0.5f);
  }
  EXPECT_EQ(reported.failed, 0u);
}

TEST_F(CudaDeviceTest, AnExceptionOfAHostCallIsReportedAndTheFirstIsKept) {
  Memory host = device_->allocate_host(sizeof(HostStatus));
  auto& status = *new (host.get()) HostStatus;
  const BoundNode& first = host_node(host_throws, {}, status);
  const BoundNode& second = host_node(host_throws, {}, status);
  auto issue = [&](Stream& s) {
    device_->call(s, first);
    device_->call(s, second);
  };
  auto expect_reported = [&] {
    device_->wait(*stream_);
    EXPECT_EQ(status.failed, 1u);
    EXPECT_EQ(status.node, first.id);
    EXPECT_STREQ(status.what.problem, "the file is not there");
    status = HostStatus{};
  };
  issue(*stream_);
  expect_reported();
  auto captured = capture(issue);
  EXPECT_EQ(status.failed, 0u);
  device_->launch(*stream_, *captured);
  expect_reported();
}

TEST_F(CudaDeviceTest, WhateverAHostCallThrowsIsReported) {
  Memory host = device_->allocate_host(sizeof(HostStatus));
  auto& status = *new (host.get()) HostStatus;
  const BoundNode& throws = host_node(host_throws_a_number, {}, status);
  device_->call(*stream_, throws);
  device_->wait(*stream_);
  EXPECT_EQ(status.failed, 1u);
  EXPECT_EQ(status.node, throws.id);
  EXPECT_STREQ(status.what.problem, "unknown exception");
}

TEST_F(CudaDeviceTest, CountersCountWhatWasAskedFor) {
  float* x = make(1.0f);
  LaunchQueue launches;
  launches.allocate(*device_, make(StepState{}), make(std::uint32_t{0}));
  auto captured = capture([&](Stream& s) {
    device_->begin(s, launches.ring());
    call(s, affine, {x}, Affine{2, 0});
    call(s, affine, {x}, Affine{2, 0});
  });
  Counters before = device_->counters();
  launches.push({}, *device_, *stream_);
  device_->launch(*stream_, *captured);
  Counters after = device_->counters();
  EXPECT_EQ(after.api_calls - before.api_calls, 1u);
  EXPECT_EQ(after.kernels - before.kernels, 3u);
  EXPECT_EQ(after.graph_launches - before.graph_launches, 1u);
  before = after;
  launches.push({}, *device_, *stream_);
  device_->begin(*stream_, launches.ring());
  after = device_->counters();
  EXPECT_EQ(after.api_calls - before.api_calls, 1u);
  EXPECT_EQ(after.kernels - before.kernels, 1u);
  before = after;
  call(*stream_, affine, {x}, Affine{2, 0});
  after = device_->counters();
  EXPECT_EQ(after.api_calls - before.api_calls, 1u);
  EXPECT_EQ(after.kernels - before.kernels, 1u);
  EXPECT_EQ(after.captures, 1u);
  device_->wait(*stream_);  // before the launches, which it reads, are gone
}

#ifdef GRAPHSINK_EMULATED

TEST_F(CudaDeviceTest, CountersAgreeWithTheDevice) {
  auto other = device_->make_stream();
  float* x = make(1.0f);
  std::int32_t* counter = make(3);
  bool* more = make(false);
  Memory host = device_->allocate_host(2 * sizeof(float)), status = device_->allocate_host(sizeof(HostStatus));
  auto* on_host = static_cast<float*>(host.get());
  const BoundNode& doubles = host_node(host_double, {on_host, on_host + 1}, *static_cast<HostStatus*>(status.get()));
  auto issue = [&](Stream& s) {
    device_->make_wait(*other, s);
    call(*other, affine, {x}, Affine{2, 0});
    device_->make_wait(s, *other);
    device_->copy(s, on_host, x, sizeof(float));
    device_->call(s, doubles);
    call(s, set_count, {counter}, 3);
    call(s, is_positive, {counter, more});
    loop(s, more, [&](Stream& body) {
      call(body, count_down, {counter});
      call(body, is_positive, {counter, more});
    });
  };
  device_->wait(*stream_);
  emu::reset_calls();
  Counters before = device_->counters();
  auto expect_agreement = [&](const char* what) {
    device_->wait(*stream_);
    Counters now = device_->counters();
    EXPECT_EQ(now.api_calls - before.api_calls, emu::total_calls()) << what;
    EXPECT_EQ(now.kernels - before.kernels, emu::executed().kernels) << what;
    EXPECT_EQ(now.copies - before.copies, emu::executed().copies) << what;
    EXPECT_EQ(now.host_nodes - before.host_nodes, emu::executed().host_functions) << what;
  };
  issue(*stream_);
  expect_agreement("live");
  Stream* const streams[] = {stream_.get(), other.get()};
  auto captured = capture(streams, [&](Streams s) { issue(*s[0]); });
  expect_agreement("capture");
  before = device_->counters();
  emu::reset_calls();
  device_->launch(*stream_, *captured);
  device_->wait(*stream_);
  EXPECT_EQ(device_->counters().api_calls - before.api_calls, emu::total_calls());
  // The body of a loop within a step counts once, however often it runs.
  EXPECT_EQ(device_->counters().kernels - before.kernels + 2u * 3u, emu::executed().kernels);
}

#endif

}  // namespace
}  // namespace graphsink::testing::cuda_device_test
