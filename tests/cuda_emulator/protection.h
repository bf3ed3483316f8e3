// Keeps the host out of device memory, in one of two ways.
//   keys   Memory protection keys of the processor: access belongs to a thread and costs nothing.
//   pages  Without keys, or with GS_EMU_PROTECT=1: the pages are closed while the host's own code runs. They are opened
//          by the first operation of a CUDA call and closed when that call returns or a host function begins, so a call
//          on one thread leaves them open for the others meanwhile.
// GS_EMU_PROTECT=0 turns protection off, for comparison.
#pragma once

#include <cstddef>

namespace emu {

// Makes pages of device memory accessible to DeviceAccess holders, or to nobody. Zero on success. Thread-safe.
int protect_device(void* address, std::size_t bytes, bool accessible);

// While one lives, this thread may access device memory. They nest.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// With pages: closes what operations opened, unless one is running on another thread. At the end of each CUDA call and
// before each host function.
void close_device_memory();

}  // namespace emu
