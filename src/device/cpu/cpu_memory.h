// Memory of the host, in which the CPU is a device. Allocations are counted as long as they are held.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "device/device.h"

namespace graphsink {

// Zeros, aligned to 256 bytes. Throws OutOfMemory.
Memory allocate_counted(std::size_t bytes, const std::shared_ptr<HeldBytes>& held,
                        std::atomic<std::size_t> HeldBytes::*kind);

// Throws OutOfMemory if no addresses are left.
std::unique_ptr<Arena> reserve_arena(std::shared_ptr<HeldBytes> held);

}  // namespace graphsink
