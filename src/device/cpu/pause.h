#pragma once

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphsink {

// Sleeping and waking costs microseconds, a task tens of nanoseconds: threads that wait look for work this often first.
constexpr int kSpins = 1000;
// Threads that wait for others which are at work look for longer, about a quarter of a millisecond.
constexpr int kSpinsAtWork = 5 * kSpins;

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

// The same before look number `spin`, for threads that wait for others which are at work. After some ten microseconds
// they let other threads run on their core now and then: perhaps the one that they wait for was put there.
inline void pause_at_work(int spin) {
  constexpr int kSpinsWithoutYield = 200, kSpinsBetweenYields = 16;
  pause();
  if (spin >= kSpinsWithoutYield && spin % kSpinsBetweenYields == 0) std::this_thread::yield();
}

}  // namespace graphsink
