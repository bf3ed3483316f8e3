// How long threads spin that wait for others which are at work, before they sleep.
#pragma once

#include <atomic>
#include <chrono>

#include "device/cpu/pause.h"

namespace graphsink {

// Waking a thread costs about as much as a small task, so threads that wait for others spin for a quarter of a
// millisecond first. Where a wait takes a millisecond longer, the system has probably given the core of one of them to
// another program, for what is called a quantum, and will do so again. The next waits then give the processor away
// after some ten microseconds: a thread that spins may hold the very core that the other one needs, and the system
// prefers a thread that has slept to one that computes all the time.
class AdaptiveSpin {
 public:
  static constexpr int kLongSpins = 5 * kSpins, kShortSpins = kSpins / 5;
  static constexpr int kShortWaits = 1000;  // after a lost quantum
  static constexpr std::chrono::milliseconds kQuantum{1};

  // Waits until is_over() is true; sleep() sleeps until then. `is_expected`: that it takes long tells nothing, because
  // the others have more to do than this thread had. Any thread may call.
  template <class IsOver, class Sleep>
  void wait(IsOver is_over, Sleep sleep, bool is_expected = false) {
    const int left = short_waits_.load(std::memory_order_relaxed);
    // Threads that do this at the same time may count as one.
    if (left > 0) short_waits_.store(left - 1, std::memory_order_relaxed);
    for (int i = 0; i < (left > 0 ? kShortSpins : kLongSpins); ++i) {
      if (is_over()) return;
      pause();
    }
    const auto begin = std::chrono::steady_clock::now();
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    sleep();
    if (is_expected || std::chrono::steady_clock::now() - begin < kQuantum) return;
    quanta_lost_.fetch_add(1, std::memory_order_relaxed);
    short_waits_.store(kShortWaits, std::memory_order_relaxed);
  }

  int sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  int quanta_lost() const { return quanta_lost_.load(std::memory_order_relaxed); }
  // Whether the next wait gives the processor away soon.
  bool is_short() const { return short_waits_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<int> short_waits_{0};  // that are left
  std::atomic<int> sleeps_{0}, quanta_lost_{0};
};

}  // namespace graphsink
