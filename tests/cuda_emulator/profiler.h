// What tools see of the device, through CUPTI: see cupti.cpp.
#pragma once

#include <cstdint>
#include <functional>

#include "objects.h"

namespace emu {

// The ids that tools show. None is given twice.
std::uint64_t new_node_id();
std::uint32_t new_graph_id();

// Loads the library that the environment's CUDA_INJECTION64_PATH names and calls its InitializeInjection(), as the
// driver does when it starts.
void load_injection();

// Tells the subscriber that the nodes of the plan, which was made from the graph, are copies of the graph's nodes.
void announce_clones(const CUgraph_st& graph, const Plan& plan);

// What is to be called when an operation has run; null where no tool wants to know. `node` and `graph` are the ids of
// what it belongs to, 0 outside of graphs.
std::function<void(const Op&)> record_of(const WorkRef& work, std::uint64_t node, std::uint32_t graph);
// The same for a launch, to be called when its last operation has run. `begin` is its first one.
std::function<void(const Op&)> record_of_launch(const OpRef& begin, std::uint32_t graph);

}  // namespace emu
