// How long each step took. The device tells the host while later steps run, so that no wait is needed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "device/host_memory.h"

namespace graphsink {

// A step's time begins when the device comes to the launch (or the interactive steps) that it is part of and could work
// on it, or at the end of the step before it in the same launch; it ends with the step. So it holds all that the device
// waited for the host inside the step, but not what passed before the host asked for it.
struct StepTime {
  std::uint64_t tag = 0;  // LaunchParams::tag
  std::int64_t ns = 0;
  std::uint32_t ok = 0;  // the step committed
};

// The last kCapacity of them. In memory from DeviceMemory::allocate_host, written by the last node of each step whose
// launch has this in its LaunchParams.
struct StepTimes {
  static constexpr std::uint32_t kCapacity = 256;
  StepTime ring[kCapacity];
  std::uint32_t count = 0;  // written so far, modulo 2^32; written last

  // Calls seen(StepTime), oldest first, for those there are from number `next` on, and moves `next` behind them. Leaves
  // out what is gone, or was written over meanwhile.
  template <class Seen>
  void read(std::uint32_t& next, const Seen& seen) {
    std::atomic_ref written(count);
    std::uint32_t end = written.load(std::memory_order_acquire);
    if (end - next >= kCapacity) next = end - kCapacity + 1;  // the oldest may be in the making
    for (; next != end; ++next) {
      StepTime& place = ring[next % kCapacity];
      StepTime time;  // acquire: before the look at what was written meanwhile
      time.tag = std::atomic_ref(place.tag).load(std::memory_order_acquire);
      time.ns = std::atomic_ref(place.ns).load(std::memory_order_acquire);
      time.ok = std::atomic_ref(place.ok).load(std::memory_order_acquire);
      if (written.load(std::memory_order_relaxed) - next < kCapacity) seen(time);
    }
  }
};

// Nanoseconds from any origin, on the device that runs this. On a GPU %globaltimer (PTX ISA, "Special Registers"),
// which all multiprocessors share. It may stand still for a microsecond, so that short steps are to be averaged.
GRAPHSINK_ON_BOTH inline std::int64_t device_now() {
#ifdef __CUDA_ARCH__
  std::int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

}  // namespace graphsink
