#include "device/cuda/feed_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/device.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// Data that is written goes through pinned buffers of the device, in the order of its stream. Staged data lies in
// pinned memory already; it is copied on a stream of its own, to the one of two buffers that the launches in progress
// do not read, so that the copy runs beside them.
class CudaFeedMemory : public FeedMemory {
 public:
  CudaFeedMemory(CudaDevice& device, Calls& calls) : device_(device), calls_(calls) {}

  ~CudaFeedMemory() override {
    const RelaxedCapture relaxed(calls_.log);
    for (const auto& slot : slots_) {
      const cudaError_t code = slot->copied ? cudaEventSynchronize(slot->copied.get()) : cudaSuccess;
      if (code != cudaSuccess) log_failure(calls_.log, "cudaEventSynchronize", cudaGetErrorName(code));
    }
  }

  const void* write(Stream& stream, const void* source, std::size_t bytes) override {
    Buffer& buffer = buffers_[current_];
    reserve(buffer, stream, bytes);
    device_.upload(stream, buffer.memory.get(), source, bytes);
    return buffer.memory.get();
  }

  StagedMemory stage(std::size_t bytes) override {
    calls_.require_device();
    const CurrentDevice current(calls_);
    std::shared_ptr<Slot> slot = free_slot();
    if (slot->size < bytes || !slot->memory) {
      slot->memory.reset();  // first, so that both need not fit
      slot->size = 0;
      slot->memory = allocate_pinned(calls_, bytes);
      slot->size = bytes;
    }
    slot->is_taken.store(true, std::memory_order_relaxed);
    auto* memory = static_cast<std::byte*>(slot->memory.get());
    // The writes of whoever drops the memory come before those of whoever gets it next.
    return {memory, [slot](std::byte*) { slot->is_taken.store(false, std::memory_order_release); }};
  }

  const void* send(Stream& stream, const StagedMemory& staged, std::size_t bytes) override {
    calls_.require_device();
    const CurrentDevice current(calls_);
    if (!copies_) copies_.emplace(calls_);
    const auto slot =
        std::find_if(slots_.begin(), slots_.end(), [&](const auto& each) { return each->contains(staged.get()); });
    // All that reads the buffer of before was issued by now.
    record(buffers_[current_].released, cuda_stream(stream));
    Buffer& buffer = buffers_[1 - current_];
    reserve(buffer, stream, bytes);
    if (buffer.released)
      calls_.check(cudaStreamWaitEvent(copies_->get(), buffer.released.get(), cudaEventWaitDefault),
                   "cudaStreamWaitEvent");
    const cudaError_t code =
        cudaMemcpyAsync(buffer.memory.get(), staged.get(), bytes, cudaMemcpyHostToDevice, copies_->get());
    calls_.check(code, "cudaMemcpyAsync");
    ++calls_.counters.copies;
    try {
      record((*slot)->copied, *copies_);
      (*slot)->number = ++sent_;
      cuda_stream(stream).wait_for(*copies_, calls_);
    } catch (...) {  // no event marks the end of the copy
      untracked_.push_back(staged);
      throw;
    }
    current_ = 1 - current_;
    return buffer.memory.get();
  }

  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const Buffer& buffer : buffers_) sum += buffer.memory ? rounded_block(buffer.size) : 0;
    return sum;
  }

  std::size_t staged_bytes() const override {
    std::size_t sum = 0;
    for (const auto& slot : slots_) sum += slot->memory ? rounded_block(slot->size) : 0;
    return sum;
  }

 private:
  struct Buffer {
    Memory memory;
    std::size_t size = 0;
    EventHandle released;  // behind all that reads it, once another buffer is the current one
  };
  struct Slot {
    Memory memory;  // pinned
    std::size_t size = 0;
    std::atomic<bool> is_taken = false;
    EventHandle copied;
    std::uint64_t number = 0;  // number of the copy, counted from 1

    bool contains(const std::byte* address) const {
      const auto* begin = static_cast<const std::byte*>(memory.get());
      return address == begin || (std::less<>()(begin, address) && std::less<>()(address, begin + size));
    }
  };
  static constexpr std::size_t kMost = 4;  // number of slots that are made before one is waited for

  void record(EventHandle& event, const CudaStream& stream) {
    if (!event)
      calls_.check(cudaEventCreateWithFlags(event.out(calls_.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
    calls_.check(cudaEventRecord(event.get(), stream.get()), "cudaEventRecord");
  }

  void reserve(Buffer& buffer, Stream& stream, std::size_t bytes) {
    if (buffer.memory && bytes <= buffer.size) return;
    Memory larger = device_.allocate(bytes);
    device_.wait(stream);  // launches in progress may still read the old memory
    buffer.memory = std::move(larger);
    buffer.size = bytes;
  }

  // A slot that nobody has and that is copied already; else a new one; else, if there are enough, the one that is
  // copied next.
  std::shared_ptr<Slot> free_slot() {
    std::shared_ptr<Slot> waited_for;
    for (const auto& slot : slots_) {
      if (slot->is_taken.load(std::memory_order_acquire)) continue;
      if (!slot->copied || is_copied(*slot)) return slot;
      if (!waited_for || slot->number < waited_for->number) waited_for = slot;
    }
    if (!waited_for || slots_.size() < kMost) return slots_.emplace_back(std::make_shared<Slot>());
    const RelaxedCapture relaxed(calls_);
    calls_.check(cudaEventSynchronize(waited_for->copied.get()), "cudaEventSynchronize");
    return waited_for;
  }

  bool is_copied(const Slot& slot) {
    const RelaxedCapture relaxed(calls_);
    const cudaError_t code = cudaEventQuery(slot.copied.get());
    const bool is_busy = code == cudaErrorNotReady;
    if (is_busy && cudaPeekAtLastError() == code) (void)cudaGetLastError();  // "not ready" is an answer, not an error
    calls_.check(is_busy ? cudaSuccess : code, "cudaEventQuery");
    return !is_busy;
  }

  CudaDevice& device_;
  Calls& calls_;
  std::optional<CudaStream> copies_;
  std::array<Buffer, 2> buffers_;
  std::uint64_t sent_ = 0;   // number of copies
  std::size_t current_ = 0;  // the buffer that launches read which are issued now
  std::vector<std::shared_ptr<Slot>> slots_;
  std::vector<StagedMemory> untracked_;  // may still be read by copies whose end no event marks
};

}  // namespace

std::unique_ptr<FeedMemory> make_cuda_feed_memory(CudaDevice& device, Calls& calls) {
  return std::make_unique<CudaFeedMemory>(device, calls);
}

}  // namespace graphsink
