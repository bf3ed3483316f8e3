// Device built-ins for a build without CUDA. Kernel files are then compiled as C++ with this header in front
// (-include), and their kernels are never run.
#pragma once

#define GRAPHSINK_HOST_KERNELS 1  // for CudaArgs::launch()

#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct HostIndex {
  unsigned x, y, z;
};
inline const HostIndex threadIdx{0, 0, 0};
inline const HostIndex blockIdx{0, 0, 0};
inline const HostIndex blockDim{1, 1, 1};
inline const HostIndex gridDim{1, 1, 1};

inline void __syncthreads() {}
inline void __syncwarp(unsigned = 0xffffffffu) {}
inline int __syncthreads_or(int predicate) { return predicate; }

inline unsigned __ballot_sync(unsigned, int predicate) { return predicate != 0 ? 1u : 0u; }
inline int __ffs(int x) { return __builtin_ffs(x); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int) {
  return value;
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned) {
  return value;
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned) {
  return value;
}
template <class T>
T __shfl_sync(unsigned, T value, int) {
  return value;
}
template <class T>
T atomicExch(T* address, T value) {
  T old = *address;
  *address = value;
  return old;
}
template <class T>
T atomicCAS(T* address, T expected, T wanted) {
  T old = *address;
  if (old == expected) *address = wanted;
  return old;
}
