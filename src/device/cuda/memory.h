// Device and pinned memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/handle.h"
#include "device/cuda/stream.h"

namespace graphsink {

// At least 256 bytes, zero-filled when the call returns; `stream` is used to fill it. Throws Error when out of memory.
Memory allocate_device(Calls& calls, const CudaStream& stream, std::size_t bytes);

// Throws OutOfMemory, because `bytes` of device memory are not available. `what` says what they are for, with the call
// that failed.
[[noreturn]] void throw_out_of_memory(Calls& calls, const char* what, std::size_t bytes);

// Pinned, zero-filled, at the same address for host and device.
Memory allocate_pinned(Calls& calls, std::size_t bytes);

// Addresses for as much memory as the device has.
std::unique_ptr<Arena> reserve_arena(std::shared_ptr<Calls> calls);

// Copies host memory through pinned slots, so that the caller may reuse it at once while the device is still busy.
class Staging {
 public:
  explicit Staging(const Log& log) : log_(log) {}
  ~Staging();  // waits until the device has read what is still in it
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::size_t bytes() const;
  void upload(Calls& calls, const CudaStream& stream, void* destination, const void* source, std::size_t bytes);

 private:
  struct Slot {
    Memory memory;
    std::size_t bytes = 0;
    EventHandle copied;  // recorded after the last copy from here
  };
  Slot& next_slot(Calls& calls, std::size_t bytes);
  void record_copied(Calls& calls, const CudaStream& stream, Slot& slot);

  Log log_;
  std::vector<Memory> untracked_;  // still read by copies that no event tells the end of
  std::array<Slot, 4> slots_;
  std::size_t next_ = 0;
};

}  // namespace graphsink
