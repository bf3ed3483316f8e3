// The memory of a feed on the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cpu/cpu_memory.h"
#include "device/device.h"

namespace graphsink {

// `host_copied_bytes` counts what write() copies; it must outlive the memory.
std::unique_ptr<FeedMemory> make_cpu_feed_memory(std::shared_ptr<HeldBytes> held, std::uint64_t& host_copied_bytes);

}  // namespace graphsink
