// Adding nodes: what their parameters must be, and what becomes of them.
#include "runtime.h"

namespace emu {
namespace {

// Both the graph itself and those it is nested in.
Handle* find_handle(cudaGraph_t graph, cudaGraphConditionalHandle id) {
  for (cudaGraph_t level = graph; level != nullptr; level = level->owner == nullptr ? nullptr : level->owner->graph) {
    for (Handle& handle : level->handles) {
      if (handle.id == id) return &handle;
    }
  }
  return nullptr;
}

cudaError_t make_copy(Runtime& r, const cudaMemcpyNodeParams& params, CopyWork& copy) {
  const cudaMemcpy3DParms& p = params.copyParams;
  if (params.flags != 0) return cudaErrorInvalidValue;
  if (p.srcArray != nullptr || p.dstArray != nullptr || p.extent.height == 0 || p.extent.depth != 1) {
    return cudaErrorNotSupported;
  }
  if (p.extent.width == 0) return explain(cudaErrorInvalidValue, "0 byte memcopy is not supported");
  if (p.srcPos.y != 0 || p.srcPos.z != 0 || p.dstPos.y != 0 || p.dstPos.z != 0) {
    return cudaErrorInvalidValue;
  }
  copy = {static_cast<char*>(p.dstPtr.ptr) + p.dstPos.x,
          static_cast<const char*>(p.srcPtr.ptr) + p.srcPos.x,
          p.extent.width,
          p.kind,
          nullptr,
          -1,
          p.extent.height,
          p.dstPtr.pitch,
          p.srcPtr.pitch};
  return check_copy(r, copy);
}

cudaError_t collect_edges(Runtime& r, cudaGraph_t graph, const cudaGraphNode_t* nodes, const cudaGraphEdgeData* data,
                          std::size_t count, cudaGraphNodeType to, std::vector<Edge>& edges) {
  if (count > 0 && nodes == nullptr) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    Edge edge;
    if (const cudaError_t invalid = make_edge(r, graph, nodes[i], data, i, to, edge); invalid != cudaSuccess) {
      return invalid;
    }
    if (const cudaError_t refused = add_edge(edges, edge, i); refused != cudaSuccess) return refused;
  }
  return cudaSuccess;
}

bool is_inside(cudaGraph_t graph, cudaGraph_t other) {
  for (; graph != other; graph = graph->owner->graph) {
    if (graph->owner == nullptr) return false;
  }
  return true;
}

cudaError_t check_child(Runtime& r, cudaGraph_t graph, const cudaChildGraphNodeParams& params) {
  if (!r.graphs.contains(params.graph)) return cudaErrorInvalidValue;
  if (params.graph->moved) return explain(cudaErrorNotSupported, "Child graph is already owned by another graph");
  if (has_conditional(*params.graph)) {
    return explain(cudaErrorNotSupported, "Child graph is not allowed to have conditional nodes");
  }
  if (params.ownership == cudaGraphChildGraphOwnershipClone) {
    if (is_inside(graph, params.graph))
      end_process("a graph becomes a child of itself, with which a GPU's driver crashes");
    if (!has_memory_nodes(*params.graph)) return cudaSuccess;
    return explain(cudaErrorNotSupported,
                   "Child graph ownership must be moved if the child graph contains memory allocation or free nodes");
  }
  // The graph must be the program's to give, and no capture may be going on in it.
  bool free = params.ownership == cudaGraphChildGraphOwnershipMove && params.graph->owner == nullptr &&
              !is_inside(graph, params.graph);
  for (const CaptureRef& capture : r.captures) free &= capture->graph != params.graph;
  return free ? cudaSuccess : cudaErrorInvalidValue;
}

bool is_access(const Runtime& r, const cudaMemAccessDesc& access) {
  return is_device_location(r, access.location) &&
         (access.flags == cudaMemAccessFlagsProtNone || access.flags == cudaMemAccessFlagsProtRead ||
          access.flags == cudaMemAccessFlagsProtReadWrite);
}

cudaError_t make_allocation(const Runtime& r, const cudaMemAllocNodeParamsV2& params, AllocWork& work) {
  const cudaMemPoolProps& pool = params.poolProps;
  if (!is_pool(r, pool) || pool.handleTypes != cudaMemHandleTypeNone || params.bytesize == 0) {
    return cudaErrorInvalidValue;
  }
  const std::size_t count = params.accessDescCount;
  if (count > static_cast<std::size_t>(r.device_count) || (count > 0 && params.accessDescs == nullptr)) {
    return cudaErrorInvalidValue;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_access(r, params.accessDescs[i])) return cudaErrorInvalidValue;
  }
  work.memory = std::make_shared<GraphMemory>(params.bytesize, pool.location.id);
  return work.memory->pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t make_conditional(cudaGraph_t graph, const cudaConditionalNodeParams& params, Work& work) {
  constexpr const char* kSizes[] = {"Size must be 1 or 2 for IF conditional nodes",
                                    "Size must be 1 for WHILE conditional nodes",
                                    "Size cannot be zero for SWITCH conditional nodes"};
  const Handle* handle = find_handle(graph, params.handle);
  const unsigned most = params.type == cudaGraphCondTypeIf ? 2 : params.type == cudaGraphCondTypeWhile ? 1 : ~0u;
  if (handle == nullptr || handle->used) return cudaErrorInvalidValue;
  if (params.type < cudaGraphCondTypeIf || params.type > cudaGraphCondTypeSwitch) return cudaErrorInvalidValue;
  if (params.size == 0 || params.size > most) return explain(cudaErrorInvalidValue, kSizes[params.type]);
  work = ConditionalWork{params.handle, params.type};
  return cudaSuccess;
}

cudaError_t make_event_work(Runtime& r, cudaEvent_t event, bool records, Work& work) {
  work = EventWork{event, records};
  return r.events.contains(event) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t make_work(Runtime& r, cudaGraph_t graph, const cudaGraphNodeParams& params, Work& work) {
  const bool uses_memory = params.type == cudaGraphNodeTypeMemAlloc || params.type == cudaGraphNodeTypeMemFree;
  if (uses_memory && graph->moved) {
    return explain(cudaErrorNotSupported,
                   "Memory allocation/free nodes are restricted from the graph: Graph ownership was moved to a parent "
                   "graph");
  }
  switch (params.type) {
    case cudaGraphNodeTypeKernel:
      return prepare_kernel(r, params.kernel, work.emplace<KernelWork>());
    case cudaGraphNodeTypeMemcpy:
      return make_copy(r, params.memcpy, work.emplace<CopyWork>());
    case cudaGraphNodeTypeMemset:
      work = FillWork{params.memset};
      if (params.memset.width == 0 || params.memset.height == 0) {
        return explain(cudaErrorInvalidValue, "0 byte memset not allowed");
      }
      return check_fill(r, params.memset);
    case cudaGraphNodeTypeHost:
      work = HostWork{params.host.fn, params.host.userData};
      return params.host.fn == nullptr ? cudaErrorInvalidValue : cudaSuccess;
    case cudaGraphNodeTypeEmpty:
      return cudaSuccess;
    case cudaGraphNodeTypeGraph:
      work = ChildWork{};
      return check_child(r, graph, params.graph);
    case cudaGraphNodeTypeConditional:
      return make_conditional(graph, params.conditional, work);
    case cudaGraphNodeTypeEventRecord:
      return make_event_work(r, params.eventRecord.event, true, work);
    case cudaGraphNodeTypeWaitEvent:
      return make_event_work(r, params.eventWait.event, false, work);
    case cudaGraphNodeTypeMemAlloc:
      return make_allocation(r, params.alloc, work.emplace<AllocWork>());
    case cudaGraphNodeTypeMemFree:
      work = FreeWork{params.free.dptr};
      return can_free_in(r, *graph, params.free.dptr) ? cudaSuccess : cudaErrorInvalidValue;
    default:
      return cudaErrorNotSupported;
  }
}

namespace {

// The graph that a child node with these parameters will own.
std::unique_ptr<CUgraph_st> make_child(const cudaChildGraphNodeParams& params) {
  if (params.ownership == cudaGraphChildGraphOwnershipMove) {
    params.graph->moved = true;
    return std::unique_ptr<CUgraph_st>(params.graph);
  }
  auto copy = std::make_unique<CUgraph_st>(nullptr);
  clone_into(*params.graph, *copy);
  return copy;
}

// What the node has beside its work, and what the parameters tell the program.
void finish_node(cudaGraphNode_t node, std::unique_ptr<CUgraph_st> child, cudaGraphNodeParams& params) {
  if (child != nullptr) {
    child->owner = node;
    node->bodies.push_back(std::move(child));
  }
  if (node->type == cudaGraphNodeTypeMemAlloc) params.alloc.dptr = std::get<AllocWork>(*node->work).memory->pointer;
  if (node->type != cudaGraphNodeTypeConditional) return;
  for (unsigned i = 0; i < params.conditional.size; ++i) {
    node->bodies.push_back(std::make_unique<CUgraph_st>(node));
    node->body_handles.push_back(node->bodies.back().get());
  }
  params.conditional.phGraph_out = node->body_handles.data();
  find_handle(node->graph, params.conditional.handle)->used = true;
}

// Adds a node with these parameters behind the `count` nodes of `before`.
cudaError_t add_node_of(Runtime& r, cudaGraphNode_t& out, cudaGraph_t graph, const cudaGraphNode_t* before,
                        const cudaGraphEdgeData* data, std::size_t count, cudaGraphNodeParams& params) {
  std::vector<Edge> edges;
  cudaError_t code = collect_edges(r, graph, before, data, count, params.type, edges);
  Work work;
  if (code == cudaSuccess) code = make_work(r, graph, params, work);
  if (code != cudaSuccess) return code;
  std::unique_ptr<CUgraph_st> child;
  if (params.type == cudaGraphNodeTypeGraph) child = make_child(params.graph);
  out = add_node(graph, std::make_shared<const Work>(std::move(work)), edges);
  finish_node(out, std::move(child), params);
  return cudaSuccess;
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before,
                             const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* params) {
  return api("cudaGraphAddNode", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || params == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    for (const int reserved : params->reserved0) {
      if (reserved != 0) return cudaErrorInvalidValue;
    }
    if (params->reserved2 != 0) return cudaErrorInvalidValue;
    return emu::add_node_of(r, *out, graph, before, data, count, *params);
  });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
                                   const cudaKernelNodeParams* kernel) {
  return api("cudaGraphAddKernelNode", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || kernel == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = kernel->func;
    params.kernel.gridDim = kernel->gridDim;
    params.kernel.blockDim = kernel->blockDim;
    params.kernel.sharedMemBytes = kernel->sharedMemBytes;
    params.kernel.kernelParams = kernel->kernelParams;
    params.kernel.extra = kernel->extra;
    return emu::add_node_of(r, *out, graph, before, nullptr, count, params);
  });
}
