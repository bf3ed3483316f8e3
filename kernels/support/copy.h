// Copies of raw bytes inside a kernel, and a kernel that writes zeros.
#pragma once

#include "kernels/support/kernel.h"

namespace graphsink {

struct alignas(16) Words {
  std::uint64_t low, high;
};

// Copies the share of thread `thread` of `threads`: 16 bytes at a time if both addresses are aligned to 16, else 4 if
// they are aligned to 4, else 1.
__device__ inline void copy_bytes(void* to, const void* from, std::int64_t bytes, std::int64_t thread,
                                  std::int64_t threads) {
  auto misaligned = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  auto copy = [&]<class T>(const T*, std::int64_t begin) {
    std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t i = begin / static_cast<std::int64_t>(sizeof(T)) + thread; i < count; i += threads)
      static_cast<T*>(to)[i] = static_cast<const T*>(from)[i];
  };
  std::int64_t done = 0;
  if (misaligned % 16 == 0) {
    copy(static_cast<const Words*>(nullptr), 0);
    done = bytes / 16 * 16;
  } else if (misaligned % 4 == 0) {
    copy(static_cast<const std::uint32_t*>(nullptr), 0);
    done = bytes / 4 * 4;
  }
  copy(static_cast<const unsigned char*>(nullptr), done);
}

template <class T>
__global__ void fill_zeros(T* out, std::int64_t size) {
  wait_for_inputs();
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) out[i] = T(0);
}

}  // namespace graphsink
