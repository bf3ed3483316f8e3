// The ring through which the host gives each launch its parameters. The work of a launch begins with begin_launch(),
// which is captured with the rest: a captured graph reads the parameters of the launch that runs it, and a launch is
// one CUDA call.
//
// Both sides count slots modulo 2^32. The host writes slot number n, then launches; the device takes slots in the order
// of its stream, and says how many it has taken, so that the host never overwrites a slot that a queued launch has yet
// to read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/host_memory.h"
#include "device/step_times.h"
#include "graphsink/op.h"
#include "ir/step_state.h"

namespace graphsink {

// Parameters of one launch, or of one run of interactive steps. A GPU reads them over the bus by two loads of 16 bytes.
struct alignas(32) LaunchParams {
  std::int32_t first_slice = 0;  // first slice of the feeds that is read
  std::int32_t end_slice = 1;
  std::uint32_t seed = 0;
  // How many failures have been reported to the user, modulo 2^32. If the number differs from that of the launch
  // before, the device forgets the failure that it has stored, and steps may commit again.
  std::uint32_t acknowledged = 0;
  StepTimes* times = nullptr;  // where each step reports how long it took; null: the steps are not timed
  std::uint64_t tag = 0;       // reported with the time
};

// In host memory that the device can read and write.
struct LaunchSlots {
  static constexpr std::uint32_t kCapacity = 256;
  LaunchParams slots[kCapacity];
  // For steps in a graph of the caller's, which the host does not launch: each of them reads it. Its `seed` and
  // `acknowledged` may change at any time.
  LaunchParams standing;
  alignas(64) std::uint32_t taken = 0;  // number of slots that the device has read; written by the device
};

// The addresses that begin_launch() works with.
struct LaunchRing {
  StepState* block = nullptr;  // device memory
  // Device memory: the number of the slot that the next launch reads. Null: there is one slot, which is not taken.
  std::uint32_t* next = nullptr;
  const LaunchParams* slots = nullptr;  // LaunchSlots::slots, or LaunchSlots::standing
  std::uint32_t* taken = nullptr;       // LaunchSlots::taken
};

// Copies a slot that the host may write meanwhile; see read_host().
GRAPHSINK_ON_BOTH inline LaunchParams read_slot(const LaunchParams& slot) {
  LaunchParams params;
#ifdef __CUDA_ARCH__
  static_assert(sizeof(LaunchParams) == 32 && offsetof(LaunchParams, times) == 16);
  std::uint32_t words[4];
  std::uint64_t times = 0;
  asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(&slot));
  asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];" : "=l"(times), "=l"(params.tag) : "l"(&slot.times));
  params.first_slice = static_cast<std::int32_t>(words[0]);
  params.end_slice = static_cast<std::int32_t>(words[1]);
  params.seed = words[2];
  params.acknowledged = words[3];
  params.times = reinterpret_cast<StepTimes*>(times);
#else
  params.first_slice = read_host(slot.first_slice);
  params.end_slice = read_host(slot.end_slice);
  params.seed = read_host(slot.seed);
  params.acknowledged = read_host(slot.acknowledged);
  params.times = read_host(slot.times);
  params.tag = read_host(slot.tag);
#endif
  return params;
}

// Takes the next slot of the ring and fills the step block with it. One thread.
//
// Host to device: the host writes the slot before it makes the call that launches this work, and CUDA makes what the
// host wrote to mapped memory before a launch visible to the kernels of the launch (CUDA C++ Programming Guide, "Mapped
// Memory": accesses of host and device are ordered by streams and events; a launch is ordered behind the host code in
// front of it). Device to host: tell_host() is a release store at system scope, which orders the loads of the slot
// before the store of the count (PTX ISA, "Memory Consistency Model"), and the host loads the count with acquire order
// before it writes to the slot again.
GRAPHSINK_ON_BOTH inline void begin_launch(const LaunchRing& ring) {
  std::uint32_t number = ring.next ? *ring.next : 0;
  StepState& block = *ring.block;
  const std::uint32_t acknowledged = block.acknowledged;  // loaded while the slot is on its way
  const LaunchParams params = read_slot(ring.slots[number % LaunchSlots::kCapacity]);
  block.slice = params.first_slice;
  block.end_slice = params.end_slice;
  block.seed = params.seed;
  block.more = params.first_slice < params.end_slice;
  block.times = params.times;
  block.tag = params.tag;
  if (params.times) block.began = device_now();
  if (params.acknowledged != acknowledged) {
    block.acknowledged = params.acknowledged;
    block.error_node = -1;
    block.error = StepError::unknown;
    block.size_node = -1;
  }
  if (ring.next) {
    *ring.next = number + 1;
    tell_host(ring.taken, number + 1);
  }
}

}  // namespace graphsink
