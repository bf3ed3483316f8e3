// The first message that CUDA's error log gets from this thread.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

namespace graphsink {

// Listens from construction to destruction. Where the driver has no error log, it hears nothing.
class ErrorLog {
 public:
  ErrorLog();
  ~ErrorLog();
  ErrorLog(const ErrorLog&) = delete;
  ErrorLog& operator=(const ErrorLog&) = delete;

  // "cudaMalloc: operation not permitted when stream is capturing", or empty if there was no message.
  std::string first() const;

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
  cudaLogsCallbackHandle handle_ = nullptr;
};

}  // namespace graphsink
