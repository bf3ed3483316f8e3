// Opens a CUDA device and reads its properties.
#pragma once

#include <memory>

#include "device/cuda/check.h"
#include "ir/plan.h"

namespace graphsink {

// Opens the device for calls. Throws Error if there is no device with this index. `beside`: see Calls.
std::shared_ptr<Calls> open_calls(int index, const Log& log, const Calls* beside = nullptr);

// Enables peer access between the devices in both directions. Returns false if the machine does not support it.
bool link_devices(Calls& a, Calls& b);

Target read_target(Calls& calls);

}  // namespace graphsink
