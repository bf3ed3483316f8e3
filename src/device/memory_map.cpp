#include "device/memory_map.h"

#include <iterator>

namespace graphsink {

// Afterwards no range goes over the address.
void MemoryMap::split(std::uintptr_t address) {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return;
  auto& [begin, range] = *std::prev(next);
  if (begin == address || range.end <= address) return;
  ranges_[address] = range;
  range.end = address;
}

void MemoryMap::set(const void* address, std::size_t bytes, MemoryState state) {
  if (bytes == 0) return;
  auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::lock_guard lock(mutex_);
  split(begin);
  split(begin + bytes);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(begin + bytes));
  ranges_[begin] = {begin + bytes, state};
}

void MemoryMap::set_gone(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  std::lock_guard lock(mutex_);
  const auto first = ranges_.find(begin);
  if (first == ranges_.end()) return;
  ranges_.erase(std::next(first), ranges_.lower_bound(begin + bytes));
  first->second = {begin + bytes, MemoryState::gone};
}

MemoryState MemoryMap::find(std::uintptr_t address) const {
  std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return MemoryState::unknown;
  const Range& range = std::prev(next)->second;
  return address < range.end ? range.state : MemoryState::unknown;
}

}  // namespace graphsink
