// How code that may run on a device reads and writes host memory that the host uses at the same time.
#pragma once

#include <atomic>
#include <cstdint>

#ifdef __CUDACC__
#define GRAPHSINK_ON_BOTH __host__ __device__
#else
#define GRAPHSINK_ON_BOTH
#endif

namespace graphsink {

// Stores `value` so that a host thread that reads it (with acquire order) also sees everything this thread has written
// before, and so that everything this thread has read before was read before the host can see `value`. On a GPU this is
// a release store at system scope, which is a plain store behind a fence (PTX ISA, Memory Consistency Model). An atomic
// read-modify-write would not be atomic for the host over every bus.
GRAPHSINK_ON_BOTH inline void tell_host(std::uint32_t* number, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(number), "r"(value) : "memory");
#else
  std::atomic_ref(*number).store(value, std::memory_order_release);
#endif
}

// The memory orders of put() and read_host() on the host. tests/device/memory_order_test.cpp shows that what both sides
// read while it is written needs no more, and no less: on processors with weak ordering, such as ARM's, a relaxed store
// may be seen before a release store of the same thread that came earlier.
constexpr std::memory_order kPutOrder = std::memory_order_release, kReadOrder = std::memory_order_acquire;

// Stores a value that the other side may read, old or new, at any time. Who sees it sees everything that this thread
// has written before. On a GPU that takes a fence_for_host() in front of the first put() of a kernel.
template <class T>
GRAPHSINK_ON_BOTH inline void put(T& place, T value) {
#ifdef __CUDA_ARCH__
  place = value;
#else
  std::atomic_ref(place).store(value, kPutOrder);
#endif
}

// On a GPU, what this thread, and kernels before its own, have written is seen by the host before what the thread
// writes from now on (fence.acq_rel.sys, PTX ISA, "membar/fence").
GRAPHSINK_ON_BOTH inline void fence_for_host() {
#ifdef __CUDA_ARCH__
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

// Loads what the host wrote before it launched the work that calls this, or what it writes meanwhile with put(). The
// load is volatile on a GPU, so that it is not answered by a cache that an earlier kernel has filled.
template <class T>
GRAPHSINK_ON_BOTH inline T read_host(const T& place) {
#ifdef __CUDA_ARCH__
  return static_cast<const volatile T&>(place);
#else
  return std::atomic_ref(const_cast<T&>(place)).load(kReadOrder);
#endif
}

}  // namespace graphsink
