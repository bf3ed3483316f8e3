// Which addresses hold memory, and which did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace graphsink {

enum class MemoryState : std::uint8_t {
  unknown,  // never handed out by the device
  live,
  gone,  // freed and not handed out again, or reserved without memory behind it
};

// Any thread.
class MemoryMap {
 public:
  void set(const void* address, std::size_t bytes, MemoryState state);
  MemoryState find(std::uintptr_t address) const;

 private:
  void split(std::uintptr_t address);

  struct Range {
    std::uintptr_t end;
    MemoryState state;
  };
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;  // by begin; they do not overlap
};

}  // namespace graphsink
