// Measurements of endurance.cpp on CUDA devices alone, by calls of CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace graphsink::bench {

// Bytes of this CUDA device's memory that are in use, by all processes; nullopt if nobody can say.
std::optional<std::int64_t> used_device_bytes(int device);

// The device memory that executable graphs of `nodes` kernels take. The driver keeps what destroyed graphs gave
// back, so only the first number of nodes in a process tells what new memory it takes.
struct NodeBytes {
  std::int64_t nodes = 0;
  std::int64_t graphs = 0;            // how many were instantiated at the same time
  std::int64_t bytes = 0;             // taken by all of them
  std::int64_t bytes_afterwards = 0;  // still in use after all of them were destroyed
  double us_a_graph = 0;              // to instantiate and upload one
};
std::vector<NodeBytes> measure_node_bytes(int device, const std::vector<std::int64_t>& nodes);

}  // namespace graphsink::bench
