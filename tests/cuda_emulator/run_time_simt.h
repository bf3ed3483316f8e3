// Device built-ins of kernels that nvrtcCompileProgram() compiles, see nvrtc.cpp. It stands before their source in
// place of simt.h, which needs the CUDA headers. The kernels are in a shared library of their own, which is told where
// the built-in variables of the program are. Kernels with barriers, shared memory or atomics do not compile.
#pragma once

#include <math.h>

#include <cstdint>

#include "simt_kernel.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

namespace emu {

struct Index {
  unsigned x, y, z;
};
struct Builtins {
  const Index *thread_index, *block_index, *block_size, *grid_size;
  void (*grid_dependency_synchronize)();
};
static Builtins builtins;

}  // namespace emu

extern "C" __global__ void emu_set_builtins(const emu::Builtins* builtins) { emu::builtins = *builtins; }

#define GRAPHSINK_EMULATED
inline void cudaGridDependencySynchronize() { emu::builtins.grid_dependency_synchronize(); }

#define threadIdx (*emu::builtins.thread_index)
#define blockIdx (*emu::builtins.block_index)
#define blockDim (*emu::builtins.block_size)
#define gridDim (*emu::builtins.grid_size)
