// The memory of a feed on a CUDA device.
#pragma once

#include <memory>

#include "device/cuda/memory.h"
#include "device/device.h"

namespace graphsink {

class CudaDevice;

// The device and its calls must outlive it.
std::unique_ptr<FeedMemory> make_cuda_feed_memory(CudaDevice& device, Calls& calls);

}  // namespace graphsink
