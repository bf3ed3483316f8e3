// The lines that the error log has of calls that fail. Those of the first test were seen on an H100.
#include <string>
#include <utility>

#include "test_support.h"

namespace emu_test::error_log_test {
namespace {

using Lines = std::vector<std::string>;

class ErrorLogTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    const cudaLogsCallback_t keep = [](void* data, cudaLogLevel level, char* message, size_t length) {
      EXPECT_EQ(level, cudaLogLevelError);
      static_cast<Lines*>(data)->emplace_back(message, length);
    };
    ASSERT_OK(cudaLogsRegisterCallback(keep, &lines_, &handle_));
    EXPECT_EQ(1u, emu::live_objects().log_callbacks);
  }
  void TearDown() override {
    if (handle_ != nullptr) {
      EXPECT_CUDA(cudaSuccess, cudaLogsUnregisterCallback(handle_));
    }
    EmulatorTest::TearDown();
  }
  // Since the last time.
  Lines lines() { return std::exchange(lines_, {}); }
  void begin(cudaStream_t stream) { ASSERT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)); }
  cudaError_t error_in_host_function() {
    cudaError_t code = cudaSuccess;
    const cudaHostFn_t ask = [](void* data) {
      int count = 0;
      *static_cast<cudaError_t*>(data) = cudaGetDeviceCount(&count);
    };
    EXPECT_CUDA(cudaSuccess, cudaLaunchHostFunc(stream_, ask, &code));
    EXPECT_CUDA(cudaSuccess, cudaStreamSynchronize(stream_));
    return code;
  }
  Lines end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) {
      EXPECT_CUDA(cudaSuccess, cudaGraphDestroy(graph));
    }
    return lines();
  }

  Lines lines_;
  cudaLogsCallbackHandle handle_ = nullptr;
};

const Lines kInvalidated{"Capture was invalidated by a prior API call",
                         "Returning 901 (CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) from cuStreamEndCapture"};

TEST_F(ErrorLogTest, SaysWhyAndThenWhatTheDriverReturned) {
  void* memory = nullptr;
  begin(stream_);
  (void)cudaMalloc(&memory, 16);
  EXPECT_EQ(lines(), (Lines{"API call conflicts with a stream capture sequence initiated from the calling thread",
                            "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2"}));
  EXPECT_EQ(end(stream_), kInvalidated);
  begin(stream_);
  (void)cudaStreamSynchronize(stream_);
  EXPECT_EQ(lines(), (Lines{"Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuStreamSynchronize"}));
  EXPECT_EQ(end(stream_), kInvalidated);
  begin(stream_);
  (void)cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(lines(), (Lines{"Returning 401 (CUDA_ERROR_ILLEGAL_STATE) from cuStreamBeginCapture_v2"}));
  (void)launch_divergent(stream_, 4096, 0);
  EXPECT_EQ(lines(), (Lines{"One or more of block dimensions of (4096,1,1) exceeds correspsonding maximum value of "
                            "(1024,1024,64)",
                            "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernelEx"}));
  (void)end(stream_);
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreate(&blocking));
  begin(blocking);
  int* data = nullptr;
  (void)cudaMemcpyAsync(data, data, 4, cudaMemcpyDefault, nullptr);
  (void)launch_divergent(nullptr, 1, 0);
  EXPECT_EQ(lines().back(), "Returning 906 (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) from cuLaunchKernelEx");
  EXPECT_EQ(end(blocking), kInvalidated);
  ASSERT_OK(cudaStreamDestroy(blocking));
}

TEST_F(ErrorLogTest, NamesTheFunctionOfTheDriver) {
  int *one = device<int>(1), *two = device<int>(1), value = 0;
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreate(&blocking));
  ASSERT_OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  const auto function = [&](cudaError_t) {
    const std::string line = lines().back();
    return line.substr(line.rfind(' ') + 1);
  };
  EXPECT_EQ("cuMemcpyDtoD_v2", function(cudaMemcpy(one, two, 4, cudaMemcpyDeviceToDevice)));
  EXPECT_EQ("cuMemcpyHtoD_v2", function(cudaMemcpy(one, &value, 4, cudaMemcpyHostToDevice)));
  EXPECT_EQ("cuMemcpyDtoHAsync_v2", function(cudaMemcpyAsync(&value, one, 4, cudaMemcpyDeviceToHost, nullptr)));
  EXPECT_EQ("cuMemsetD8_v2", function(cudaMemset(one, 0, 4)));
  EXPECT_EQ("cuMemsetD8Async", function(cudaMemsetAsync(one, 0, 4, nullptr)));
  EXPECT_EQ("cuCtxSynchronize_v2", function(cudaDeviceSynchronize()));
  EXPECT_EQ("cuEventRecord", function(cudaEventRecord(event(), blocking)));
  EXPECT_EQ("cuGraphDestroy", function(cudaGraphDestroy(nullptr)));
  (void)end(blocking);
  ASSERT_OK(cudaStreamDestroy(blocking));
  EXPECT_CUDA(cudaErrorNotPermitted, error_in_host_function());
  EXPECT_EQ(lines(), (Lines{"CUDA driver does not allow certain callbacks to invoke its APIs",
                            "CUDA driver does not allow certain callbacks to invoke its APIs",
                            "Returning 800 (CUDA_ERROR_NOT_PERMITTED) from cuCtxGetCurrent"}));
}

TEST_F(ErrorLogTest, IsSilentOfWhatIsNoErrorOfTheDriver) {
  int* target = device<int>(1);
  for (int i = 0; i < 5; ++i) ASSERT_OK(launch_set(stream_, target, 1));
  EXPECT_CUDA(cudaErrorNotReady, cudaStreamQuery(stream_));
  EXPECT_CUDA(cudaErrorInvalidDeviceFunction,
              cudaLaunchCooperativeKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0, stream_));
  EXPECT_EQ(lines(), Lines());
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(99));
  EXPECT_EQ(lines(), (Lines{"Invalid device number 99 provided, must be in the range of 0 to 0"}));
}

TEST_F(ErrorLogTest, EndsWithItsCallback) {
  ASSERT_OK(cudaLogsUnregisterCallback(handle_));
  EXPECT_CUDA(cudaErrorInvalidDevice, cudaSetDevice(99));
  EXPECT_EQ(lines(), Lines());
  EXPECT_CUDA(cudaErrorInvalidValue, cudaLogsUnregisterCallback(std::exchange(handle_, nullptr)));
  EXPECT_CUDA(cudaErrorInvalidValue, cudaLogsRegisterCallback(nullptr, nullptr, nullptr));
}

}  // namespace
}  // namespace emu_test::error_log_test
