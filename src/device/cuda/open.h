// Finding and opening CUDA devices; needs no CUDA headers.
#pragma once

#include <memory>

#include "device/device.h"

namespace graphsink {

// Throws Error if there is no such device, or its driver is too old.
std::shared_ptr<Device> open_cuda_device(int index, const Log& log = {}, std::span<Device* const> beside = {});

// 0 without a driver or a device.
int count_cuda_devices() noexcept;

}  // namespace graphsink
