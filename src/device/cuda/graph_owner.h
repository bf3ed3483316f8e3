// Graphs of the caller's keep alive what they use.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/cuda/check.h"

namespace graphsink {

// Keeps `owner` alive as long as `graph`, what is cloned and instantiated from it, or a launch of these exists. The
// next call of the library lets go of it then: see LeftBehind. Throws like Calls::check(); then the graph keeps
// nothing.
void keep_alive(cudaGraph_t graph, std::shared_ptr<void> owner, Calls& calls);

}  // namespace graphsink
