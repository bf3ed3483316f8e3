// Streams, events, copies and host functions: what runs when.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "test_support.h"

namespace emu_test::order_test {
namespace {

class OrderTest : public EmulatorTest {
 protected:
  int* counter() { return device(std::vector<int>{0}); }
};

TEST_F(OrderTest, RunsNothingBeforeSomethingWaits) {
  int* target = device<int>(1);
  emu::reset_calls();
  ASSERT_OK(launch_set(stream_, target, 5));
  EXPECT_EQ(0u, emu::executed().kernels);
  EXPECT_EQ(1u, emu::outstanding());
  for (int i = 0; i < 9; ++i) ASSERT_OK(launch_set(stream_, target, 5));
  ASSERT_OK(launch_set(other_, target, 5));
  ASSERT_OK(cudaStreamSynchronize(other_));
  EXPECT_EQ(1u, emu::executed().kernels);
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(11u, emu::executed().kernels);
  EXPECT_EQ(0u, emu::outstanding());
}

TEST_F(OrderTest, RunsWorkEarlyWithSomeSeed) {
  int* target = device<int>(1);
  emu::set_seed(2);
  emu::reset_calls();
  for (int i = 0; i < 20; ++i) ASSERT_OK(launch_set(stream_, target, i));
  EXPECT_GT(emu::executed().kernels, 0u);
}

TEST_F(OrderTest, KeepsStreamAndEventOrderWithEverySeed) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    emu::set_seed(seed);
    int *log = device<int>(6), *count = counter();
    for (int i = 0; i < 3; ++i) ASSERT_OK(launch_append(stream_, log, count, i));
    join(stream_, other_);
    for (int i = 3; i < 6; ++i) ASSERT_OK(launch_append(other_, log, count, i));
    ASSERT_OK(cudaStreamSynchronize(other_));
    EXPECT_EQ((std::vector<int>{0, 1, 2, 3, 4, 5}), host(log, 6)) << seed;
  }
}

TEST_F(OrderTest, ShowsAMissingEventWaitWithSomeSeed) {
  int wrong = 0;
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    int *source = counter(), *target = counter();
    ASSERT_OK(launch_set(stream_, source, 41));
    ASSERT_OK(launch_add(other_, target, source, 1));
    ASSERT_OK(cudaDeviceSynchronize());
    wrong += host(target, 1)[0] != 42;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(OrderTest, OrdersBlockingStreamsBehindTheLegacyStream) {
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  for (unsigned seed = 0; seed < 8; ++seed) {
    emu::set_seed(seed);
    int *log = device<int>(3), *count = counter();
    ASSERT_OK(launch_append(blocking, log, count, 0));
    ASSERT_OK(launch_append(nullptr, log, count, 1));
    ASSERT_OK(launch_append(blocking, log, count, 2));
    ASSERT_OK(cudaStreamSynchronize(blocking));
    EXPECT_EQ((std::vector<int>{0, 1, 2}), host(log, 3)) << seed;
  }
  ASSERT_OK(cudaStreamDestroy(blocking));
}

TEST_F(OrderTest, MakesProgressWhenAsked) {
  int* target = counter();
  for (int i = 0; i < 5; ++i) ASSERT_OK(launch_add(stream_, target, target, 1));
  int polls = 0;
  cudaError_t code;
  while ((code = cudaStreamQuery(stream_)) == cudaErrorNotReady) ASSERT_LT(++polls, 100);
  ASSERT_OK(code);
  EXPECT_GT(polls, 0);
  EXPECT_CUDA(cudaSuccess, cudaPeekAtLastError()) << "not being ready is an answer, no error";
  const cudaEvent_t made = event();
  ASSERT_OK(launch_add(stream_, target, target, 1));
  ASSERT_OK(cudaEventRecord(made, stream_));
  while ((code = cudaEventQuery(made)) == cudaErrorNotReady) ASSERT_LT(++polls, 200);
  ASSERT_OK(code);
  EXPECT_EQ(6, host(target, 1)[0]);
}

TEST_F(OrderTest, ReadsPageableSourcesAtTheCallAndPinnedOnesWhenItRuns) {
  int pageable = 1;
  int* pinned = nullptr;
  ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  *pinned = 1;
  int *from_pageable = counter(), *from_pinned = counter();
  ASSERT_OK(cudaMemcpyAsync(from_pageable, &pageable, sizeof(int), cudaMemcpyHostToDevice, stream_));
  ASSERT_OK(cudaMemcpyAsync(from_pinned, pinned, sizeof(int), cudaMemcpyHostToDevice, stream_));
  pageable = *pinned = 2;
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(1, host(from_pageable, 1)[0]);
  EXPECT_EQ(2, host(from_pinned, 1)[0]);
  ASSERT_OK(cudaFreeHost(pinned));
}

TEST_F(OrderTest, ChecksCopies) {
  int* target = device<int>(4);
  int source[8] = {};
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpy(target, source, sizeof source, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpy(target, source, 16, cudaMemcpyDeviceToHost));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpy(target, source, 16, cudaMemcpyDeviceToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemcpy(source, source + 4, 16, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaMemset(target, 0, 17));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetLastError());
}

// What is the device's can be found out from the address, and pinned memory is both.
TEST_F(OrderTest, TakesDeviceAddressesForTheHostsAndPinnedMemoryForTheDevices) {
  const int* source = device(std::vector<int>{7});
  int* target = device<int>(1);
  int* pinned = nullptr;
  ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  for (const cudaMemcpyKind kind : {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice}) {
    ASSERT_OK(cudaMemsetAsync(target, 0, sizeof(int), stream_));
    ASSERT_OK(cudaMemcpyAsync(target, source, sizeof(int), kind, stream_));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(7, host(target, 1)[0]);
  }
  for (const cudaMemcpyKind kind : {cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice}) {
    *pinned = kind;
    ASSERT_OK(cudaMemcpyAsync(target, pinned, sizeof(int), kind, stream_));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(kind, host(target, 1)[0]);
  }
  ASSERT_OK(cudaFreeHost(pinned));
}

struct Record {
  std::vector<int> seen;
  std::thread::id thread;
  cudaError_t inside = cudaSuccess;
  static void append(void* self) {
    auto* record = static_cast<Record*>(self);
    record->seen.push_back(static_cast<int>(record->seen.size()));
    record->thread = std::this_thread::get_id();
    record->inside = cudaStreamQuery(nullptr);
  }
};

TEST_F(OrderTest, RunsHostFunctionsInOrderOnAThreadOfTheirOwn) {
  Record record;
  int* target = counter();
  int* pinned = nullptr;
  ASSERT_OK(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int)));
  ASSERT_OK(launch_set(stream_, target, 3));
  ASSERT_OK(cudaMemcpyAsync(pinned, target, sizeof(int), cudaMemcpyDeviceToHost, stream_));
  ASSERT_OK(cudaLaunchHostFunc(stream_, Record::append, &record));
  ASSERT_OK(cudaLaunchHostFunc(
      stream_, [](void* p) { ++*static_cast<int*>(p); }, pinned));
  ASSERT_OK(cudaLaunchHostFunc(stream_, Record::append, &record));
  EXPECT_TRUE(record.seen.empty());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<int>{0, 1}), record.seen);
  EXPECT_EQ(4, *pinned);
  EXPECT_NE(std::this_thread::get_id(), record.thread);
  EXPECT_CUDA(cudaErrorNotPermitted, record.inside);
  ASSERT_OK(cudaFreeHost(pinned));
}

TEST_F(OrderTest, DoesNotCallHostFunctionsAfterAFailure) {
  Record record;
  ASSERT_OK(launch_divergent(stream_, 32, 5));
  ASSERT_OK(cudaLaunchHostFunc(stream_, Record::append, &record));
  ASSERT_OK(cudaLaunchHostFunc(other_, Record::append, &record));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
  EXPECT_EQ(0u, emu::outstanding());
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(other_));
  EXPECT_TRUE(record.seen.empty());
}

// The host function ends only after the thread that waits for it has returned.
TEST_F(OrderTest, AThreadThatWaitsReturnsWhenTheContextFails) {
  struct Signals {
    std::promise<void> begun, may_end;
  };
  const auto signals = std::make_shared<Signals>();
  const auto wait_for_end = [](void* p) {
    const std::unique_ptr<std::shared_ptr<Signals>> mine(static_cast<std::shared_ptr<Signals>*>(p));
    (*mine)->begun.set_value();
    (*mine)->may_end.get_future().wait();
  };
  ASSERT_OK(cudaLaunchHostFunc(stream_, wait_for_end, new std::shared_ptr<Signals>(signals)));
  cudaError_t result = cudaSuccess;
  std::thread waits([&] { result = cudaStreamSynchronize(stream_); });
  signals->begun.get_future().wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it sleeps; any time gives the same result
  emu::fail("cudaStreamQuery", 1, cudaErrorIllegalAddress);
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamQuery(other_));
  waits.join();
  EXPECT_CUDA(cudaErrorIllegalAddress, result);
  signals->may_end.set_value();
}

TEST_F(OrderTest, ServesTwoThreads) {
  std::atomic<int> wrong = 0;
  const auto work = [&wrong] {
    cudaStream_t stream = nullptr;
    void* data = nullptr;
    wrong += cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
    wrong += cudaMalloc(&data, sizeof(int)) != cudaSuccess;
    wrong += launch_set(stream, static_cast<int*>(data), 0) != cudaSuccess;
    for (int i = 0; i < 50; ++i) {
      wrong += launch_add(stream, static_cast<int*>(data), static_cast<int*>(data), 1) != cudaSuccess;
      wrong += cudaStreamSynchronize(stream) != cudaSuccess;
    }
    int result = 0;
    wrong += cudaMemcpyAsync(&result, data, sizeof result, cudaMemcpyDeviceToHost, stream) != cudaSuccess;
    wrong += result != 50;
    wrong += cudaFree(data) != cudaSuccess;
    wrong += cudaStreamDestroy(stream) != cudaSuccess;
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  EXPECT_EQ(0, wrong.load());
}

// A kernel of a library that waits for something lets the device do what does not depend on it.
TEST_F(OrderTest, RunsBesideAKernelThatWaits) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    int* targets = device(std::vector<int>{0, 0, 0});
    int seen = 0, count = 0;
    const auto body = [&] {
      while (emu::run_beside()) ++count;
      seen = 10 * targets[1] + targets[2];
      targets[0] = 1;
      return cudaSuccess;
    };
    ASSERT_OK(launch_set(other_, targets + 1, 3));
    ASSERT_OK(emu::launch_library_kernel("waits", stream_, body, {targets}));
    ASSERT_OK(launch_add(stream_, targets + 2, targets, 1));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_TRUE(seen == 30) << seen << " with seed " << seed << ": what is behind the kernel waits for it";
    EXPECT_TRUE(seed == 0 ? count == 1 : count <= 1) << count;
    EXPECT_EQ((std::vector<int>{1, 3, 2}), host(targets, 3));
  }
}

TEST_F(OrderTest, AHostFunctionRunsBesideAKernelThatWaits) {
  int called = 0, seen = -1;
  const auto body = [&] {
    while (emu::run_beside()) {
    }
    seen = called;
    return cudaSuccess;
  };
  ASSERT_OK(emu::launch_library_kernel("waits", stream_, body, {}));
  ASSERT_OK(cudaLaunchHostFunc(
      other_, [](void* flag) { *static_cast<int*>(flag) = 1; }, &called));
  ASSERT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(1, seen);
}

TEST_F(OrderTest, AKernelOfALibraryThatIsGivenFreedMemoryFails) {
  void* freed = nullptr;
  ASSERT_OK(cudaMalloc(&freed, 64));
  ASSERT_OK(cudaFree(freed));
  ASSERT_OK(emu::launch_library_kernel("waits", stream_, [] { return cudaSuccess; }, {freed}));
  EXPECT_CUDA(cudaErrorIllegalAddress, cudaStreamSynchronize(stream_));
}

TEST_F(OrderTest, MeasuresTimeBetweenEvents) {
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_OK(cudaEventCreateWithFlags(&start, cudaEventDefault));
  ASSERT_OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  float elapsed = -1.0f;
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&elapsed, start, end));
  ASSERT_OK(cudaEventRecord(start, stream_));
  ASSERT_OK(launch_set(stream_, counter(), 1));
  ASSERT_OK(cudaEventRecord(end, stream_));
  EXPECT_CUDA(cudaErrorNotReady, cudaEventElapsedTime(&elapsed, start, end));
  ASSERT_OK(cudaEventSynchronize(end));
  ASSERT_OK(cudaEventElapsedTime(&elapsed, start, end));
  EXPECT_GE(elapsed, 0.0f);
  ASSERT_OK(cudaEventDestroy(start));
  ASSERT_OK(cudaEventDestroy(end));
}

}  // namespace
}  // namespace emu_test::order_test
