// Device built-ins for CUDA sources that a host compiler turns into CPU code. Include it before everything else:
//   g++ -x c++ -include simt.h kernels.cu
// Kernels then run as fibers of one operating-system thread, one block at a time, see simt_engine.h.
#pragma once

#define GRAPHSINK_EMULATED_KERNELS 1  // for <graphsink/kernel.h>: this file may have kernels

#include <cuda_runtime.h>
#include <math.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "device_math.h"
#include "simt_kernel.h"

// The CUDA headers give these attributes that a host compiler does not know.
#undef __shared__
#undef __cluster_dims__
#undef __block_size__
#undef __launch_bounds__
#define __shared__ thread_local
#define __cluster_dims__(...)
#define __block_size__(...)
#define __launch_bounds__(...)
#ifndef __grid_constant__
#define __grid_constant__
#endif

// T* name: the dynamic shared memory of the block, 16-byte aligned at least, filled with 0xFF when a block starts.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(emu::dynamic_shared())
#endif

// Set for each thread before it runs; kernels only read them.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
constexpr int warpSize = 32;

// The cluster of blocks that the launch asked for, as the headers for devices of capability 9.0 name it; else each
// block is a cluster. Blocks run one after the other, so they can neither wait for the others of their cluster nor see
// their shared memory.
unsigned __clusterDimIsSpecified();
dim3 __clusterDim();
dim3 __clusterIdx();
dim3 __clusterGridDimInClusters();
dim3 __clusterRelativeBlockIdx();
unsigned __clusterRelativeBlockRank();
unsigned __clusterSizeInBlocks();

namespace emu {

enum class Collective : unsigned char { kShuffle, kBallot, kAny, kAll, kSyncWarp };

void* dynamic_shared();
[[noreturn]] void fail_kernel(const char* message);
int lane_id();
// Threads of this warp that exist in the block (the last warp may be partial).
unsigned existing_lanes();
void block_barrier(const char* file, int line);
// Like block_barrier, and returns how many threads gave a non-zero predicate.
int block_barrier_count(int predicate, const char* file, int line);
// Waits for all lanes of mask, which must make the same call. Result: kShuffle the value of lane `source`; kBallot,
// kAny, kAll the mask of lanes with a non-zero value; kSyncWarp 0.
unsigned long long warp_collective(Collective kind, unsigned mask, unsigned long long value, int source,
                                   const char* file, int line);

void register_kernel(const void* function, const KernelSignature& signature);

// The address of a kernel as the runtime wants it (kernel nodes, attributes). A kernel must pass through here or
// through cudaLaunchKernelEx before the runtime can run it.
template <class... P>
void* reg(void (*kernel)(P...)) {
  void* function = reinterpret_cast<void*>(kernel);
  register_kernel(function, signature_of(kernel));
  return function;
}

template <class T>
T shuffle(unsigned mask, T value, int source, bool valid, const char* file, int line) {
  return from_bits<T>(
      warp_collective(Collective::kShuffle, mask, to_bits(value), valid ? source : lane_id(), file, line));
}

template <class T, class F>
T atomic_update(T* address, F next) {
  T seen;
  __atomic_load(address, &seen, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = next(seen);
    if (__atomic_compare_exchange(address, &seen, &wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return seen;
  }
}

}  // namespace emu

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx_emu(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  const void* function = emu::reg(kernel);
  auto launch = [&](P... parameter) {
    void* pointers[] = {static_cast<void*>(&parameter)..., nullptr};
    return cudaLaunchKernelExC(config, function, pointers);
  };
  return launch(static_cast<A&&>(arguments)...);
}
// The template of the CUDA headers forgets the parameter sizes, so launches go through the one above.
#define cudaLaunchKernelEx cudaLaunchKernelEx_emu

// Templates that the CUDA headers give to nvcc only.
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(P...)) {
  return cudaFuncGetAttributes(attributes, static_cast<const void*>(emu::reg(kernel)));
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(static_cast<const void*>(emu::reg(kernel)), attribute, value);
}

// The templates of the CUDA headers forget the parameter sizes.
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared = 0,
                             cudaStream_t stream = nullptr) {
  return cudaLaunchKernel(static_cast<const void*>(emu::reg(kernel)), grid, block, arguments, shared, stream);
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared = 0, cudaStream_t stream = nullptr) {
  return cudaLaunchCooperativeKernel(static_cast<const void*>(emu::reg(kernel)), grid, block, arguments, shared,
                                     stream);
}

#define EMU_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

[[noreturn]] inline void __trap() { emu::fail_kernel("__trap()"); }
inline void __syncthreads(EMU_WHERE) { emu::block_barrier(file, line); }
inline int __syncthreads_count(int predicate, EMU_WHERE) { return emu::block_barrier_count(predicate, file, line); }
inline int __syncthreads_or(int predicate, EMU_WHERE) { return emu::block_barrier_count(predicate, file, line) != 0; }
inline int __syncthreads_and(int predicate, EMU_WHERE) { return emu::block_barrier_count(!predicate, file, line) == 0; }

inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_WHERE) {
  emu::warp_collective(emu::Collective::kSyncWarp, mask, 0, 0, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_WHERE) {
  return static_cast<unsigned>(emu::warp_collective(emu::Collective::kBallot, mask, predicate != 0, 0, file, line));
}
inline int __any_sync(unsigned mask, int predicate, EMU_WHERE) {
  return emu::warp_collective(emu::Collective::kAny, mask, predicate != 0, 0, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMU_WHERE) {
  return emu::warp_collective(emu::Collective::kAll, mask, predicate == 0, 0, file, line) == 0;
}
inline unsigned __activemask() { return emu::existing_lanes(); }

// Segment rules as in the PTX description of shfl: a lane whose source is outside its segment keeps its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_WHERE) {
  const int base = emu::lane_id() & ~(width - 1);
  return emu::shuffle(mask, value, base | (source & (width - 1)), true, file, line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_WHERE) {
  const int lane = emu::lane_id(), source = lane - static_cast<int>(delta);
  return emu::shuffle(mask, value, source, source >= (lane & ~(width - 1)), file, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMU_WHERE) {
  const int lane = emu::lane_id(), source = lane + static_cast<int>(delta);
  return emu::shuffle(mask, value, source, source <= (lane | (width - 1)), file, line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMU_WHERE) {
  const int lane = emu::lane_id(), source = lane ^ lane_mask;
  return emu::shuffle(mask, value, source, source <= (lane | (width - 1)), file, line);
}

#undef EMU_WHERE

#include "simt_launch.h"
#include "simt_math.h"

// Sets a conditional of the running graph launch. One thread per kernel may do so; a handle that does not belong to the
// launch is a launch failure.
void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value);

// Kernels of one device run one after the other here, so the grid dependency is always met. But every thread of a
// kernel that is launched programmatically must call it.
void cudaGridDependencySynchronize();
inline void cudaTriggerProgrammaticLaunchCompletion() {}
