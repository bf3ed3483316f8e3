// CudaArgs, the argument of a CUDA body. This header can be included without a CUDA toolkit, but launch() compiles only
// with nvcc (or for the software CUDA device of the tests): put CUDA bodies into .cu files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "graphsink/op.h"
#include "graphsink/stream.h"
#include "graphsink/version.h"

#if defined(__CUDACC__) || defined(GRAPHSINK_EMULATED_KERNELS)
#include <cuda_runtime.h>
#define GRAPHSINK_CAN_LAUNCH 1
#endif

namespace GRAPHSINK_PUBLIC graphsink {

class CudaDevice;

// A number of blocks or threads in x, y and z. A block has at most 1024 threads in all (CUDA C++ Programming Guide,
// "Compute Capabilities").
struct Extent {
  unsigned x = 1;  // 2^31 - 1 blocks or 1024 threads at most
  unsigned y = 1;  // 65535 blocks or 1024 threads at most
  unsigned z = 1;  // 65535 blocks or 64 threads at most
};
// The blocks of a grid, and the threads of a block.
struct LaunchSize {
  static constexpr std::int64_t kThreads = 256;     // launch_size() makes blocks of so many, unless there is less to do
  static constexpr std::int64_t kMaxBlocks = 4096;  // largest number of blocks that it makes

  // `blocks` of the grid, each of `threads`; not checked before the launch.
  constexpr LaunchSize(Extent blocks, Extent threads) : grid(blocks), block(threads) {}
  Extent grid;   // number of blocks
  Extent block;  // threads of each
};

// Throws Error, naming the node's op and line, if `code`, a cudaError_t, is not success. `call` is the name of the CUDA
// function that returned it.
void check_cuda(int code, const char* call, const BodyArgs& body);

// Number of kernels that a CUDA body has launched, and how it launches them.
struct CudaLaunches {
  std::uint64_t kernels = 0;             // launches so far
  bool calls_library = false;            // some of the kernels are a library's
  bool first_is_programmatic = false;    // first kernel is launched so: see Tuning::programmatic_launch
  bool others_are_programmatic = false;  // kernels behind the first are
};

// Access of a CUDA body to its node, and functions with which it enqueues work. Valid during the body.
class CudaArgs : public BodyArgs {
 public:
  // For the library. All that it is given must outlive it.
  CudaArgs(const BodyNode& node, CudaDevice& device, cudaStream_t stream, CudaLaunches* launches)
      : BodyArgs(node), device_(&device), stream_(stream), launches_(launches) {}

  // The stream for calls of libraries. A body's own kernels are launched with launch().
  cudaStream_t stream() const { return stream_; }
  // The device, for the library's own ops (device/cuda/...).
  CudaDevice& device() const { return *device_; }
  // Adds one to Counters::kernels. Call it after each library call that enqueues a kernel. The argument audit then does
  // not compare numbers of the node's kernels: libraries pass numbers that differ from call to call without a meaning,
  // as cuBLASLt does on an H100.
  void count_kernel() const {
    ++launches_->kernels;
    launches_->calls_library = true;
  }

  // Launches kernel<<<grid, block, shared>>>(arguments...) on stream(); `shared` is a number of bytes. The arguments
  // are copied. An empty grid launches nothing. Throws Error, naming the op, if CUDA refuses the launch.
  template <class... P, class... A>
  void launch(void (*kernel)(P...), Extent grid, Extent block, std::size_t shared, A&&... arguments) const {
#ifdef GRAPHSINK_CAN_LAUNCH
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaLaunchAttribute programmatic = {};
    const cudaLaunchConfig_t config = configuration(grid, block, shared, programmatic);
    check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(arguments))...), "cudaLaunchKernelEx",
               *this);
    ++launches_->kernels;
#else
    (void)kernel, (void)grid, (void)block, (void)shared, ((void)arguments, ...);
#ifndef GRAPHSINK_HOST_KERNELS  // a kernel file in a build without CUDA, where no CUDA body ever runs
    static_assert(sizeof...(P) == ~std::size_t{0},
                  "CudaArgs::launch() in a file that no CUDA compiler sees: put the CUDA body into a .cu file");
#endif
#endif
  }

  // The same without shared memory: launch(kernel, launch_size(items), arguments...).
  template <class... P, class... A>
  void launch(void (*kernel)(P...), LaunchSize size, A&&... arguments) const {
    launch(kernel, size.grid, size.block, 0, std::forward<A>(arguments)...);
  }

#ifdef GRAPHSINK_CAN_LAUNCH
  // The same for a kernel that was loaded from a library: `kernel` is a cudaKernel_t, `arguments` are the addresses of
  // its arguments.
  void launch_loaded(const void* kernel, Extent grid, Extent block, std::size_t shared, void** arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaLaunchAttribute programmatic = {};
    const cudaLaunchConfig_t config = configuration(grid, block, shared, programmatic);
    check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC", *this);
    ++launches_->kernels;
  }
#endif

 private:
#ifdef GRAPHSINK_CAN_LAUNCH
  // The result refers to `programmatic`.
  cudaLaunchConfig_t configuration(Extent grid, Extent block, std::size_t shared,
                                   cudaLaunchAttribute& programmatic) const {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(block.x, block.y, block.z);
    config.dynamicSmemBytes = shared;
    config.stream = stream_;
    programmatic.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &programmatic;
    config.numAttrs =
        (launches_->kernels == 0 ? launches_->first_is_programmatic : launches_->others_are_programmatic) ? 1 : 0;
    return config;
  }
#endif

  CudaDevice* device_;
  cudaStream_t stream_;
  CudaLaunches* launches_;
};

}  // namespace graphsink
