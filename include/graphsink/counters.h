// Counters and CaptureInfo: what a device was asked to do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Counts of the work of a program so far, taken where the work happens: calls of the device's API, nodes of the
// captured graphs.
struct Counters {
  std::uint64_t api_calls = 0;       // CUDA calls; on the CPU: pushes to a device queue
  std::uint64_t graph_launches = 0;  // launches of captured graphs: of a step, a part of one, or several
  // Issued one by one or as nodes of a launch. A library's product issued op by op is one, however many kernels it has;
  // a launch counts what its graph holds, which may be more.
  std::uint64_t kernels = 0;
  std::uint64_t copies = 0;  // copies, counted likewise; a launch counts what fills memory, too
  // Bytes that the host has copied on their way to the device: data of write() and Variable::write(), and a few hundred
  // bytes of its own for a run. None for slices of Program::stage().
  std::uint64_t host_copied_bytes = 0;
  // Kernels issued one by one on the CPU whose tiles several threads may share. They are included in `kernels`.
  std::uint64_t shared = 0;
  std::uint64_t host_nodes = 0;        // calls of ops on the host, counted likewise; always 0 on the CPU
  std::uint64_t captures = 0;          // captures that succeeded
  std::uint64_t compiled_kernels = 0;  // kernels of groups of element-wise ops (Tuning::fuse) that were compiled
  std::uint64_t cached_kernels = 0;    // those that a cache on disk had
  // Captures that changed the arguments of an executable graph, which was kept for other input shapes before, in place
  // of making one anew.
  std::uint64_t graph_updates = 0;
  // Captures that CUDA did not allow to do so, because not only arguments differed: then a graph was made anew.
  std::uint64_t graph_update_refusals = 0;
  // Steps asked to be sunk that ran interactively. Those before a set of input shapes is captured do not count, see
  // Tuning::capture_after.
  std::uint64_t fallbacks = 0;
  std::uint64_t device_bytes = 0;  // allocated now on the devices of the program: by it, and as homes of its Variables
  std::uint64_t host_bytes = 0;    // the same for pinned memory of the host
  // Sets of input shapes for which the program keeps plans, workspaces and captured graphs now, see
  // Limits::shape_cache_bytes.
  std::uint64_t cached_shapes = 0;
  std::uint64_t cached_bytes = 0;    // an estimate of the bytes that these take together
  std::uint64_t evicted_shapes = 0;  // sets that were dropped so far

  // Adds each count.
  Counters& operator+=(const Counters& more) {
    api_calls += more.api_calls;
    graph_launches += more.graph_launches;
    kernels += more.kernels;
    copies += more.copies;
    host_copied_bytes += more.host_copied_bytes;
    shared += more.shared;
    host_nodes += more.host_nodes;
    captures += more.captures;
    compiled_kernels += more.compiled_kernels;
    cached_kernels += more.cached_kernels;
    graph_updates += more.graph_updates;
    graph_update_refusals += more.graph_update_refusals;
    fallbacks += more.fallbacks;
    device_bytes += more.device_bytes;
    host_bytes += more.host_bytes;
    cached_shapes += more.cached_shapes;
    cached_bytes += more.cached_bytes;
    evicted_shapes += more.evicted_shapes;
    return *this;
  }
};

// Which of a program's captured graphs: the one that runs one step, or the one that runs several. If there are several
// of the latter kind, because they are unrolled (PlanSummary::unrolled_steps), it is the one with the most steps.
enum class LaunchOf : std::uint8_t { one_step, several_steps };

// Contents of one captured graph. For loops over steps, the body counts once.
struct CaptureInfo {
  int kernels = 0;             // kernel nodes; on the CPU: calls of bodies
  int copies = 0;              // nodes that copy memory or fill it
  int host_nodes = 0;          // nodes that call the host, such as ops that run there
  int conditional_nodes = 0;   // loops and branches
  int empty_nodes = 0;         // nodes that do nothing, and join others
  int allocations = 0;         // nodes that allocate memory, in stream order
  int frees = 0;               // nodes that free such memory
  int edges = 0;               // dependencies between nodes; always 0 on the CPU
  int programmatic_edges = 0;  // part of `edges`: the kernel behind is launched before the one in front has ended
  // Kernels and copies of the CPU of which several threads compute parts, or that run at once. Launches are measured
  // now and then, and share less where that is faster.
  int shared = 0;
  // An estimate of the memory that it takes, because CUDA does not say: 112 KiB for the executable graph and 2.5 KiB
  // for each node. An H200 took 113 KB and 2.4 KB of its memory, in graphs of 1 to 10,000 kernels. The estimate is
  // exact on the CPU.
  std::size_t bytes = 0;

  // Adds each count.
  CaptureInfo& operator+=(const CaptureInfo& more) {
    kernels += more.kernels;
    shared += more.shared;
    copies += more.copies;
    host_nodes += more.host_nodes;
    conditional_nodes += more.conditional_nodes;
    empty_nodes += more.empty_nodes;
    allocations += more.allocations;
    frees += more.frees;
    edges += more.edges;
    programmatic_edges += more.programmatic_edges;
    bytes += more.bytes;
    return *this;
  }
};

}  // namespace graphsink
