#include "exec/issue/launch_queue.h"

#include <atomic>
#include <new>

namespace graphsink {

void LaunchQueue::allocate(DeviceMemory& device, StepState* block, std::uint32_t* next) {
  memory_ = device.allocate_host(kBytes);
  auto* slots = new (memory_.get()) LaunchSlots;
  ring_ = {block, next, slots->slots, &slots->taken};
  standing_ring_ = {block, nullptr, &slots->standing, nullptr};
}

void LaunchQueue::set_standing(std::uint32_t seed, std::uint32_t acknowledged) {
  put(slots().standing.seed, seed);
  put(slots().standing.acknowledged, acknowledged);
}

std::uint32_t LaunchQueue::taken() const {
  // The acquire load orders later writes to a slot after the device's reads of it; see begin_launch().
  return std::atomic_ref(slots().taken).load(std::memory_order_acquire);
}

void LaunchQueue::push(const LaunchParams& params, DeviceQueue& device, Stream& stream) {
  // Whether a slot is free is mostly known from an earlier look. Each look takes as long as a read of memory does that
  // a device has just written.
  if (static_cast<std::uint32_t>(pushed_) - seen_taken_ >= LaunchSlots::kCapacity) {
    // This must be a blocking wait, not a polling loop: a device may start queued work only when the host waits for it.
    if (waiting() == LaunchSlots::kCapacity) device.wait(stream);
    seen_taken_ = taken();
  }
  slots().slots[pushed_ % LaunchSlots::kCapacity] = params;
  ++pushed_;
}

}  // namespace graphsink
