// Finding and opening CUDA devices; needs no CUDA headers.
#pragma once

#include <memory>

#include "device/device.h"

namespace graphsink {

// Opens a CUDA device. Throws Error if there is no such device, or if its driver is too old.
std::shared_ptr<Device> open_cuda_device(int index, const Log& log = {}, std::span<Device* const> beside = {},
                                         bool flush_denormals = true);

// Returns 0 if there is no driver or no device.
int count_cuda_devices() noexcept;

}  // namespace graphsink
