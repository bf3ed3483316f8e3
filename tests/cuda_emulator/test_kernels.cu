#include "test_kernels.h"

namespace emu_test {
namespace {

__global__ void vecadd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void affine(float* data, Affine parameters, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = data[i] * parameters.scale[i % 64] + parameters.offset;
}

__global__ void __launch_bounds__(1024) block_sum(const float* data, float* sum, int n) {
  __shared__ float partial[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  float value = i < n ? data[i] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  if (warp != 0) return;
  const int warps = (blockDim.x + warpSize - 1) / warpSize;
  value = lane < warps ? partial[lane] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (lane == 0) atomicAdd(sum, value);
}

__global__ void reverse(int* data) {
  DYNAMIC_SHARED(int, buffer);
  int* mine = data + blockIdx.x * blockDim.x;
  buffer[threadIdx.x] = mine[threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

__global__ void warp_mix(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned odd = __ballot_sync(0xffffffffu, lane % 2);
  const bool upper = lane >= 16;
  const unsigned mask = upper ? 0xffff0000u : 0x0000ffffu;
  // Two halves of a warp in separate operations at the same time.
  unsigned value = lane;
  if (upper) {
    value = __shfl_up_sync(mask, value, 1u, 16);
  } else {
    value = __shfl_sync(mask, value, 19, 16) + __shfl_down_sync(mask, value, 1u, 8);
  }
  __syncwarp();
  const int any = __any_sync(0xffffffffu, lane == 7), all = __all_sync(0xffffffffu, lane < 31);
  out[threadIdx.x] = value + (any ? 100 : 0) + (all ? 1000 : 0) + (odd == 0xaaaaaaaau ? 10000 : 0);
}

__global__ void missing_barrier(int* data) {
  __shared__ int buffer[64];
  buffer[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

__global__ void divergent(int limit) {
  if (static_cast<int>(threadIdx.x) < limit) __syncthreads();
}

__global__ void mismatched() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void partial_warp() {
  if (threadIdx.x < 8) __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void deadlock() {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

__global__ void race(int* last) { *last = static_cast<int>(threadIdx.x); }

__global__ void overrun(int* data) { data[threadIdx.x] = 0; }

__global__ void append(int* log, int* count, int value) { log[atomicAdd(count, 1)] = value; }
__global__ void log_threads(int* log, int* count) { log[atomicAdd(count, 1)] = static_cast<int>(threadIdx.x); }
__global__ void set(int* target, int value) { *target = value; }
__global__ void add(int* target, const int* source, int value) { *target = *source + value; }
__global__ void add_behind(int* target, const int* source, int value, int waiting) {
  if (static_cast<int>(threadIdx.x) < waiting) cudaGridDependencySynchronize();
  if (threadIdx.x == 0) *target = *source + value;
}

__global__ void view_cluster(ClusterView* views) {
  views[blockIdx.x] = {__clusterDimIsSpecified(), __clusterSizeInBlocks(), __clusterRelativeBlockRank(),
                       __clusterIdx().x, __clusterGridDimInClusters().x};
}

__global__ void ignore(const int*) {}
__global__ void addition(Addition a) { *a.target = *a.source + a.value; }

__global__ void step(int* counter, int limit, cudaGraphConditionalHandle handle) {
  const int n = ++*counter;
  cudaGraphSetConditional(handle, n < limit ? 1 : 0);
}

__global__ void decide(const int* predicate, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, static_cast<unsigned>(*predicate));
}

__global__ void two_setters(cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, threadIdx.x); }

template <class... P, class... A>
cudaError_t launch(cudaStream_t stream, int blocks, int threads, std::size_t shared, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace

cudaError_t launch_vecadd(cudaStream_t stream, const float* a, const float* b, float* c, int n) {
  return launch(stream, (n + 63) / 64, 64, 0, vecadd, a, b, c, n);
}
cudaError_t launch_affine(cudaStream_t stream, float* data, const Affine& parameters, int n) {
  return launch(stream, (n + 63) / 64, 64, 0, affine, data, parameters, n);
}
cudaError_t launch_block_sum(cudaStream_t stream, const float* data, float* sum, int n, int threads) {
  return launch(stream, (n + threads - 1) / threads, threads, 0, block_sum, data, sum, n);
}
cudaError_t launch_reverse(cudaStream_t stream, int* data, int blocks, int threads, std::size_t shared_bytes) {
  return launch(stream, blocks, threads, shared_bytes, reverse, data);
}
cudaError_t launch_warp_mix(cudaStream_t stream, unsigned* out, int threads) {
  return launch(stream, 1, threads, 0, warp_mix, out);
}
cudaError_t launch_missing_barrier(cudaStream_t stream, int* data, int threads) {
  return launch(stream, 1, threads, 0, missing_barrier, data);
}
cudaError_t launch_divergent(cudaStream_t stream, int threads, int limit) {
  return launch(stream, 1, threads, 0, divergent, limit);
}
cudaError_t launch_mismatched(cudaStream_t stream, int threads) { return launch(stream, 1, threads, 0, mismatched); }
cudaError_t launch_partial_warp(cudaStream_t stream) { return launch(stream, 1, 32, 0, partial_warp); }
cudaError_t launch_deadlock(cudaStream_t stream) { return launch(stream, 1, 32, 0, deadlock); }
cudaError_t launch_race(cudaStream_t stream, int* last, int threads) {
  return launch(stream, 1, threads, 0, race, last);
}
cudaError_t launch_overrun(cudaStream_t stream, int* data, int threads) {
  return launch(stream, 1, threads, 0, overrun, data);
}
cudaError_t launch_append(cudaStream_t stream, int* log, int* count, int value) {
  return launch(stream, 1, 1, 0, append, log, count, value);
}
cudaError_t launch_log_threads(cudaStream_t stream, int* log, int* count, int threads) {
  return launch(stream, 1, threads, 0, log_threads, log, count);
}
cudaError_t launch_set(cudaStream_t stream, int* target, int value) {
  return launch(stream, 1, 1, 0, set, target, value);
}
cudaError_t launch_add(cudaStream_t stream, int* target, const int* source, int value) {
  return launch(stream, 1, 1, 0, add, target, source, value);
}
cudaError_t launch_add_programmatic(cudaStream_t stream, int* target, const int* source, int value, int waiting) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{dim3(1), dim3(2), 0, stream, &attribute, 1};
  return cudaLaunchKernelEx(&config, add_behind, target, source, value, waiting);
}
cudaError_t launch_clusters(cudaStream_t stream, ClusterView* views, int blocks, dim3 cluster) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
  const unsigned attributes = cluster.x == 0 ? 0 : 1;
  const cudaLaunchConfig_t config{dim3(static_cast<unsigned>(blocks)), dim3(1), 0, stream, &attribute, attributes};
  return cudaLaunchKernelEx(&config, view_cluster, views);
}
cudaError_t launch_ignore(cudaStream_t stream, const int* unused) { return launch(stream, 1, 1, 0, ignore, unused); }
cudaError_t launch_addition(cudaStream_t stream, const Addition& parameters) {
  return launch(stream, 1, 1, 0, addition, parameters);
}
cudaError_t launch_step(cudaStream_t stream, int* counter, int limit, cudaGraphConditionalHandle handle) {
  return launch(stream, 1, 1, 0, step, counter, limit, handle);
}
cudaError_t launch_decide(cudaStream_t stream, const int* predicate, cudaGraphConditionalHandle handle) {
  return launch(stream, 1, 1, 0, decide, predicate, handle);
}
cudaError_t launch_two_setters(cudaStream_t stream, cudaGraphConditionalHandle handle) {
  return launch(stream, 1, 2, 0, two_setters, handle);
}

void* set_kernel() { return emu::reg(set); }
void* reverse_kernel() { return emu::reg(reverse); }

}  // namespace emu_test
