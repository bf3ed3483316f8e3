// Values that the nodes of a captured graph were given, which every launch repeats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/check.h"

namespace graphsink {

using Bytes = std::vector<std::byte>;

// One number, address or structure that a node was given.
struct NodeValue {
  std::string node;  // "kernel scale(float*, float)", "memcpy"
  std::string name;  // "parameter 1", "grid", "source"
  Bytes bytes;       // zeros for an address of memory that the graph itself allocates
};

// Calls visit(value) for all nodes, those of child graphs included. Bodies of conditional nodes are left out: CUDA 13.0
// does not list them.
void visit_values(cudaGraph_t graph, Calls& calls, const std::function<void(const NodeValue&)>& visit);

// The first difference between two captures of the same work, "" if there is none: a value with its bytes before and
// now, or work that one has and the other has not, or that depends on other work. Nodes of both graphs are matched by
// what they are and what they depend on, because CUDA lists them in any order. Memory that a graph allocates has
// another address in each capture: it is compared by the node that allocates it and the place in it.
std::string difference(cudaGraph_t before, cudaGraph_t now, Calls& calls);

}  // namespace graphsink
