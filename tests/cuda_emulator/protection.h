// Keeps the host out of device memory. With memory protection keys, access is a matter of the thread and costs nothing.
// Without, GS_EMU_PROTECT=1 takes all access away while no operation runs: slow, and blind to other threads meanwhile.
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

}  // namespace emu
