// Looks up functions of the driver through the runtime, so that the library does not link against the driver.
#pragma once

#include <cuda.h>

#include "device/cuda/check.h"

namespace graphsink {

// Sets `function` to the driver's function `name`. Throws Error if the driver does not have it.
template <class F>
void find_driver_function(Calls& calls, const char* name, F& function) {
  constexpr unsigned kSince = 12040;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  calls.check(cudaGetDriverEntryPointByVersion(name, &entry, kSince, cudaEnableDefault, &found),
              "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess) {
    throw Error(name, Where(), "the driver does not have this function", "install a driver for CUDA 13",
                ErrorCode::unavailable);
  }
  function = reinterpret_cast<F>(entry);
}

// Driver and runtime use the same numbers for the same errors.
inline cudaError_t runtime_code(CUresult code) { return static_cast<cudaError_t>(code); }

}  // namespace graphsink
