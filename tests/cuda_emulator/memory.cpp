#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>

#include "sanitizers.h"

namespace emu {
namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t kCommitStep = 4 << 20;
constexpr std::size_t kRedZone = 256;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

std::size_t arena_bytes() {
  const char* text = std::getenv("GS_EMU_MEMORY_MB");
  const std::size_t megabytes = text == nullptr ? 1024 : std::strtoul(text, nullptr, 10);
  return round_up(megabytes << 20, kCommitStep);
}

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t machine_bytes() { return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes(); }

// Pages that lie wholly within [begin, begin + bytes) no longer occupy memory, and hold zeros when they are used again.
// Where device memory is closed by pages, each CUDA call opens and closes all that are occupied: 60 MiB that one test
// had used would cost each call of all later tests half a millisecond.
void give_back_pages(char* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = round_up(address, page_bytes());
  const std::uintptr_t last = (address + bytes) / page_bytes() * page_bytes();
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

Memory::Memory() : capacity_(arena_bytes()) {
  void* base = mmap(nullptr, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::fputs("cuda emulator: cannot reserve the device memory\n", stderr);
    std::abort();
  }
  arena_ = static_cast<char*>(base);
}

bool Memory::commit(std::size_t end) {
  if (end <= committed_) return true;
  const std::size_t target = round_up(end, kCommitStep);
  if (target > capacity_) return false;
  if (protect_device(arena_ + committed_, target - committed_, true) != 0) return false;
  ASAN_POISON_MEMORY_REGION(arena_ + committed_, target - committed_);
  committed_ = target;
  return true;
}

void* Memory::allocate(std::size_t bytes, int device, bool of_graph) {
  const std::lock_guard guard(mutex_);
  std::size_t offset = 0;
  for (const auto& [start, block] : blocks_) {
    if (bytes <= capacity_ && offset + bytes + kRedZone <= start) break;
    offset = round_up(start + block.bytes + kRedZone, kAlign);
  }
  if (bytes > capacity_ || offset + bytes > capacity_ || !commit(offset + bytes)) return nullptr;
  blocks_[offset] = {bytes, device, of_graph};
  used_ += bytes;
  ASAN_UNPOISON_MEMORY_REGION(arena_ + offset, bytes);
  const DeviceAccess access;
  std::memset(arena_ + offset, 0xFF, bytes);
  return arena_ + offset;
}

bool Memory::release(void* pointer, bool of_graph) {
  const std::lock_guard guard(mutex_);
  const auto block = find_block(pointer);
  if (block == blocks_.end() || arena_ + block->first != pointer || block->second.of_graph != of_graph) return false;
  used_ -= block->second.bytes;
  ASAN_POISON_MEMORY_REGION(pointer, block->second.bytes);
  give_back_pages(static_cast<char*>(pointer), block->second.bytes);
  blocks_.erase(block);
  return true;
}

bool Memory::is_allocation(const void* pointer) {
  const std::lock_guard guard(mutex_);
  const auto block = find_block(pointer);
  return block != blocks_.end() && arena_ + block->first == pointer && !block->second.of_graph;
}

bool Memory::is_allocation_of_graph(const void* pointer) {
  const std::lock_guard guard(mutex_);
  const auto block = find_block(pointer);
  return block != blocks_.end() && arena_ + block->first == pointer && block->second.of_graph;
}

void* Memory::graph_allocation_at(const void* pointer) {
  const std::lock_guard guard(mutex_);
  const auto block = in_arena(pointer) ? find_block(pointer) : blocks_.end();
  return block == blocks_.end() || !block->second.of_graph ? nullptr : arena_ + block->first;
}

std::optional<int> Memory::device_of(const void* pointer) {
  const std::lock_guard guard(mutex_);
  const auto block = find_block(pointer);
  return block == blocks_.end() ? std::nullopt : std::optional(block->second.device);
}

void* Memory::allocate_pinned(std::size_t bytes) {
  if (bytes > machine_bytes()) return nullptr;
  auto* pointer = static_cast<char*>(::operator new(bytes, std::align_val_t(kAlign), std::nothrow));
  if (pointer == nullptr) return nullptr;
  std::memset(pointer, 0xFF, bytes);
  const std::lock_guard guard(mutex_);
  pinned_[pointer] = bytes;
  return pointer;
}

bool Memory::release_pinned(void* pointer) {
  {
    const std::lock_guard guard(mutex_);
    const auto block = pinned_.find(static_cast<char*>(pointer));
    if (block == pinned_.end()) return false;
    std::memset(pointer, 0xFF, block->second);  // shows in copies that come too late
    pinned_.erase(block);
  }
  ::operator delete(pointer, std::align_val_t(kAlign));
  return true;
}

Memory::Blocks::iterator Memory::find_block(const void* pointer) {
  if (!in_arena(pointer)) return blocks_.end();
  const auto next = blocks_.upper_bound(static_cast<std::size_t>(static_cast<const char*>(pointer) - arena_));
  return next == blocks_.begin() ? blocks_.end() : std::prev(next);
}

bool Memory::in_arena(const void* pointer) const { return pointer >= arena_ && pointer < arena_ + capacity_; }

Place Memory::place(const void* pointer) {
  const std::lock_guard guard(mutex_);
  return find_place(pointer);
}

Place Memory::find_place(const void* pointer) const {
  if (in_arena(pointer)) return Place::kDevice;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  auto reservation = reservations_.upper_bound(address);
  if (reservation != reservations_.begin()) {
    --reservation;
    if (address < reservation->first + reservation->second) return Place::kDevice;
  }
  auto pinned = pinned_.upper_bound(static_cast<const char*>(pointer));
  if (pinned == pinned_.begin()) return Place::kPageable;
  --pinned;
  return pointer < pinned->first + pinned->second ? Place::kPinned : Place::kPageable;
}

bool Memory::is_valid(const void* pointer, std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  const Place where = find_place(pointer);
  if (where == Place::kPageable) return pointer != nullptr;
  if (where == Place::kPinned) {
    const auto block = --pinned_.upper_bound(static_cast<const char*>(pointer));
    return static_cast<const char*>(pointer) + bytes <= block->first + block->second;
  }
  if (!in_arena(pointer)) return covers(reinterpret_cast<CUdeviceptr>(pointer), bytes);
  const auto block = find_block(pointer);
  if (block == blocks_.end()) return false;
  return static_cast<const char*>(pointer) + bytes <= arena_ + block->first + block->second.bytes;
}

bool Memory::is_inside_or_at_end(const void* pointer) {
  const std::lock_guard guard(mutex_);
  if (!in_arena(pointer)) {
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    return covers(address, 1) || covers(address - 1, 1);
  }
  const auto block = find_block(pointer);
  return block != blocks_.end() && static_cast<const char*>(pointer) <= arena_ + block->first + block->second.bytes;
}

std::size_t Memory::free_bytes() {
  const std::lock_guard guard(mutex_);
  return capacity_ - used_;
}

void Memory::count(LiveObjects& live) {
  const std::lock_guard guard(mutex_);
  live.device_allocations = blocks_.size();
  live.pinned_allocations = pinned_.size();
  live.reservations = reservations_.size();
  live.physical_blocks = physical_.size();
}

}  // namespace emu
