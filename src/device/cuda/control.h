// The kernels of the runtime itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/device.h"

namespace graphsink {

// Enqueues a kernel that calls begin_launch(), which takes the next launch parameters from the ring.
cudaError_t launch_begin(cudaStream_t stream, const LaunchRing& ring);

// Enqueues a kernel that sets the condition of a conditional node to *predicate, or to *index.
cudaError_t launch_decide(cudaStream_t stream, const bool* predicate, cudaGraphConditionalHandle handle);
cudaError_t launch_decide(cudaStream_t stream, const std::int32_t* index, cudaGraphConditionalHandle handle);

// For a loop with a number of iterations, in device memory: enqueues a kernel that sets *left to `count`.
cudaError_t launch_set_count(cudaStream_t stream, std::int64_t* left, std::int64_t count);
// Adds a kernel node behind `before` that decreases *left, and sets the condition to whether any iterations are left.
cudaError_t add_count_down(cudaGraph_t graph, cudaGraphNode_t before, std::int64_t* left,
                           cudaGraphConditionalHandle handle);

// Loads these kernels. If a kernel were first used during a capture, loading it could be refused, or could wait for a
// busy device. `sm`, if given, becomes the compute capability, times ten, for which they were compiled: a newer device
// may run code for an older one.
cudaError_t load_control_kernels(int* sm = nullptr);

}  // namespace graphsink
