// 4: the error log. A text is a number here: whether it is the one of the table.
#include <string>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kLog = "4 error logs [probe on an H100]";

// The lines that calls of this thread send.
class Log {
 public:
  explicit Log(Recorder& r) {
    const cudaLogsCallback_t keep = [](void* data, cudaLogLevel, char* message, std::size_t length) {
      static_cast<Log*>(data)->lines_.emplace_back(message, length);
    };
    r.need("cudaLogsRegisterCallback", cudaLogsRegisterCallback(keep, this, &handle_));
  }
  ~Log() { (void)cudaLogsUnregisterCallback(handle_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  // Whether the lines are these, but for what may end a line.
  bool is(const std::vector<std::string>& lines) const {
    if (lines.size() != lines_.size()) return false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string& line = lines_[i];
      if (line.substr(0, line.find_last_not_of(std::string("\n\0", 2)) + 1) != lines[i]) return false;
    }
    return true;
  }

 private:
  std::vector<std::string> lines_;
  cudaLogsCallbackHandle handle_ = nullptr;
};

// What a call says that is made while a stream captures, thread-local.
Case logged(const char* name, const char* call, unsigned flags, cudaError_t code, Status status,
            const std::vector<std::string>& lines, const std::function<cudaError_t(cudaStream_t, int*)>& make) {
  return {std::string("log.") + name, kLog, {returns(call, code, status), gives("the lines", 1)}, [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeThreadLocal, flags);
            const Log log(r);
            const cudaError_t seen = make(stream, memory);
            const bool same = log.is(lines);
            r.call(call, seen);
            r.value("the lines", same);
          }};
}

}  // namespace

std::vector<Case> error_log_cases() {
  constexpr auto kUnsupported = cudaErrorStreamCaptureUnsupported;
  return {
      logged("cudaMalloc", "cudaMalloc", cudaStreamNonBlocking, kUnsupported, Status::kInvalidated,
             {"API call conflicts with a stream capture sequence initiated from the calling thread",
              "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2"},
             [](cudaStream_t, int*) {
               void* memory = nullptr;
               return cudaMalloc(&memory, 16);
             }),
      logged("cudaStreamSynchronize", "cudaStreamSynchronize", cudaStreamNonBlocking, kUnsupported,
             Status::kInvalidated, {"Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuStreamSynchronize"},
             [](cudaStream_t stream, int*) { return cudaStreamSynchronize(stream); }),
      logged("legacy_stream", "kernel launch", cudaStreamDefault, cudaErrorStreamCaptureImplicit, Status::kInvalidated,
             {"Call cannot be made against CU_STREAM_LEGACY while a blocking stream in the same context is capturing",
              "Returning 906 (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) from cuLaunchKernelEx"},
             [](cudaStream_t, int* memory) { return launch_set(nullptr, memory, 1); }),
      logged(
          "cudaStreamBeginCapture", "cudaStreamBeginCapture", cudaStreamNonBlocking, cudaErrorIllegalState,
          Status::kActive, {"Returning 401 (CUDA_ERROR_ILLEGAL_STATE) from cuStreamBeginCapture_v2"},
          [](cudaStream_t stream, int*) { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }),
      logged("too_many_threads", "kernel launch", cudaStreamNonBlocking, cudaErrorInvalidValue, Status::kInvalidated,
             {"One or more of block dimensions of (4096,1,1) exceeds correspsonding maximum value of (1024,1024,64)",
              "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernelEx"},
             [](cudaStream_t stream, int* memory) { return launch_with_threads(stream, memory, 4096); })};
}

}  // namespace conformance
