// Memory of the host that a queue reads while the next data is written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/cpu/cpu_memory.h"
#include "device/cpu/queue.h"

namespace graphsink {

// A few slots, which are used in turn.
class CpuSlots {
 public:
  // Larger data waits for a slot that is read, in place of taking one more.
  static constexpr std::size_t kLargest = std::size_t{64} << 20;
  struct Slot {
    Memory memory;
    std::size_t size = 0;
    std::atomic<bool> is_taken = false;           // somebody keeps it for data of his
    std::shared_ptr<const CpuProgress> progress;  // progress of the queue that reads it until `number` tasks are done
    std::uint64_t number = 0;
    bool is_read() const { return progress && progress->done() < number; }
  };

  // `kind`: what its memory counts as.
  CpuSlots(std::shared_ptr<HeldBytes> held, std::atomic<std::size_t> HeldBytes::*kind)
      : held_(std::move(held)), kind_(kind) {}

  // Returns a slot of at least that size that nobody has taken and no queue still reads. Waits if all are still read,
  // and there are kMost. Throws OutOfMemory.
  std::shared_ptr<Slot> free_slot(std::size_t bytes);
  // Says that the slot is read by work that was given to `queue` so far, and by nothing later.
  static void release(Slot& slot, CpuQueue& queue);
  std::size_t bytes() const;

 private:
  static constexpr std::size_t kMost = 4;  // number of slots, unless all of them are taken

  std::shared_ptr<HeldBytes> held_;
  std::atomic<std::size_t> HeldBytes::*kind_;
  std::vector<std::shared_ptr<Slot>> slots_;
};

}  // namespace graphsink
