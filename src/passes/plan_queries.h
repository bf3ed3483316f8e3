// Queries about a Plan that the code which runs plans needs of the passes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graphsink/memory.h"
#include "graphsink/plan_summary.h"
#include "ir/plan.h"

namespace graphsink {

// Devices of this compute capability and above can launch kernels programmatically.
constexpr int kLeastProgrammaticSm = 90;

// Whether the whole step is one launch.
bool sinks_whole(const Plan& plan);

// Whether the task is the CPU body of an op, on a device with separate memory.
bool is_on_host(const Plan& plan, const Task& task);

// The number of the device that carries out the task; of a copy, the further device that takes part in it, or 0.
int device_of(const Plan& plan, const Task& task);

// The numbers of the further devices that the plan uses.
std::vector<int> used_further_devices(const Plan& plan);

// "cuda:1".
std::string device_name(const Plan& plan, int device);

// Bytes of the rings of all records.
std::size_t ring_bytes(const Plan& plan);

// The bytes that a block of device memory takes when `bytes` are allocated.
std::size_t rounded_block(std::size_t bytes);

// By node: the stream on which it runs. Nodes of a body run on the stream of the branch or loop.
std::vector<int> node_streams(const Plan& plan);

// Bytes of scratch memory for each stream: the largest workspace that an op on that stream asks for, or 0 if the facts
// do not include workspaces. Ops on the host of a device with separate memory have their workspaces in host memory.
struct Workspaces {
  std::vector<std::size_t> device;
  std::vector<std::size_t> host;
};
Workspaces workspaces(const Plan& plan, const PlanFacts& facts);

// Bytes of the host arena: the values of ops on the host, then their workspaces, stream by stream.
std::size_t host_arena_bytes(const Plan& plan, const PlanFacts& facts);

// Computes what the plan needs, without a device. Program::memory() returns exact numbers: it includes what the device
// rounds up, and staging, status and control.
MemoryReport memory_report(const Plan& plan, const PlanFacts& facts = {});
// The same, with the given number of bytes for the slices of each feed.
MemoryReport memory_report(const Plan& plan, const PlanFacts& facts, std::span<const std::size_t> feed_bytes);

PlanSummary summary(const Plan& plan, const PlanFacts& facts);

// Plan::unrolled_steps, or fewer, where the facts say so.
std::int64_t unrolled_steps(const Plan& plan, const PlanFacts& facts);

}  // namespace graphsink
