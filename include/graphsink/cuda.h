// CudaArgs: what a CUDA body sees. One of the two public headers that know CUDA types; including it needs no toolkit,
// launching kernels does (nvcc, or the software CUDA device of the tests): launch() in a file that another compiler
// sees does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "graphsink/op.h"

#if defined(__CUDACC__) || defined(GRAPHSINK_EMULATED)
#include <cuda_runtime.h>
#define GRAPHSINK_CAN_LAUNCH 1
#else
struct CUstream_st;
using cudaStream_t = CUstream_st*;
#endif

namespace graphsink {

class CudaDevice;

// Blocks or threads in x, y, z.
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

// Throws Error for a cudaError_t other than success; `call` is the CUDA function's name.
void check_cuda(int code, const char* call, const BoundNode& node);

class CudaArgs : public BodyArgs {
 public:
  CudaArgs(const BoundNode& node, CudaDevice& device, cudaStream_t stream, std::uint64_t* kernels)
      : BodyArgs(node), device_(&device), stream_(stream), kernels_(kernels) {}

  // For libraries. Own kernels go through launch().
  cudaStream_t stream() const { return stream_; }
  // The device, for the internal library headers (device/cuda/...).
  CudaDevice& device() const { return *device_; }
  // A library call that enqueues a kernel counts it here.
  void count_kernel() const { ++*kernels_; }

  // Launches kernel<<<grid, block, shared bytes>>>(arguments...) on stream(). Arguments are copied now. An empty grid
  // launches nothing. Throws Error naming the op if the launch is refused.
  template <class... P, class... A>
  void launch(void (*kernel)(P...), Extent grid, Extent block, std::size_t shared, A&&... arguments) const {
#ifdef GRAPHSINK_CAN_LAUNCH
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(block.x, block.y, block.z);
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(arguments))...), "cudaLaunchKernelEx",
               node());
    count_kernel();
#elif defined(GRAPHSINK_HOST_KERNELS)  // a kernel file in a build without CUDA, where no CUDA body ever runs
    (void)kernel, (void)grid, (void)block, (void)shared, ((void)arguments, ...);
#else
    static_assert(sizeof...(P) == ~std::size_t{0},
                  "CudaArgs::launch() in a file that no CUDA compiler sees: put the CUDA body into a .cu file");
#endif
  }

 private:
  CudaDevice* device_;
  cudaStream_t stream_;
  std::uint64_t* kernels_;
};

}  // namespace graphsink
