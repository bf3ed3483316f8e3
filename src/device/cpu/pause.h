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

// Of those, so many without giving the processor to a thread that may run on the same one: perhaps the one it waits
// for.
constexpr int kSpinsAlone = 200;

// Between two looks.
inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace graphsink
