// The two kernels of the runtime itself.
#pragma once

#include <cuda_runtime_api.h>

#include "device/device.h"

namespace graphsink {

// Takes the next launch parameters of the ring: begin_launch() as a kernel.
cudaError_t launch_begin(cudaStream_t stream, const LaunchRing& ring);

// Sets the condition of a conditional node to *predicate.
cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle);

// Loads both. A kernel's first use inside a capture could be refused, or wait for a busy device.
cudaError_t load_control_kernels();

}  // namespace graphsink
