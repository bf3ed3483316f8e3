// Launches that are written kernel<<<...>>>().
#include <numeric>
#include <string>

#include "plain_kernels.h"
#include "test_support.h"

namespace emu_test::plain_kernel_test {
namespace {

class PlainKernelTest : public EmulatorTest {};

TEST_F(PlainKernelTest, ArgumentsBecomeWhatTheParametersAre) {
  float* out = device<float>(40);
  int* is_null = device<int>(1);
  plain_fill(out, 40, stream_);
  plain_null(is_null, stream_);
  ASSERT_OK(cudaGetLastError());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(40, 4.0f), host(out, 40));
  EXPECT_EQ(1, host(is_null, 1)[0]);
}

TEST_F(PlainKernelTest, HasDynamicSharedMemory) {
  std::vector<int> values(64);
  std::iota(values.begin(), values.end(), 0);
  int* data = device(values);
  plain_reverse(data, 64, stream_);
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<int>(values.rbegin(), values.rend()), host(data, 64));
}

TEST_F(PlainKernelTest, LaunchesWhatAnExpressionGives) {
  int* out = device<int>(1);
  for (const int which : {0, 1}) {
    plain_table(out, which, stream_);
    ASSERT_OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(21 * (which + 1), host(out, 1)[0]);
  }
}

TEST_F(PlainKernelTest, ArgumentsOfTheLaunchChooseTheKernel) {
  float* singles = device(std::vector<float>(4, 2.0f));
  double* doubles = device(std::vector<double>(4, 2.0));
  int* kinds = device<int>(2);
  plain_deduced(singles, doubles, stream_);
  plain_overloaded(kinds, stream_);
  ASSERT_OK(cudaGetLastError());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(4, 6.0f), host(singles, 4));
  EXPECT_EQ(std::vector<double>(4, 10.0), host(doubles, 4));
  EXPECT_EQ((std::vector<int>{1, 2}), host(kinds, 2));
}

TEST_F(PlainKernelTest, KernelsAreKnownByTheirAddresses) {
  int* out = device<int>(3);
  plain_by_address(out, stream_);
  ASSERT_OK(cudaGetLastError());
  ASSERT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ((std::vector<int>{1, 2, 3}), host(out, 3));
  launch_and_destroy(plain_node(out));
  EXPECT_EQ(4, host(out, 1)[0]);
}

TEST_F(PlainKernelTest, StreamAndSharedMemoryNeedNotBeNamed) {
  int* out = device<int>(1);
  plain_legacy(out);
  ASSERT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(7, host(out, 1)[0]);
}

TEST_F(PlainKernelTest, IsCaptured) {
  float* out = device(std::vector<float>(40, 0.0f));
  ASSERT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  plain_fill(out, 40, stream_);
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(std::vector<float>(40, 0.0f), host(out, 40));
  launch_and_destroy(graph);
  EXPECT_EQ(std::vector<float>(40, 4.0f), host(out, 40));
}

TEST_F(PlainKernelTest, ErrorsWaitForCudaGetLastError) {
  int* out = device<int>(1);
  plain_refused(out, 2000);
  plain_legacy(out);
  EXPECT_CUDA(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_CUDA(cudaSuccess, cudaGetLastError());
  ASSERT_OK(cudaDeviceSynchronize());
}

TEST_F(PlainKernelTest, FailuresNameTheLineOfTheFileAsItWasWritten) {
  const int line = plain_failure(stream_);
  EXPECT_CUDA(cudaErrorLaunchFailure, cudaStreamSynchronize(stream_));
  const std::string expected = "plain_kernels.cu:" + std::to_string(line) + ":";
  EXPECT_NE(std::string::npos, emu::last_failure().find(expected)) << expected << "\n" << emu::last_failure();
}

}  // namespace
}  // namespace emu_test::plain_kernel_test
