#pragma once

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphsink {

// Sleeping and waking costs microseconds, a task tens of nanoseconds: threads that wait look for work this often first.
constexpr int kSpins = 1000;
// Between two looks.
inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // takes as long as a pause; "yield" takes no time on most processors
#else
  std::this_thread::yield();
#endif
}

}  // namespace graphsink
