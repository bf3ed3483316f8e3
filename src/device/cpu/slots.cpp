#include "device/cpu/slots.h"

#include "passes/plan_queries.h"

namespace graphsink {

std::shared_ptr<CpuSlots::Slot> CpuSlots::free_slot(std::size_t bytes) {
  auto goes_first = [](const Slot& a, const Slot& b) {
    if (a.is_read() != b.is_read()) return b.is_read();
    if (a.is_read()) return a.number < b.number;
    return a.size > b.size;  // rather one that has memory
  };
  std::shared_ptr<Slot> slot;
  for (const auto& each : slots_) {
    const bool is_taken = each->is_taken.load(std::memory_order_acquire);
    if (!is_taken && (!slot || goes_first(*each, *slot))) slot = each;
  }
  if (!slot || (slot->is_read() && slots_.size() < kMost && bytes <= kLargest))
    slot = slots_.emplace_back(std::make_shared<Slot>());
  if (slot->progress) slot->progress->wait_for(slot->number);
  if (slot->size < bytes || !slot->memory) {
    slot->memory.reset();  // first, so that both need not fit
    slot->size = 0;
    slot->memory = allocate_counted(bytes, held_, kind_);
    slot->size = rounded_block(bytes);
  }
  return slot;
}

void CpuSlots::release(Slot& slot, CpuQueue& queue) {
  slot.progress = queue.progress();
  slot.number = queue.pushed();
  // Whoever waits for the slot is woken when that is done, not when the queue has nothing left to do.
  if (slot.is_read())
    queue.push({[](const CpuTask& t) { static_cast<CpuQueue*>(t.second)->publish(); }, nullptr, &queue});
}

std::size_t CpuSlots::bytes() const {
  std::size_t sum = 0;
  for (const auto& slot : slots_) sum += slot->size;
  return sum;
}

}  // namespace graphsink
