#include "gpu_check/planted_trap.h"

#include <cuda_runtime.h>

namespace graphsink::testing {
namespace {

__global__ void trap_kernel() { __trap(); }

}  // namespace

void launch_trap() {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  (void)cudaLaunchKernelEx(&config, trap_kernel);
}

}  // namespace graphsink::testing
