// The two kernels of the runtime itself.
#pragma once

#include <cuda_runtime_api.h>

#include "device/device.h"

namespace graphsink {

// Writes the launch parameters to the step block and the feed tables.
cudaError_t launch_begin(cudaStream_t stream, const LaunchParams& params);

// Sets the condition of a conditional node to *predicate.
cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle);

// Loads both. A kernel's first use inside a capture could be refused, or wait for a busy device.
cudaError_t load_control_kernels();

}  // namespace graphsink
