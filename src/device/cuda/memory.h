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

// Allocates at least 256 bytes of device memory. The memory is filled with zeros, on `stream`, when the call returns.
// Throws OutOfMemory if there is not enough memory.
Memory allocate_device(Calls& calls, const CudaStream& stream, std::size_t bytes);

// Throws OutOfMemory for a failed request of `bytes` of device memory. `what` names the failed call or the purpose of
// the memory, for the error message.
[[noreturn]] void throw_out_of_memory(Calls& calls, const char* what, std::size_t bytes);

// Allocates pinned host memory, filled with zeros. It has the same address on host and device. Throws OutOfMemory.
Memory allocate_pinned(Calls& calls, std::size_t bytes);

// Reserves an address range as large as the memory of the device.
std::unique_ptr<Arena> reserve_arena(std::shared_ptr<Calls> calls);

// Copies host memory to the device through pinned buffers. The caller may reuse its memory at once, even while the
// device is still busy.
class Staging {
 public:
  explicit Staging(const Log& log) : log_(log) {}
  ~Staging();  // waits until the device has read all buffers
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::size_t bytes() const;
  void upload(Calls& calls, const CudaStream& stream, void* destination, const void* source, std::size_t bytes);

 private:
  struct Slot {
    Memory memory;
    std::size_t bytes = 0;
    EventHandle copied;  // recorded after the last copy from this slot
  };
  Slot& next_slot(Calls& calls, std::size_t bytes);
  void record_copied(Calls& calls, const CudaStream& stream, Slot& slot);

  Log log_;
  std::vector<Memory> untracked_;  // may still be read by copies whose end no event marks
  std::array<Slot, 4> slots_;
  std::size_t next_ = 0;
};

}  // namespace graphsink
