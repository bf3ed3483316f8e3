// Which CPU bodies run now, and since when. The threads that run them write it, and a watching thread reads it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "graphsink/op.h"
#include "ir/bound_node.h"

namespace graphsink {

// One body in each slot; more at a time than there are slots are not seen. Any thread.
struct RunningCalls {
  static constexpr std::size_t kSlots = 8;
  struct Slot {
    std::atomic<const BoundNode*> node = nullptr;
    std::atomic<std::int64_t> since = 0;  // now() when it began, in ns
  };
  std::array<Slot, kSlots> slots;

  static std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }
};

// Shows in `calls`, unless null, that the body of `node` runs, as long as this lives.
class RunningCall {
 public:
  RunningCall(RunningCalls* calls, const BoundNode& node) noexcept {
    for (std::size_t i = 0; calls && i < RunningCalls::kSlots && !slot_; ++i) {
      RunningCalls::Slot& slot = calls->slots[i];
      if (slot.node.load() != nullptr) continue;  // its time is another's
      const BoundNode* nobody = nullptr;
      slot.since.store(RunningCalls::now().count(), std::memory_order_relaxed);  // there before the node is seen
      if (slot.node.compare_exchange_strong(nobody, &node)) slot_ = &slot;
    }
  }
  ~RunningCall() {
    if (slot_) slot_->node.store(nullptr, std::memory_order_release);
  }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  RunningCalls::Slot* slot_ = nullptr;
};

}  // namespace graphsink
