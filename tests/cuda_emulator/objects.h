// What the opaque CUDA handles point to.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <thread>
#include <unordered_set>
#include <variant>
#include <vector>

#include "executor.h"

namespace emu {

struct KernelWork {
  const void* function = nullptr;
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  std::size_t shared_bytes = 0;
  void (*invoke)(const void*, void**) = nullptr;
  std::vector<std::vector<std::byte>> arguments;
  std::function<cudaError_t()> native;  // a library kernel: runs instead of invoke
};

struct CopyWork {
  void* target = nullptr;
  const void* source = nullptr;
  std::size_t bytes = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  std::shared_ptr<std::vector<std::byte>> staged;  // pageable source, copied at the call
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

struct ChildWork {};
struct EmptyWork {};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork, ConditionalWork>;
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
};
using CaptureRef = std::shared_ptr<Capture>;

// An instantiated graph: nodes refer to each other by index and to nothing that may still change.
struct Plan;
struct PlanNode {
  cudaGraphNodeType type;
  WorkRef work;
  std::vector<std::size_t> before;
  std::vector<std::shared_ptr<const Plan>> bodies;
};
struct Plan {
  std::vector<PlanNode> nodes;
  std::vector<Handle> handles;  // also those of the bodies
  bool has_conditional = false;
};
using PlanRef = std::shared_ptr<const Plan>;

}  // namespace emu

struct CUstream_st {
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  emu::OpRef tail;
  emu::CaptureRef capture;
  std::vector<emu::Edge> frontier;              // what the next captured node depends on
  std::vector<cudaGraphNode_t> frontier_nodes;  // storage of cudaStreamGetCaptureInfo
  std::vector<cudaGraphEdgeData> frontier_data;
  bool is_blocking() const { return !legacy && (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  unsigned flags = 0;
  emu::OpRef op;
  emu::CaptureRef capture;
  std::vector<emu::Edge> frontier;
};

struct CUgraphNode_st {
  CUgraphNode_st(cudaGraph_t graph, cudaGraphNodeType type, emu::WorkRef work);
  ~CUgraphNode_st();
  CUgraphNode_st(const CUgraphNode_st&) = delete;
  CUgraphNode_st& operator=(const CUgraphNode_st&) = delete;

  cudaGraph_t graph;
  cudaGraphNodeType type;
  emu::WorkRef work;
  std::vector<emu::Edge> before;
  std::vector<std::unique_ptr<CUgraph_st>> bodies;  // of a conditional, or the one child
  std::vector<cudaGraph_t> body_handles;            // the array CUDA owns and hands out
};

struct CUgraph_st {
  explicit CUgraph_st(cudaGraphNode_t owner);
  ~CUgraph_st();
  CUgraph_st(const CUgraph_st&) = delete;
  CUgraph_st& operator=(const CUgraph_st&) = delete;

  cudaGraphNode_t owner;  // the child or conditional node this graph is in, else null
  bool spoiled = false;   // a capture into it failed
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<emu::Handle> handles;
  std::shared_ptr<int> live_execs = std::make_shared<int>(0);
};

struct CUgraphExec_st {
  emu::PlanRef plan;
  emu::OpRef tail;  // end of the last launch
  std::shared_ptr<int> live_execs;
};
