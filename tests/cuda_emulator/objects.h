// What the opaque CUDA handles point to.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_set>
#include <variant>
#include <vector>

#include "executor.h"
#include "user_objects.h"

namespace emu {

struct KernelWork {
  int device = 0;
  std::map<cudaLaunchAttributeID, cudaLaunchAttributeValue> attributes;  // those that were set
  const void* function = nullptr;
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  std::size_t shared_bytes = 0;
  void (*invoke)(const void*, void**) = nullptr;
  std::vector<std::vector<std::byte>> arguments;
  bool programmatic = false;            // may begin before the kernel before it has ended
  bool has_clear_padding = false;       // in the arguments: all their bytes mean something
  std::function<cudaError_t()> native;  // a library kernel: runs instead of invoke
  const char* native_name = "library_kernel";
};

// A copy of one row of bytes, or of several rows, which begin a pitch apart.
struct CopyWork {
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;  // of a row
  cudaMemcpyKind kind = cudaMemcpyDefault;
  std::shared_ptr<std::vector<std::byte>> staged;  // pageable source, copied at the call: rows without gaps
  int device = -1;                                 // that of its stream, once it has one
  std::size_t rows = 1;
  std::size_t target_pitch = 0;
  std::size_t source_pitch = 0;
  // From the first byte to the last one.
  std::size_t target_extent() const { return rows == 0 ? 0 : target_pitch * (rows - 1) + bytes; }
  std::size_t source_extent() const { return rows == 0 ? 0 : source_pitch * (rows - 1) + bytes; }
};

struct FillWork {
  cudaMemsetParamsV2 params{};
};

struct HostWork {
  cudaHostFn_t function = nullptr;
  void* data = nullptr;
};

struct ConditionalWork {
  cudaGraphConditionalHandle handle = 0;
  cudaGraphConditionalNodeType type = cudaGraphCondTypeIf;
};

// Records or waits for an event that others use outside the graph.
struct EventWork {
  cudaEvent_t event = nullptr;
  bool records = false;
};

// What an allocation node gives: an address for its life.
struct GraphMemory {
  GraphMemory(std::size_t bytes, int device);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  void* pointer;  // null when there is no room
  std::size_t bytes;
};
using GraphMemoryRef = std::shared_ptr<GraphMemory>;

struct AllocWork {
  GraphMemoryRef memory;
};
struct FreeWork {
  void* pointer = nullptr;
};

struct ChildWork {};
struct EmptyWork {};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork, ConditionalWork, EventWork,
                          AllocWork, FreeWork>;
using WorkRef = std::shared_ptr<const Work>;

struct Edge {
  cudaGraphNode_t node;
  cudaGraphEdgeData data;
};

struct Handle {
  cudaGraphConditionalHandle id;
  unsigned value;
  bool assign_default;
  bool used = false;
};

struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  cudaGraph_t graph;
  bool owns_graph;
  bool invalid = false;
  bool ended = false;
  std::vector<cudaStream_t> streams;
  std::vector<cudaGraphNode_t> dropped;  // removed from a stream's frontier by cudaStreamUpdateCaptureDependencies
  std::vector<Edge> left;                // frontiers of joined streams that were destroyed
};
using CaptureRef = std::shared_ptr<Capture>;

// An instantiated graph: nodes refer to each other by index and to nothing that may still change.
struct Plan;
struct PlanNode {
  std::uint64_t id;  // that tools show
  cudaGraphNodeType type;
  WorkRef work;
  bool enabled = true;
  std::vector<std::size_t> before;
  std::vector<std::shared_ptr<const Plan>> bodies;
};
struct Plan {
  std::vector<PlanNode> nodes;
  std::vector<Handle> handles;  // also those of the bodies
  // Anywhere in it:
  bool has_conditional = false;
  bool has_memory = false;           // allocation or free nodes
  bool has_updatable = false;        // kernels that the device may change
  std::vector<GraphMemoryRef> left;  // allocated and not freed
  std::vector<void*> freed;          // freed and not allocated
  UserReferences user_references;    // those of this graph alone: the plans of children have their own
};
using PlanRef = std::shared_ptr<const Plan>;

// Where a node of the graph is in its exec's plan: node, body of it, node in that, ...
using PlanPath = std::vector<std::size_t>;

}  // namespace emu

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool of_thread = false;  // the default stream of a thread
  emu::OpRef tail;
  emu::CaptureRef capture;
  std::vector<emu::Edge> frontier;              // what the next captured node depends on
  std::vector<cudaGraphNode_t> frontier_nodes;  // storage of cudaStreamGetCaptureInfo
  std::vector<cudaGraphEdgeData> frontier_data;
  bool is_blocking() const { return !legacy && (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  emu::OpRef op;
  emu::CaptureRef capture;
  std::vector<emu::Edge> frontier;
};

struct CUgraphNode_st {
  CUgraphNode_st(cudaGraph_t graph, cudaGraphNodeType type, emu::WorkRef work);
  ~CUgraphNode_st();
  CUgraphNode_st(const CUgraphNode_st&) = delete;
  CUgraphNode_st& operator=(const CUgraphNode_st&) = delete;

  const std::uint64_t id;  // that tools show
  cudaGraph_t graph;
  cudaGraphNodeType type;
  emu::WorkRef work;
  std::vector<emu::Edge> before;
  std::vector<std::unique_ptr<CUgraph_st>> bodies;  // of a conditional, or the one child
  std::vector<cudaGraph_t> body_handles;            // the array CUDA owns and hands out
  std::vector<void*> argument_handles;              // likewise, of a kernel
};

struct CUgraph_st {
  explicit CUgraph_st(cudaGraphNode_t owner);
  ~CUgraph_st();
  CUgraph_st(const CUgraph_st&) = delete;
  CUgraph_st& operator=(const CUgraph_st&) = delete;

  unsigned long long number;  // graphs are counted in the order of their creation
  cudaGraphNode_t owner;      // the child or conditional node this graph is in, else null
  bool moved = false;         // it was a graph of its own before it became a child
  bool spoiled = false;       // a capture into it failed
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<emu::Handle> handles;
  emu::UserReferences user_references;
  std::shared_ptr<int> live_execs = std::make_shared<int>(0);
};

struct CUgraphExec_st {
  std::uint32_t id = 0;  // that tools show
  emu::PlanRef plan;
  unsigned long long flags = 0;
  std::map<cudaGraphNode_t, emu::PlanPath> paths;  // of the graph it was made from
  emu::OpRef tail;                                 // end of the last launch
  std::shared_ptr<int> live_execs;
};

struct CUmemPoolHandle_st {};

struct CUlogsCallbackEntry_st {
  cudaLogsCallback_t callback;
  void* data;
};
