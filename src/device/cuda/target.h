// What a CUDA device can do.
#pragma once

#include <memory>

#include "device/cuda/check.h"
#include "graphsink/plan.h"

namespace graphsink {

// Throws Error if there is no device of this index.
std::shared_ptr<Calls> open_calls(int index, const Log& log, const Calls* beside = nullptr);

// Lets each reach the other's memory. False where the machine cannot.
bool link_devices(Calls& a, Calls& b);

Target read_target(Calls& calls);

}  // namespace graphsink
