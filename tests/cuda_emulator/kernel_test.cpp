#include <algorithm>
#include <numeric>

#include "test_support.h"

namespace emu_test::kernel_test {
namespace {

class KernelTest : public EmulatorTest {};

TEST_F(KernelTest, AddsVectors) {
  std::vector<float> a(1000), b(1000);
  std::iota(a.begin(), a.end(), 0.0f);
  std::iota(b.begin(), b.end(), 5.0f);
  float* c = device<float>(1000);
  ASSERT_OK(launch_vecadd(stream_, device(a), device(b), c, 1000));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  const std::vector<float> result = host(c, 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(a[i] + b[i], result[i]) << i;
}

TEST_F(KernelTest, TakesLargeStructuresByValueAtTheCall) {
  Affine affine{};
  for (int i = 0; i < 64; ++i) affine.scale[i] = static_cast<float>(i);
  affine.offset = 1.0f;
  float* data = device(std::vector<float>(64, 2.0f));
  ASSERT_OK(launch_affine(stream_, data, affine, 64));
  affine.offset = 100.0f;
  ASSERT_OK(cudaStreamSynchronize(stream_));
  const std::vector<float> result = host(data, 64);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(2.0f * i + 1.0f, result[i]) << i;
}

TEST_F(KernelTest, ReducesBlocksWithEverySeed) {
  std::vector<float> data(777);
  std::iota(data.begin(), data.end(), 0.0f);
  for (const unsigned seed : {0u, 1u, 2u, 3u, 4u, 5u, 12u}) {
    for (const int threads : {32, 96, 256}) {
      emu::set_seed(seed);
      float* sum = device(std::vector<float>{0.0f});
      ASSERT_OK(launch_block_sum(stream_, device(data), sum, 777, threads));
      ASSERT_OK(cudaStreamSynchronize(stream_));
      EXPECT_EQ(776.0f * 777.0f / 2.0f, host(sum, 1)[0]) << seed << " " << threads;
    }
  }
}

TEST_F(KernelTest, GivesDynamicSharedMemory) {
  std::vector<int> data(256);
  std::iota(data.begin(), data.end(), 0);
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    int* reversed = device(data);
    ASSERT_OK(launch_reverse(stream_, reversed, 2, 128, 128 * sizeof(int)));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    const std::vector<int> result = host(reversed, 256);
    for (int i = 0; i < 256; ++i) ASSERT_EQ(i < 128 ? 127 - i : 383 - i, result[i]);
  }
  EXPECT_CUDA(cudaErrorInvalidValue, launch_reverse(stream_, nullptr, 1, 32, 100 << 10));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_CUDA(cudaSuccess, cudaGetLastError());
}

TEST_F(KernelTest, GivesMoreSharedMemoryWhenAskedTo) {
  ASSERT_OK(cudaFuncSetAttribute(reverse_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  cudaFuncAttributes attributes;
  ASSERT_OK(cudaFuncGetAttributes(&attributes, reverse_kernel()));
  EXPECT_EQ(100 << 10, attributes.maxDynamicSharedSizeBytes);
  int* data = device(std::vector<int>{1, 2});
  ASSERT_OK(launch_reverse(stream_, data, 1, 2, 100 << 10));
  EXPECT_CUDA(cudaErrorInvalidValue, launch_reverse(stream_, data, 1, 2, (100 << 10) + 1));
  ASSERT_OK(cudaFuncSetAttribute(reverse_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, 48 << 10));
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<int>{2, 1}), host(data, 2));
}

TEST_F(KernelTest, TakesTheOrderOfThreadsFromTheSeed) {
  std::vector<std::vector<int>> orders;
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    int *log = device<int>(64), *count = device(std::vector<int>{0});
    ASSERT_OK(launch_log_threads(stream_, log, count, 64));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    orders.push_back(host(log, 64));
  }
  std::vector<int> expected(64);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(expected, orders[0]);
  EXPECT_EQ((std::vector<int>(expected.rbegin(), expected.rend())), orders[1]);
  EXPECT_NE(orders[0], orders[2]);
  EXPECT_NE(orders[1], orders[2]);
  std::sort(orders[2].begin(), orders[2].end());
  EXPECT_EQ(expected, orders[2]);
}

TEST_F(KernelTest, RunsWarpOperationsOfTwoHalvesAtOnce) {
  for (const unsigned seed : {0u, 1u, 2u, 3u, 8u}) {
    emu::set_seed(seed);
    unsigned* out = device<unsigned>(64);
    ASSERT_OK(launch_warp_mix(stream_, out, 64));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    const std::vector<unsigned> result = host(out, 64);
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned lane = i % 32, up = lane == 16 ? 16 : lane - 1, down = lane % 8 == 7 ? lane : lane + 1;
      const unsigned shuffled = lane >= 16 ? up : 3 + down;
      ASSERT_EQ(10100 + shuffled, result[i]) << seed << " " << i;
    }
  }
}

#if !defined(__SANITIZE_THREAD__)  // which would report the race
TEST_F(KernelTest, ShowsAMissingBarrierWithSomeSeed) {
  std::vector<int> data(64);
  std::iota(data.begin(), data.end(), 1);
  int wrong = 0;
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    int* pointer = device(data);
    ASSERT_OK(launch_missing_barrier(stream_, pointer, 64));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    const std::vector<int> result = host(pointer, 64);
    for (int i = 0; i < 64; ++i) wrong += result[i] != 64 - i;
  }
  EXPECT_GT(wrong, 0);
}
#endif

TEST_F(KernelTest, FailsForGoodAtADivergentBarrier) {
  for (const unsigned seed : {0u, 1u, 2u}) {
    emu::set_seed(seed);
    ASSERT_OK(launch_divergent(stream_, 64, 64));
    ASSERT_OK(cudaStreamSynchronize(stream_));
    ASSERT_OK(launch_divergent(stream_, 64, 40));
    EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
    EXPECT_NE(std::string::npos, emu::last_failure().find("test_kernels.cu")) << emu::last_failure();
    EXPECT_NE(std::string::npos, emu::last_failure().find("40 of 64")) << emu::last_failure();
    void* pointer = nullptr;
    EXPECT_CUDA(cudaErrorLaunchFailure, cudaMalloc(&pointer, 4));
    EXPECT_CUDA(cudaErrorLaunchFailure, cudaGetLastError());
    EXPECT_CUDA(cudaSuccess, cudaGetLastError());
    EXPECT_CUDA(cudaErrorLaunchFailure, cudaMalloc(&pointer, 4));
    emu::reset();
    EXPECT_CUDA(cudaSuccess, cudaGetLastError());
    EXPECT_CUDA(cudaSuccess, cudaStreamSynchronize(stream_));
  }
}

TEST_F(KernelTest, FailsWhenThreadsAreAtDifferentBarriers) {
  ASSERT_OK(launch_mismatched(stream_, 32));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
  EXPECT_NE(std::string::npos, emu::last_failure().find("different __syncthreads")) << emu::last_failure();
}

TEST_F(KernelTest, FailsWhenALaneOfTheMaskIsMissing) {
  ASSERT_OK(launch_partial_warp(stream_));
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
  EXPECT_NE(std::string::npos, emu::last_failure().find("divergent warp operation")) << emu::last_failure();
}

TEST_F(KernelTest, RefusesLaunchesThatCannotBe) {
  EXPECT_CUDA(cudaErrorInvalidValue, launch_divergent(stream_, 1025, 0));
  EXPECT_CUDA(cudaErrorInvalidValue, launch_divergent(stream_, 0, 0));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, launch_divergent(reinterpret_cast<cudaStream_t>(&stream_), 1, 0));
  EXPECT_CUDA(cudaErrorInvalidResourceHandle, cudaGetLastError());
}

TEST_F(KernelTest, ShowsUninitializedMemory) {
  const std::vector<unsigned> fresh = host(device<unsigned>(4), 4);
  EXPECT_EQ(std::vector<unsigned>(4, 0xFFFFFFFFu), fresh);
}

}  // namespace
}  // namespace emu_test::kernel_test
