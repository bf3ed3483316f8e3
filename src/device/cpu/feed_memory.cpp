#include "device/cpu/feed_memory.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "device/cpu/queue.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// Steps read slices where they were staged or written. There are a few pieces of memory, of which one is read by the
// launches that were issued last.
class CpuFeedMemory : public FeedMemory {
 public:
  CpuFeedMemory(std::shared_ptr<HeldBytes> held, std::uint64_t& host_copied_bytes)
      : held_(std::move(held)), host_copied_bytes_(host_copied_bytes) {}

  const void* write(Stream& stream, const void* source, std::size_t bytes) override {
    // Nothing that is issued later reads what was sent last, so that its memory is free when the queue is done with it.
    if (current_) release(static_cast<CpuQueue&>(stream));
    StagedMemory staged = stage(bytes);
    if (bytes > 0) std::memcpy(staged.get(), source, bytes);
    host_copied_bytes_ += bytes;
    return send(stream, staged, bytes);
  }

  StagedMemory stage(std::size_t bytes) override {
    std::shared_ptr<Piece> piece = free_piece(bytes);
    if (piece->size < bytes || !piece->memory) {
      piece->memory.reset();  // first, so that both need not fit
      piece->size = 0;
      piece->memory = allocate_counted(bytes, held_, &HeldBytes::device);
      piece->size = rounded_block(bytes);
    }
    piece->is_taken.store(true, std::memory_order_relaxed);
    auto* memory = static_cast<std::byte*>(piece->memory.get());
    // The writes of whoever drops the memory come before those of whoever gets it next.
    return {memory, [piece](std::byte*) { piece->is_taken.store(false, std::memory_order_release); }};
  }

  const void* send(Stream& stream, const StagedMemory& staged, std::size_t) override {
    if (current_) release(static_cast<CpuQueue&>(stream));
    current_ = staged;
    return current_.get();
  }

  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& piece : pieces_) sum += piece->size;
    return sum;
  }

  std::size_t staged_bytes() const override { return 0; }

 private:
  struct Piece {
    Memory memory;
    std::size_t size = 0;
    std::atomic<bool> is_taken = false;           // it is staged, or it is `current_`
    std::shared_ptr<const CpuProgress> progress;  // progress of the queue that reads it until `number` tasks are done
    std::uint64_t number = 0;
    bool is_free() const { return !is_taken.load(std::memory_order_acquire); }
    bool is_read() const { return progress && progress->done() < number; }
  };
  static constexpr std::size_t kPieces = 4;  // number of pieces that are made before one is waited for
  // Data that is larger waits for a piece that is read, in place of taking one more.
  static constexpr std::size_t kLargest = std::size_t{64} << 20;

  std::shared_ptr<Piece> free_piece(std::size_t bytes) {
    std::shared_ptr<Piece> best;
    auto goes_first = [](const Piece& a, const Piece& b) {
      if (a.is_read() != b.is_read()) return b.is_read();
      return a.is_read() ? a.number < b.number : a.size > b.size;
    };
    for (const auto& piece : pieces_)
      if (piece->is_free() && (!best || goes_first(*piece, *best))) best = piece;
    const bool may_add = pieces_.size() < kPieces && bytes <= kLargest;
    if (!best || (best->is_read() && may_add)) return pieces_.emplace_back(std::make_shared<Piece>());
    if (best->is_read()) best->progress->wait_for(best->number);
    return best;
  }

  // The memory that was sent last is read by work that was given to `queue` so far, and by nothing later.
  void release(CpuQueue& queue) {
    for (const auto& piece : pieces_) {
      if (piece->memory.get() != current_.get()) continue;
      piece->progress = queue.progress();
      piece->number = queue.pushed();
      // Whoever waits for the memory is woken when that is done, not when the queue has nothing left to do.
      if (piece->is_read())
        queue.push({[](const CpuTask& t) { static_cast<CpuQueue*>(t.second)->publish(); }, nullptr, &queue});
    }
    current_.reset();
  }

  std::shared_ptr<HeldBytes> held_;
  std::uint64_t& host_copied_bytes_;
  std::vector<std::shared_ptr<Piece>> pieces_;
  StagedMemory current_;  // sent last
};

}  // namespace

std::unique_ptr<FeedMemory> make_cpu_feed_memory(std::shared_ptr<HeldBytes> held, std::uint64_t& host_copied_bytes) {
  return std::make_unique<CpuFeedMemory>(std::move(held), host_copied_bytes);
}

}  // namespace graphsink
