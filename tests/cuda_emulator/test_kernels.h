// Kernels for the tests of the software device, behind launchers that plain C++ can call.
#pragma once

#include <cuda_runtime.h>

namespace emu_test {

struct Affine {
  float scale[64];
  float offset;
};

cudaError_t launch_vecadd(cudaStream_t stream, const float* a, const float* b, float* c, int n);
cudaError_t launch_affine(cudaStream_t stream, float* data, const Affine& affine, int n);
// *sum += all of data, by shuffles, one barrier and an atomic.
cudaError_t launch_block_sum(cudaStream_t stream, const float* data, float* sum, int n, int threads);
// Reverses each block's part through dynamic shared memory.
cudaError_t launch_reverse(cudaStream_t stream, int* data, int blocks, int threads, std::size_t shared_bytes);
// Halves of a warp in different shuffles, then ballot, any and all; each contributes a digit.
cudaError_t launch_warp_mix(cudaStream_t stream, unsigned* out, int threads);
cudaError_t launch_missing_barrier(cudaStream_t stream, int* data, int threads);
cudaError_t launch_divergent(cudaStream_t stream, int threads, int limit);
cudaError_t launch_mismatched(cudaStream_t stream, int threads);
cudaError_t launch_partial_warp(cudaStream_t stream);
// One thread waits for its warp, the others for their block.
cudaError_t launch_deadlock(cudaStream_t stream);
// All threads write *last.
cudaError_t launch_race(cudaStream_t stream, int* last, int threads);
// data[i] = 0 for each thread i.
cudaError_t launch_overrun(cudaStream_t stream, int* data, int threads);
// log[(*count)++] = value
cudaError_t launch_append(cudaStream_t stream, int* log, int* count, int value);
// Each thread appends its index.
cudaError_t launch_log_threads(cudaStream_t stream, int* log, int* count, int threads);
cudaError_t launch_set(cudaStream_t stream, int* target, int value);
cudaError_t launch_add(cudaStream_t stream, int* target, const int* source, int value);
// The same, launched programmatically as two threads, of which so many wait for the kernel in front.
cudaError_t launch_add_programmatic(cudaStream_t stream, int* target, const int* source, int value, int waiting);
// Each block of one thread writes what it knows of its cluster; `cluster` 0, 0, 0: none is asked for.
struct ClusterView {
  unsigned is_specified;
  unsigned size;
  unsigned rank;
  unsigned index;     // of the cluster, in x
  unsigned clusters;  // in x
};
cudaError_t launch_clusters(cudaStream_t stream, ClusterView* views, int blocks, dim3 cluster);
// Does not use its argument.
cudaError_t launch_ignore(cudaStream_t stream, const int* unused);
// A structure that holds addresses, as kernels of libraries take it; *target = *source + value.
struct Addition {
  bool unused_before;
  int* target;
  const int* source;
  int value;
};
cudaError_t launch_addition(cudaStream_t stream, const Addition& addition);
// ++*counter, and the condition becomes *counter < limit.
cudaError_t launch_step(cudaStream_t stream, int* counter, int limit, cudaGraphConditionalHandle handle);
// The condition becomes *predicate.
cudaError_t launch_decide(cudaStream_t stream, const int* predicate, cudaGraphConditionalHandle handle);
cudaError_t launch_two_setters(cudaStream_t stream, cudaGraphConditionalHandle handle);

// Kernel nodes need an address.
void* set_kernel();
void* reverse_kernel();

}  // namespace emu_test
