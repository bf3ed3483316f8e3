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
  // The same for a range that has been set, alone or in parts, and is gone now. For destructors: allocates nothing.
  // Does nothing if no range begins there.
  void set_gone(const void* address, std::size_t bytes) noexcept;
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
