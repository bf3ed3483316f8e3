// Code that knows nothing of graphsink: it launches kernels on a stream.
#pragma once

#include <cuda_runtime_api.h>

namespace graphsink::testing {

// *sum += amount, by one kernel. Does not look at the result of the launch.
void guest_add(cudaStream_t stream, int* sum, int amount);
// *sum = factor * *sum + amount
void guest_affine(cudaStream_t stream, int* sum, int factor, int amount);

// Passes a long structure by value to a kernel that does nothing with it.
struct GuestStruct {
  int many[16];
};
void guest_take(cudaStream_t stream, const GuestStruct& value);
// Launches two blocks with this attribute, which do nothing.
void guest_launch(cudaStream_t stream, const cudaLaunchAttribute& attribute);

// Appends n elements to two lists of *count elements, and then increases the count, by one kernel.
void guest_append(cudaStream_t stream, const float* x, const int* label, int n, float* xs, int* labels, int* count);

}  // namespace graphsink::testing
