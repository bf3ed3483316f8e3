// The host's side of the ring in which launches find their parameters.
#pragma once

#include "device/device.h"
#include "ir/step_state.h"

namespace graphsink {

// One per program. All launches that read from it must be given to one stream.
class LaunchQueue {
 public:
  // `next`: zero, in memory of the device. Throws OutOfMemory.
  void allocate(DeviceMemory& device, StepState* block, std::uint32_t* next);

  // For DeviceNodes::begin(), live and captured; valid as long as this object.
  const LaunchRing& ring() const { return ring_; }
  // The same for steps in a graph that the caller launches. They have one slice, and these parameters.
  const LaunchRing& standing_ring() const { return standing_ring_; }
  void set_standing(std::uint32_t seed, std::uint32_t acknowledged);
  // Bytes of the host that allocate() takes.
  static constexpr std::size_t kBytes = sizeof(LaunchSlots);

  // Writes the parameters of the next launch, which the caller must then give to `stream`. If all slots belong to
  // launches that have not begun, waits for `stream` first.
  void push(const LaunchParams& params, DeviceQueue& device, Stream& stream);
  // After a launch failed it may or may not have been queued. Once all work is done, the slots that no launch has taken
  // are free again, and the next launch takes the next slot that is written.
  void resume() {
    pushed_ -= waiting();
    note_all_over();
  }
  // The host has waited for the stream: all launches that were pushed are over.
  void note_all_over() { over_ = pushed_; }

  // How many launches have begun, modulo 2^32. Any thread.
  std::uint32_t taken() const;
  // The number of launches that were pushed so far, which is the number of the last one.
  std::uint64_t pushed() const { return pushed_; }
  // Whether the launch with that number is known to be over: the host has waited for it, or a later one in the same
  // stream has begun. Asks the device nothing.
  bool is_over(std::uint64_t launch) const { return launch <= over_ || pushed_ - waiting() > launch; }

 private:
  // Slots that were written and that no launch has taken.
  std::uint32_t waiting() const { return static_cast<std::uint32_t>(pushed_) - taken(); }
  LaunchSlots& slots() const { return *static_cast<LaunchSlots*>(memory_.get()); }

  Memory memory_;  // LaunchSlots
  LaunchRing ring_, standing_ring_;
  std::uint64_t pushed_ = 0;      // number of slots written
  std::uint64_t over_ = 0;        // the launches up to this number are over
  std::uint32_t seen_taken_ = 0;  // as many launches had begun when push() asked last
};

}  // namespace graphsink
