#include "device/cpu/feed_memory.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include "device/cpu/queue.h"
#include "device/cpu/slots.h"

namespace graphsink {
namespace {

// Steps read slices where they were staged or written. The launches that were issued last read one of the slots.
class CpuFeedMemory : public FeedMemory {
 public:
  CpuFeedMemory(std::shared_ptr<HeldBytes> held, std::uint64_t& host_copied_bytes)
      : slots_(std::move(held), &HeldBytes::device), host_copied_bytes_(host_copied_bytes) {}

  const void* write(Stream& stream, const void* source, std::size_t bytes) override {
    release_current(stream);  // first, so that its slot can be used again
    StagedMemory staged = stage(bytes);
    if (bytes > 0) std::memcpy(staged.get(), source, bytes);
    host_copied_bytes_ += bytes;
    return send(stream, staged, bytes);
  }

  StagedMemory stage(std::size_t bytes) override {
    std::shared_ptr<CpuSlots::Slot> slot = slots_.free_slot(bytes);
    slot->is_taken.store(true, std::memory_order_relaxed);
    auto* memory = static_cast<std::byte*>(slot->memory.get());
    // The writes of whoever drops the memory come before those of whoever gets it next.
    return {memory, GiveBack{std::move(slot)}};
  }

  const void* send(Stream& stream, const StagedMemory& staged, std::size_t) override {
    release_current(stream);
    current_ = staged;
    return current_.get();
  }

  std::size_t bytes() const override { return slots_.bytes(); }
  std::size_t staged_bytes() const override { return 0; }

 private:
  struct GiveBack {
    std::shared_ptr<CpuSlots::Slot> slot;
    void operator()(std::byte*) const { slot->is_taken.store(false, std::memory_order_release); }
  };

  // Work that is issued later does not read what was sent last.
  void release_current(Stream& stream) {
    if (!current_) return;
    CpuSlots::release(*std::get_deleter<GiveBack>(current_)->slot, static_cast<CpuQueue&>(stream));
    current_.reset();
  }

  CpuSlots slots_;
  std::uint64_t& host_copied_bytes_;
  StagedMemory current_;  // sent last
};

}  // namespace

std::unique_ptr<FeedMemory> make_cpu_feed_memory(std::shared_ptr<HeldBytes> held, std::uint64_t& host_copied_bytes) {
  return std::make_unique<CpuFeedMemory>(std::move(held), host_copied_bytes);
}

}  // namespace graphsink
