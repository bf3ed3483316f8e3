// The two kernels of the runtime itself.
#pragma once

#include <cuda_runtime_api.h>

#include "device/device.h"

namespace graphsink {

// Enqueues a kernel that calls begin_launch(), which takes the next launch parameters from the ring.
cudaError_t launch_begin(cudaStream_t stream, const LaunchRing& ring);

// Enqueues a kernel that sets the condition of a conditional node to *predicate.
cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle);

// Loads both kernels. If a kernel were first used during a capture, loading it could be refused, or could wait for a
// busy device.
cudaError_t load_control_kernels();

}  // namespace graphsink
