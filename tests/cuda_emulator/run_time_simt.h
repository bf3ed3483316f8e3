// Device built-ins of kernels that nvrtcCompileProgram() compiles, see nvrtc.cpp. It stands before their source in
// place of simt.h, which needs the CUDA headers. The kernels are in a shared library of their own, which is told where
// the built-in variables and functions of the program are. Kernels with atomics or dynamic shared memory do not
// compile.
#pragma once

#include <math.h>

#include <cstdint>

#define EMU_RUN_TIME_KERNEL
#include "device_math.h"
#include "simt_kernel.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ thread_local
#define __launch_bounds__(...)
#define __grid_constant__

namespace emu {

struct Index {
  unsigned x, y, z;
};
struct Builtins {
  const Index *thread_index, *block_index, *block_size, *grid_size;
  void (*grid_dependency_synchronize)();
  void (*block_barrier)(const char* file, int line);
  unsigned long long (*shuffle_xor)(unsigned mask, unsigned long long bits, int lane_mask, const char* file, int line);
};
static Builtins builtins;

}  // namespace emu

extern "C" __global__ void emu_set_builtins(const emu::Builtins* builtins) { emu::builtins = *builtins; }

#define GRAPHSINK_EMULATED_KERNELS 1  // for <graphsink/device_functions.h>
inline void cudaGridDependencySynchronize() { emu::builtins.grid_dependency_synchronize(); }

#define threadIdx (*emu::builtins.thread_index)
#define blockIdx (*emu::builtins.block_index)
#define blockDim (*emu::builtins.block_size)
#define gridDim (*emu::builtins.grid_size)

#define EMU_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
inline void __syncthreads(EMU_WHERE) { emu::builtins.block_barrier(file, line); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, EMU_WHERE) {
  return emu::from_bits<T>(emu::builtins.shuffle_xor(mask, emu::to_bits(value), lane_mask, file, line));
}
#undef EMU_WHERE
