// Runs the threads of a grid, one block after the other, as fibers of the calling thread.
//
// A carrier fiber runs CUDA threads one after the other; only a thread that has to wait keeps its fiber and another
// carrier goes on. So kernels without barriers cost no context switch. Thread and block order follow the seed.
//
// Rules checked here, none of which depends on the order: each thread of a kernel that is launched programmatically
// waits for the kernels before it; all threads of a block take part in the same barriers, from the same source line;
// all lanes named in a mask take part in the same warp operation; a thread that has ended cannot be waited for
// (GS_EMU_STRICT=0 allows this last one).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace emu {

struct Grid {
  const void* function;
  void (*invoke)(const void* function, void** arguments);
  void** arguments;
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  std::uint64_t seed;
  dim3 cluster;    // 0, 0, 0 where the launch asks for none
  bool must_wait;  // each thread must call cudaGridDependencySynchronize()
};

inline constexpr unsigned kMaxThreadsPerBlock = 1024;
inline constexpr std::size_t kMaxSharedBytes = 227 << 10;

// Returns null, or why the kernel failed (valid until the next call). One call at a time in the process.
const char* run_grid(const Grid& grid);

// Called from inside a kernel: ends the grid with this message and does not return.
[[noreturn]] void fail_kernel(const char* message);

// Number of the running CUDA thread within its grid, for diagnostics.
std::uint64_t global_thread_id();

}  // namespace emu
