// What the tests of the software device share.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "emulator.h"
#include "test_kernels.h"

#define EXPECT_CUDA(expected, call) EXPECT_EQ(expected, call) << #call
#define ASSERT_OK(call) ASSERT_EQ(cudaSuccess, call) << #call

namespace emu_test {

inline cudaGraphNodeParams node_params(cudaGraphNodeType type) {
  cudaGraphNodeParams params = {};
  params.type = type;
  return params;
}

// A driver function by its name.
template <class F>
F* entry(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_EQ(cudaSuccess, cudaGetDriverEntryPointByVersion(name, &function, 13000, cudaEnableDefault, &found));
  EXPECT_EQ(cudaDriverEntryPointSuccess, found);
  return reinterpret_cast<F*>(function);
}

// Each test begins with a healthy device and leaves nothing behind.
class EmulatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A death test runs in a process of its own from the beginning: after a fork the device's threads would be missing.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    emu::reset();
    emu::set_seed(0);
    before_ = emu::live_objects().total();
    EXPECT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EXPECT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    emu::reset();
    for (void* pointer : device_) cudaFree(pointer);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    EXPECT_EQ(before_, emu::live_objects().total());
    emu::set_seed(0);
  }

  template <class T>
  T* device(std::size_t count) {
    void* pointer = nullptr;
    EXPECT_EQ(cudaSuccess, cudaMalloc(&pointer, count * sizeof(T)));
    device_.push_back(pointer);
    return static_cast<T*>(pointer);
  }
  template <class T>
  T* device(const std::vector<T>& values) {
    T* pointer = device<T>(values.size());
    EXPECT_EQ(cudaSuccess, cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return pointer;
  }
  template <class T>
  std::vector<T> host(const T* pointer, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cudaSuccess, cudaMemcpy(values.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  cudaEvent_t event() {
    cudaEvent_t made = nullptr;
    EXPECT_EQ(cudaSuccess, cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    events_.push_back(made);
    return made;
  }
  // `to` goes on after what `from` has now.
  void join(cudaStream_t from, cudaStream_t to) {
    const cudaEvent_t made = event();
    EXPECT_EQ(cudaSuccess, cudaEventRecord(made, from));
    EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(to, made, 0));
  }
  void launch_and_destroy(cudaGraph_t graph, int times = 1) {
    cudaGraphExec_t exec = nullptr;
    ASSERT_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; ++i) ASSERT_OK(cudaGraphLaunch(exec, stream_));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    ASSERT_OK(cudaGraphExecDestroy(exec));
    ASSERT_OK(cudaGraphDestroy(graph));
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;

 private:
  std::size_t before_ = 0;
  std::vector<void*> device_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace emu_test
