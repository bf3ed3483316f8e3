// The memory that the user of a SinkCache has said to be alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace graphsink {

class KnownMemory {
 public:
  // Adds a range of addresses. Ranges that were registered before and overlap it are forgotten.
  void add(std::uintptr_t begin, std::size_t bytes) {
    for (auto range = ranges_.begin(); range != ranges_.end();) {
      const bool overlaps = range->first < begin + bytes && begin < range->first + range->second.bytes;
      range = overlaps ? ranges_.erase(range) : std::next(range);
    }
    ranges_[begin] = {bytes, ++last_number_};
  }
  void remove(std::uintptr_t begin) { ranges_.erase(begin); }
  // The number of the registration that holds the address, which no later one has; 0 if there is none.
  std::uint64_t find(std::uintptr_t address) const {
    auto next = ranges_.upper_bound(address);
    if (next == ranges_.begin()) return 0;
    const auto& [begin, range] = *std::prev(next);
    return address - begin < range.bytes ? range.number : 0;
  }

 private:
  struct Range {
    std::size_t bytes = 0;
    std::uint64_t number = 0;
  };
  std::map<std::uintptr_t, Range> ranges_;
  std::uint64_t last_number_ = 0;
};

}  // namespace graphsink
