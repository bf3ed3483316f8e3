// Lets libraries load their kernels before a capture.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "base/function_ref.h"
#include "graphsink/op.h"

namespace graphsink {

class CudaDevice;

// Calls `enqueue` with a stream and `bytes` of device memory, which hold anything, and waits: what it enqueues is
// loaded then. If there is not enough memory, warns that the kernels of `what` are loaded by its first use. To be
// called from prepare(); loads also while another thread captures.
void run_once(CudaDevice& device, const char* what, std::size_t bytes,
              FunctionRef<void(cudaStream_t, std::byte*)> enqueue);
// The same on the device that the op is prepared for, `what` being the op.
void run_once(const PrepareArgs& args, std::size_t bytes, FunctionRef<void(cudaStream_t, std::byte*)> enqueue);

}  // namespace graphsink
