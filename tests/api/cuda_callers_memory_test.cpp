// Programs that work in CUDA memory of the caller, on a stream of the caller.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "messages.h"
#include "program_fixture.h"
#ifdef GRAPHSINK_EMULATED
#include "emulator.h"
#endif

namespace graphsink::cuda_callers_memory_test {
namespace {

using testing::contains;
using testing::message_of;

constexpr std::size_t kBytes = 2 * sizeof(float);

class CudaCallersMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device answers";
    ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    g_.output("y", y_);
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
  }
  static std::byte* allocated() {
    void* memory = nullptr;
    EXPECT_EQ(cudaSuccess, cudaMalloc(&memory, kBytes));
    return static_cast<std::byte*>(memory);
  }

  Graph g_;
  Value x_ = g_.input("x", f32, {2});
  Value y_ = x_ * 2.0;
  cudaStream_t stream_ = nullptr;
};

// The host does not wait between the copies of the caller and the steps of the program.
TEST_F(CudaCallersMemory, IsOrderedByTheCallersStream) {
  std::byte *in = allocated(), *out = allocated();
  {
    Program p = compile(g_, {.target = cuda(0)});
    p.bind_memory(x_, in, kBytes);
    p.bind_memory(y_, out, kBytes);
    float *values = nullptr, *results = nullptr;
    constexpr int kRuns = 50;
    ASSERT_EQ(cudaSuccess, cudaHostAlloc(reinterpret_cast<void**>(&values), kRuns * kBytes, 0));
    ASSERT_EQ(cudaSuccess, cudaHostAlloc(reinterpret_cast<void**>(&results), kRuns * kBytes, 0));
    for (int i = 0; i < kRuns; ++i) {
      values[2 * i] = values[2 * i + 1] = static_cast<float>(i);
      ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(in, values + 2 * i, kBytes, cudaMemcpyHostToDevice, stream_));
      p.run(sink, {.stream = stream_});
      ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(results + 2 * i, out, kBytes, cudaMemcpyDeviceToHost, stream_));
    }
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    for (int i = 0; i < 2 * kRuns; ++i) EXPECT_EQ(results[i], 2 * values[i]);
    EXPECT_EQ(cudaSuccess, cudaFreeHost(values));
    EXPECT_EQ(cudaSuccess, cudaFreeHost(results));
  }
  EXPECT_EQ(cudaSuccess, cudaFree(in));
  EXPECT_EQ(cudaSuccess, cudaFree(out));
}

// What the caller does next with the memory is not ordered with the program's stream.
TEST_F(CudaCallersMemory, HasWhatWasWrittenWhenTheCallReturns) {
  std::byte* in = allocated();
  float* read = nullptr;
  ASSERT_EQ(cudaSuccess, cudaHostAlloc(reinterpret_cast<void**>(&read), 2 * kBytes, 0));
  {
    Program p = compile(g_, {.target = cuda(0)});
    p.bind_memory(x_, in, kBytes);
    p.write(x_, std::vector<float>{0, 0});
    p.run();
    p.sync();
    p.write(x_, std::vector<float>{1, 1});
    ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(read, in, kBytes, cudaMemcpyDeviceToHost, stream_));
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    EXPECT_EQ(read[1], 1.0f);
    const float newer[] = {2, 2};
    p.write(x_, std::vector<float>{1, 1});
    ASSERT_EQ(cudaSuccess, cudaMemcpy(in, newer, kBytes, cudaMemcpyHostToDevice));
    ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());  // from memory that is not pinned, the copy may come later
    p.run();
    EXPECT_EQ(p.output(y_).at(1), 4.0);
    // In the order of a stream the host need not wait.
    p.write(x_, std::vector<float>{3, 3}, {.stream = stream_});
    ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(read + 2, in, kBytes, cudaMemcpyDeviceToHost, stream_));
    ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    EXPECT_EQ(read[3], 3.0f);
  }
  EXPECT_EQ(cudaSuccess, cudaFreeHost(read));
  EXPECT_EQ(cudaSuccess, cudaFree(in));
}

#ifdef GRAPHSINK_EMULATED
// What was captured for the old memory goes, and so must not be running.
TEST_F(CudaCallersMemory, IsBoundAnewWhenTheLaunchesHaveEnded) {
  std::byte *first = allocated(), *second = allocated();
  {
    Program p = compile(g_, {.target = cuda(0)});
    p.bind_memory(y_, first, kBytes);
    p.write(x_, std::vector<float>{1, 2});
    for (int i = 0; i < 3; ++i) p.run(sink);
    p.bind_memory(y_, second, kBytes);
    EXPECT_EQ(emu::outstanding(), 0u);
    p.run(sink);
    EXPECT_EQ(p.output(y_).at(1), 4.0);
  }
  EXPECT_EQ(cudaSuccess, cudaFree(first));
  EXPECT_EQ(cudaSuccess, cudaFree(second));
}
#endif

TEST_F(CudaCallersMemory, OfAnotherKindIsRefused) {
  Program p = compile(g_, {.target = cuda(0)});
  auto expect = [&](void* memory, std::size_t bytes, const std::vector<const char*>& words) {
    std::string message = message_of([&] { p.bind_memory(x_, memory, bytes); });
    for (const char* word : words) EXPECT_TRUE(contains(message, word)) << word << " in: " << message;
    EXPECT_TRUE(contains(message, "the memory for input \"x\": ")) << message;
    EXPECT_TRUE(contains(message, "remedy: pass memory from cudaMalloc()")) << message;
  };
  alignas(256) std::byte local[256];
  expect(local, kBytes, {"it is not memory of a CUDA device"});
  void* pinned = nullptr;
  ASSERT_EQ(cudaSuccess, cudaHostAlloc(&pinned, 4096, 0));
  expect(pinned, kBytes, {"it is memory of the host"});
  EXPECT_EQ(cudaSuccess, cudaFreeHost(pinned));
  std::byte* mine = allocated();
  expect(mine, std::size_t{1} << 50, {"it ends before the 1125899906842624 bytes"});
  p.bind_memory(x_, mine, kBytes);
  EXPECT_EQ(cudaSuccess, cudaMemset(mine, 0, kBytes));
  EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
  p.run();
  EXPECT_EQ(p.output(y_).at(1), 0.0);
  EXPECT_EQ(cudaSuccess, cudaFree(mine));
}

TEST_F(CudaCallersMemory, OfAnotherDeviceIsRefused) {
#ifdef GRAPHSINK_EMULATED
  emu::set_device_count(2);
#endif
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  Program p = compile(g_, {.target = cuda(0)});
  ASSERT_EQ(cudaSuccess, cudaSetDevice(1));
  std::byte* there = allocated();
  ASSERT_EQ(cudaSuccess, cudaSetDevice(0));
  std::string message = message_of([&] { p.bind_memory(x_, there, kBytes); });
  EXPECT_TRUE(contains(message, "it belongs to cuda:1, the program runs on cuda:0")) << message;
  EXPECT_EQ(cudaSuccess, cudaFree(there));
#ifdef GRAPHSINK_EMULATED
  emu::set_device_count(1);
#endif
}

}  // namespace
}  // namespace graphsink::cuda_callers_memory_test
