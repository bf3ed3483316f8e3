// Failures of this thread's calls, as CUDA's error log reports them.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace graphsink {

// A call that failed, as the log has it.
struct LoggedFailure {
  std::string call;  // a function of the driver: "cuMemAlloc"; empty if the log does not name it
  std::string code;  // "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; empty if the log does not name it
  int number = 0;    // number of the code, the same for the runtime and the driver; 0 if it is not known
  std::string text;  // the driver's explanation; may be empty

  // "cuMemAlloc returned CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (API call conflicts with ...)"
  std::string to_string() const;
};

// Reads the log's messages. There are two forms. Drivers of CUDA 13.0 say why a call failed, if they know, and then, as
// a message of its own, "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2". In the CUDA
// Programming Guide (Error Log Management, Output) a failure is one message, "[time][thread][source][severity]
// [function] text".
std::vector<LoggedFailure> read_error_log(const std::vector<std::string>& messages);

// The failure that made a capture fail, or null if the log does not tell. `last` is the error that was seen at the end.
// Calls that fail for other reasons may be logged in front of it, such as those of a library that tries something out,
// and behind it every call on the stream fails because the capture is broken.
const LoggedFailure* find_cause(const std::vector<LoggedFailure>& failures, cudaError_t last);

// Listens to the calls of this thread from construction to destruction. Hears nothing if CUDA refuses to register the
// listener, which is logged.
class ErrorLog {
 public:
  explicit ErrorLog(const Log& log);
  ~ErrorLog();
  ErrorLog(const ErrorLog&) = delete;
  ErrorLog& operator=(const ErrorLog&) = delete;

  // Whether the listener is registered, so that no failure stays unheard.
  bool is_heard() const { return handle_ != nullptr; }
  // Whether a call has failed with this code.
  bool has(cudaError_t code) const;
  // The failure that made the capture fail, as text; empty if the log does not tell. See find_cause().
  std::string cause(cudaError_t last) const;

 private:
  struct Listener;
  Log log_;
  std::unique_ptr<Listener> listener_;
  cudaLogsCallbackHandle handle_ = nullptr;
};

}  // namespace graphsink
