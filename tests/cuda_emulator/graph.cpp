// Graph objects: nodes, edges, copies.
#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

#include "profiler.h"
#include "runtime.h"

CUgraphNode_st::CUgraphNode_st(cudaGraph_t graph_, cudaGraphNodeType type_, emu::WorkRef work_)
    : id(emu::new_node_id()), graph(graph_), type(type_), work(std::move(work_)) {
  emu::runtime().nodes.insert(this);
}

CUgraphNode_st::~CUgraphNode_st() { emu::runtime().nodes.erase(this); }

CUgraph_st::CUgraph_st(cudaGraphNode_t owner_) : number(emu::runtime().next_graph++), owner(owner_) {
  emu::runtime().graphs.insert(this);
}

CUgraph_st::~CUgraph_st() {
  emu::Runtime& r = emu::runtime();
  r.graphs.erase(this);
  for (const emu::CaptureRef& capture : r.captures) {
    if (capture->graph != this) continue;
    r.last_failure = "a graph was destroyed while a stream captures into a body of it, which is undefined on a GPU";
    std::fprintf(stderr, "cuda emulator: %s\n", r.last_failure.c_str());
    capture->invalid = true;
    capture->owns_graph = false;
    capture->graph = nullptr;
  }
}

namespace emu {

cudaGraphNode_t add_node(cudaGraph_t graph, WorkRef work, const std::vector<Edge>& before) {
  const cudaGraphNodeType type = node_type(*work);
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(graph, type, std::move(work)));
  graph->nodes.back()->before = before;
  return graph->nodes.back().get();
}

bool depends_on(cudaGraphNode_t node, cudaGraphNode_t other) {
  std::unordered_set<cudaGraphNode_t> seen;
  std::vector<cudaGraphNode_t> todo{node};
  while (!todo.empty()) {
    const cudaGraphNode_t current = todo.back();
    todo.pop_back();
    if (current == other) return true;
    if (!seen.insert(current).second) continue;
    for (const Edge& edge : current->before) todo.push_back(edge.node);
  }
  return false;
}

bool has_conditional(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == cudaGraphNodeTypeConditional ||
           std::any_of(node->bodies.begin(), node->bodies.end(),
                       [](const auto& body) { return has_conditional(*body); });
  });
}

bool has_memory_nodes(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == cudaGraphNodeTypeMemAlloc || node->type == cudaGraphNodeTypeMemFree ||
           std::any_of(node->bodies.begin(), node->bodies.end(),
                       [](const auto& body) { return has_memory_nodes(*body); });
  });
}

bool can_free_in(Runtime& r, const CUgraph_st& graph, void* pointer) {
  const bool is_freed = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    const auto* freed = std::get_if<FreeWork>(node->work.get());
    return freed != nullptr && freed->pointer == pointer;
  });
  return !is_freed && r.memory.is_allocation_of_graph(pointer);
}

void clone_into(const CUgraph_st& source, CUgraph_st& target) {
  std::unordered_map<cudaGraphNode_t, cudaGraphNode_t> copies;
  for (const auto& node : source.nodes) {
    const cudaGraphNode_t copy = add_node(&target, node->work, {});
    copies[node.get()] = copy;
    for (const auto& body : node->bodies) {
      copy->bodies.push_back(std::make_unique<CUgraph_st>(copy));
      clone_into(*body, *copy->bodies.back());
    }
  }
  // Edges second: a program may add an edge from a younger node to an older one.
  for (const auto& node : source.nodes) {
    for (const Edge& edge : node->before) copies[node.get()]->before.push_back({copies[edge.node], edge.data});
  }
}

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

bool is_edge_data(const cudaGraphEdgeData& data, cudaGraphNode_t from, cudaGraphNodeType to) {
  if (data.to_port != 0) return false;
  for (const unsigned char byte : data.reserved) {
    if (byte != 0) return false;
  }
  if (data.from_port == cudaGraphKernelNodePortDefault) return data.type == cudaGraphDependencyTypeDefault;
  if (from->type != cudaGraphNodeTypeKernel || data.from_port > cudaGraphKernelNodePortLaunchCompletion) return false;
  if (data.type == cudaGraphDependencyTypeProgrammatic) return to == cudaGraphNodeTypeKernel;
  return data.type == cudaGraphDependencyTypeDefault && data.from_port == cudaGraphKernelNodePortLaunchCompletion;
}

cudaError_t collect_edges(Runtime& r, cudaGraph_t graph, const cudaGraphNode_t* nodes, const cudaGraphEdgeData* data,
                          std::size_t count, cudaGraphNodeType to, std::vector<Edge>& edges) {
  if (count > 0 && nodes == nullptr) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    const Edge edge{nodes[i], data == nullptr ? cudaGraphEdgeData{} : data[i]};
    if (!r.nodes.contains(edge.node) || edge.node->graph != graph) return cudaErrorInvalidValue;
    if (!is_edge_data(edge.data, edge.node, to)) return cudaErrorInvalidValue;
    if (std::any_of(edges.begin(), edges.end(), [&](const Edge& e) { return e.node == edge.node; })) {
      return cudaErrorInvalidValue;
    }
    edges.push_back(edge);
  }
  return cudaSuccess;
}

cudaError_t linear_copy(Runtime& r, const cudaMemcpyNodeParams& params, CopyWork& copy) {
  const cudaMemcpy3DParms& p = params.copyParams;
  if (params.flags != 0) return cudaErrorInvalidValue;
  if (p.srcArray != nullptr || p.dstArray != nullptr || p.extent.height != 1 || p.extent.depth != 1) {
    return cudaErrorNotSupported;
  }
  if (p.extent.width == 0 || p.srcPos.y != 0 || p.srcPos.z != 0 || p.dstPos.y != 0 || p.dstPos.z != 0) {
    return cudaErrorInvalidValue;
  }
  copy = {static_cast<char*>(p.dstPtr.ptr) + p.dstPos.x, static_cast<const char*>(p.srcPtr.ptr) + p.srcPos.x,
          p.extent.width, p.kind, nullptr};
  return check_copy(r, copy);
}

bool is_inside(cudaGraph_t graph, cudaGraph_t other) {
  for (; graph != other; graph = graph->owner->graph) {
    if (graph->owner == nullptr) return false;
  }
  return true;
}

cudaError_t check_child(Runtime& r, cudaGraph_t graph, const cudaChildGraphNodeParams& params) {
  if (!r.graphs.contains(params.graph)) return cudaErrorInvalidValue;
  if (params.graph->moved) return cudaErrorNotSupported;
  if (has_conditional(*params.graph)) return cudaErrorInvalidValue;
  if (params.ownership == cudaGraphChildGraphOwnershipClone) {
    return has_memory_nodes(*params.graph) ? cudaErrorNotSupported : cudaSuccess;
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
  const Handle* handle = find_handle(graph, params.handle);
  const unsigned most = params.type == cudaGraphCondTypeIf ? 2 : params.type == cudaGraphCondTypeWhile ? 1 : ~0u;
  if (handle == nullptr || handle->used || params.size == 0 || params.size > most) return cudaErrorInvalidValue;
  if (params.type < cudaGraphCondTypeIf || params.type > cudaGraphCondTypeSwitch) return cudaErrorInvalidValue;
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
  if (uses_memory && graph->moved) return cudaErrorNotSupported;
  switch (params.type) {
    case cudaGraphNodeTypeKernel:
      return prepare_kernel(r, params.kernel, work.emplace<KernelWork>());
    case cudaGraphNodeTypeMemcpy:
      return linear_copy(r, params.memcpy, work.emplace<CopyWork>());
    case cudaGraphNodeTypeMemset:
      work = FillWork{params.memset};
      if (params.memset.width == 0 || params.memset.height == 0) return cudaErrorInvalidValue;
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

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return api("cudaGraphCreate", [&](Runtime&, Lock&) -> cudaError_t {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = new CUgraph_st(nullptr);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || graph->owner != nullptr) return cudaErrorInvalidValue;
    for (const emu::CaptureRef& capture : r.captures) {
      if (capture->graph == graph) return cudaErrorInvalidValue;
    }
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before,
                             const cudaGraphEdgeData* data, size_t count, cudaGraphNodeParams* params) {
  return api("cudaGraphAddNode", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || params == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    for (const int reserved : params->reserved0) {
      if (reserved != 0) return cudaErrorInvalidValue;
    }
    if (params->reserved2 != 0) return cudaErrorInvalidValue;
    std::vector<emu::Edge> edges;
    cudaError_t code = emu::collect_edges(r, graph, before, data, count, params->type, edges);
    emu::Work work;
    if (code == cudaSuccess) code = emu::make_work(r, graph, *params, work);
    if (code != cudaSuccess) return code;
    std::unique_ptr<CUgraph_st> child;  // made before the node is there, as a graph may become a child of itself
    if (params->type == cudaGraphNodeTypeGraph) child = emu::make_child(params->graph);
    *out = emu::add_node(graph, std::make_shared<const emu::Work>(std::move(work)), edges);
    emu::finish_node(*out, std::move(child), *params);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* data, size_t count) {
  return api("cudaGraphAddDependencies", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || (count > 0 && (from == nullptr || to == nullptr))) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      if (!r.nodes.contains(to[i]) || to[i]->graph != graph || from[i] == to[i]) return cudaErrorInvalidValue;
      std::vector<emu::Edge> edge;
      const cudaGraphEdgeData* one = data == nullptr ? nullptr : data + i;
      if (emu::collect_edges(r, graph, from + i, one, 1, to[i]->type, edge) != cudaSuccess)
        return cudaErrorInvalidValue;
      for (const emu::Edge& known : to[i]->before) {
        if (known.node == from[i]) return cudaErrorInvalidValue;
      }
      for (size_t j = 0; j < i; ++j) {
        if (from[j] == from[i] && to[j] == to[i]) return cudaErrorInvalidValue;
      }
    }
    // All or nothing, hence the second pass.
    for (size_t i = 0; i < count; ++i)
      to[i]->before.push_back({from[i], data == nullptr ? cudaGraphEdgeData{} : data[i]});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* out, cudaGraph_t graph, unsigned value,
                                             unsigned flags) {
  return api("cudaGraphConditionalHandleCreate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    if (flags > cudaGraphCondAssignDefault) return cudaErrorInvalidValue;
    *out = r.next_handle++;
    graph->handles.push_back({*out, value, flags == cudaGraphCondAssignDefault});
    return cudaSuccess;
  });
}
