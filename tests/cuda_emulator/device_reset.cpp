// cudaDeviceReset: what the program made on the current device is gone.
#include "runtime.h"

namespace emu {
namespace {

void destroy_streams(Runtime& r, int device) {
  r.legacy[static_cast<std::size_t>(device)]->tail = nullptr;
  std::erase_if(r.streams, [&](cudaStream_t stream) {
    if (stream->device != device) return false;
    stream->tail = nullptr;
    if (stream->of_thread) return false;  // its thread destroys it
    delete stream;
    return true;
  });
}

void destroy_events(Runtime& r, int device) {
  std::erase_if(r.events, [&](cudaEvent_t event) {
    if (event->device != device) return false;
    delete event;
    return true;
  });
}

void destroy_graphs(Runtime& r) {
  for (const cudaGraphExec_t exec : r.execs) delete exec;
  r.execs.clear();
  std::vector<cudaGraph_t> graphs;  // those of nodes go with them
  for (const cudaGraph_t graph : r.graphs) {
    if (graph->owner == nullptr) graphs.push_back(graph);
  }
  for (const cudaGraph_t graph : graphs) delete graph;
  r.graph_allocations.clear();
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

// Graphs and pinned memory are of no device here, so they go with the only one.
cudaError_t cudaDeviceReset() {
  return api("cudaDeviceReset", [](Runtime& r, Lock& lock) -> cudaError_t {
    if (!r.captures.empty()) {
      emu::invalidate_all(r);
      return cudaErrorStreamCaptureUnsupported;
    }
    r.executor.wait_all(lock);
    if (r.executor.sticky() != cudaSuccess) return r.executor.sticky();
    const int device = emu::current_device();
    emu::destroy_streams(r, device);
    emu::destroy_events(r, device);
    std::erase_if(r.peers, [&](const std::pair<int, int>& peers) { return peers.first == device; });
    if (r.device_count > 1) {
      r.memory.release_device(device);
      return cudaSuccess;
    }
    emu::destroy_graphs(r);
    r.async_freed.clear();
    r.memory.release_all();
    return cudaSuccess;
  });
}
