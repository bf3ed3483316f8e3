// Functions of the driver, found through the runtime, so that nothing needs the driver at link time.
#pragma once

#include <cuda.h>

#include "device/cuda/check.h"

namespace graphsink {

// Throws Error for a function that the driver does not have.
template <class F>
void find_driver_function(Calls& calls, const char* name, F& function) {
  constexpr unsigned kSince = 12040;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  calls.check(cudaGetDriverEntryPointByVersion(name, &entry, kSince, cudaEnableDefault, &found),
              "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess) {
    throw Error(name, Where(), "the driver does not have this function", "install a driver for CUDA 13");
  }
  function = reinterpret_cast<F>(entry);
}

// The runtime's codes are the driver's.
inline cudaError_t runtime_code(CUresult code) { return static_cast<cudaError_t>(code); }

}  // namespace graphsink
