// What tests of SinkCache start from: a sum in device memory, and a stream.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graphsink/capture.h"
#include "guest_kernels.h"
#include "messages.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::testing {

class Guest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      (void)cudaGetLastError();
      GTEST_SKIP() << "no CUDA device answers";
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (int*& sum : sums_) sum = make_sum();
  }
  void TearDown() override {
    for (int* sum : made_) EXPECT_EQ(cudaFree(sum), cudaSuccess);
    if (stream_) {
      EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error was left behind";
#ifdef GRAPHSINK_EMULATED
    emu::reset();
#endif
  }

  int* make_sum() {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory, 0, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << "no other stream waits for it";
    made_.push_back(static_cast<int*>(memory));
    return made_.back();
  }
  // After everything that the device was given.
  static int read(const int* sum) {
    int value = -1;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

  // Collects what a cache logs.
  SinkOptions logged(SinkOptions options = {}) {
    options.log = [this](LogLevel, std::string_view message) { messages_.emplace_back(message); };
    return options;
  }

  cudaStream_t stream_ = nullptr;
  int* sums_[3] = {};
  std::vector<std::string> messages_;

 private:
  std::vector<int*> made_;
};

}  // namespace graphsink::testing
