// Reading graphs back.
#include <algorithm>
#include <cstdio>
#include <random>
#include <unordered_map>

#include "runtime.h"

namespace emu {
namespace {

// CUDA promises no order of what these queries list. The order here depends on the seed and the graph, and stays the
// same from call to call while the graph does not change.
template <class T>
void put_in_any_order(Runtime& r, const CUgraph_st& graph, std::vector<T>& list) {
  std::mt19937_64 random(r.executor.seed() * 0x9E3779B97F4A7C15u + graph.number);
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random() % i]);
}

// CUDA's convention: a null array asks for the count; a longer array than needed is filled up with null.
cudaError_t give(const std::vector<cudaGraphNode_t>& found, cudaGraphNode_t* nodes, std::size_t* count) {
  if (count == nullptr) return cudaErrorInvalidValue;
  if (nodes != nullptr) {
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < found.size() ? found[i] : nullptr;
    *count = std::min(*count, found.size());
  } else {
    *count = found.size();
  }
  return cudaSuccess;
}

bool is_default(const cudaGraphEdgeData& data) { return data.from_port == 0 && data.to_port == 0 && data.type == 0; }

void print(std::FILE* file, const CUgraph_st& graph, const std::string& prefix) {
  std::unordered_map<cudaGraphNode_t, std::string> names;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const CUgraphNode_st& node = *graph.nodes[i];
    const std::string name = prefix + "_node_" + std::to_string(i);
    names[graph.nodes[i].get()] = name;
    std::fprintf(file, "\"%s\" [label=\"%zu %s\"];\n", name.c_str(), i, type_name(node.type));
    for (std::size_t b = 0; b < node.bodies.size(); ++b) {
      const std::string body = name + "_body_" + std::to_string(b);
      std::fprintf(file, "subgraph \"cluster_%s\" {\nlabel=\"body %zu of %s\";\n", body.c_str(), b, name.c_str());
      print(file, *node.bodies[b], body);
      std::fputs("}\n", file);
    }
  }
  for (const auto& node : graph.nodes) {
    for (const Edge& edge : node->before) {
      std::fprintf(file, "\"%s\" -> \"%s\";\n", names[edge.node].c_str(), names[node.get()].c_str());
    }
  }
}

// A query, allowed at any time.
template <class F>
CUresult ask(const char* name, F&& body) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const cudaError_t refused = enter_call(r, name, When::kHealthy);
  const CUresult code = refused != cudaSuccess ? static_cast<CUresult>(refused) : body(r);
  log_driver_error(r, name, code);
  leave_untracked(r, name, code);
  return code;
}

}  // namespace

const char* type_name(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return "KERNEL";
    case cudaGraphNodeTypeMemcpy:
      return "MEMCPY";
    case cudaGraphNodeTypeMemset:
      return "MEMSET";
    case cudaGraphNodeTypeHost:
      return "HOST";
    case cudaGraphNodeTypeGraph:
      return "GRAPH";
    case cudaGraphNodeTypeConditional:
      return "CONDITIONAL";
    case cudaGraphNodeTypeWaitEvent:
      return "EVENT_WAIT";
    case cudaGraphNodeTypeEventRecord:
      return "EVENT_RECORD";
    case cudaGraphNodeTypeMemAlloc:
      return "MEM_ALLOC";
    case cudaGraphNodeTypeMemFree:
      return "MEM_FREE";
    default:
      return "EMPTY";
  }
}

CUresult graph_kernel_node_get_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  return ask("cuGraphKernelNodeGetParams", [&](Runtime& r) -> CUresult {
    if (!r.nodes.contains(node) || params == nullptr || node->type != cudaGraphNodeTypeKernel)
      return CUDA_ERROR_INVALID_VALUE;
    const KernelWork& work = std::get<KernelWork>(*node->work);
    *params = {};
    params->func = reinterpret_cast<CUfunction>(const_cast<void*>(work.function));
    params->gridDimX = work.grid.x, params->gridDimY = work.grid.y, params->gridDimZ = work.grid.z;
    params->blockDimX = work.block.x, params->blockDimY = work.block.y, params->blockDimZ = work.block.z;
    params->sharedMemBytes = static_cast<unsigned>(work.shared_bytes);
    node->argument_handles.clear();
    for (const auto& argument : work.arguments)
      node->argument_handles.push_back(const_cast<std::byte*>(argument.data()));
    params->kernelParams = node->argument_handles.empty() ? nullptr : node->argument_handles.data();
    return CUDA_SUCCESS;
  });
}

// Alignments are not known here: parameters stand at multiples of the largest power of two in their size.
CUresult func_get_param_info(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return ask("cuFuncGetParamInfo", [&](Runtime& r) -> CUresult {
    const std::lock_guard guard(r.kernel_mutex);
    const auto kernel = r.kernels.find(reinterpret_cast<const void*>(function));
    if (kernel == r.kernels.end()) return CUDA_ERROR_INVALID_HANDLE;
    const KernelSignature& signature = kernel->second.signature;
    if (index >= signature.count) {
      return static_cast<CUresult>(explain(cudaErrorInvalidValue, "paramIndex " + std::to_string(index) +
                                                                      " outside of kernel parameter count " +
                                                                      std::to_string(signature.count)));
    }
    if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::size_t end = 0;
    for (size_t i = 0; i <= index; ++i) {
      const std::size_t size = signature.sizes[i];
      const std::size_t alignment = std::min<std::size_t>(size & (~size + 1), 16);
      *offset = (end + alignment - 1) / alignment * alignment;
      end = *offset + size;
    }
    if (bytes != nullptr) *bytes = signature.sizes[index];
    return CUDA_SUCCESS;
  });
}

// No node is given one.
CUresult kernel_get_param_info(CUkernel, size_t, size_t*, size_t*) {
  return ask("cuKernelGetParamInfo", [&](Runtime&) { return CUDA_ERROR_INVALID_HANDLE; });
}

CUresult func_get_name(const char** name, CUfunction function) {
  return ask("cuFuncGetName", [&](Runtime& r) -> CUresult {
    const std::lock_guard guard(r.kernel_mutex);
    if (name == nullptr || !r.kernels.contains(reinterpret_cast<const void*>(function)))
      return CUDA_ERROR_INVALID_VALUE;
    *name = symbol_of(reinterpret_cast<const void*>(function));
    return *name == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}

// No node is given one.
CUresult kernel_get_name(const char**, CUkernel) {
  return ask("cuKernelGetName", [&](Runtime&) { return CUDA_ERROR_INVALID_HANDLE; });
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api("cudaGraphGetNodes", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<cudaGraphNode_t> found;
    for (const auto& node : graph->nodes) found.push_back(node.get());
    emu::put_in_any_order(r, *graph, found);
    return emu::give(found, nodes, count);
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api("cudaGraphGetRootNodes", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<cudaGraphNode_t> found;
    for (const auto& node : graph->nodes) {
      if (node->before.empty()) found.push_back(node.get());
    }
    emu::put_in_any_order(r, *graph, found);
    return emu::give(found, nodes, count);
  });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                              size_t* count) {
  return api("cudaGraphGetEdges", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || count == nullptr || (from == nullptr) != (to == nullptr)) {
      return cudaErrorInvalidValue;
    }
    std::vector<std::pair<emu::Edge, cudaGraphNode_t>> found;
    for (const auto& node : graph->nodes) {
      for (const emu::Edge& edge : node->before) found.emplace_back(edge, node.get());
    }
    if (from == nullptr) {
      *count = found.size();
      return cudaSuccess;
    }
    emu::put_in_any_order(r, *graph, found);
    *count = std::min(*count, found.size());
    for (size_t i = 0; i < *count; ++i) {
      const auto& [edge, target] = found[i];
      if (data == nullptr && !emu::is_default(edge.data)) return cudaErrorLossyQuery;
      from[i] = edge.node;
      to[i] = target;
      if (data != nullptr) data[i] = edge.data;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return api("cudaGraphNodeGetType", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.nodes.contains(node) || type == nullptr) return cudaErrorInvalidValue;
    *type = node->type;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                         size_t* count) {
  return api("cudaGraphNodeGetDependencies", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.nodes.contains(node) || count == nullptr) return cudaErrorInvalidValue;
    std::vector<emu::Edge> edges = node->before;
    emu::put_in_any_order(r, *node->graph, edges);
    std::vector<cudaGraphNode_t> found;
    for (const emu::Edge& edge : edges) {
      if (nodes != nullptr && data == nullptr && !emu::is_default(edge.data)) return cudaErrorLossyQuery;
      if (nodes != nullptr && data != nullptr && found.size() < *count) data[found.size()] = edge.data;
      found.push_back(edge.node);
    }
    return emu::give(found, nodes, count);
  });
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  return api("cudaGraphChildGraphNodeGetGraph", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.nodes.contains(node) || graph == nullptr || node->type != cudaGraphNodeTypeGraph)
      return cudaErrorInvalidValue;
    *graph = node->bodies.front().get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  return api("cudaGraphDebugDotPrint", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || path == nullptr) return cudaErrorInvalidValue;
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) return cudaErrorOperatingSystem;
    std::fputs("digraph graph_0 {\n", file);
    emu::print(file, *graph, "graph_0");
    std::fputs("}\n", file);
    std::fclose(file);
    return cudaSuccess;
  });
}

namespace {

// The work of a node of this type, or an error.
template <class W, class F>
cudaError_t read_node(const char* name, cudaGraphNode_t node, cudaGraphNodeType type, const void* params, F&& read) {
  return api(name, [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.nodes.contains(node) || params == nullptr || node->type != type) return cudaErrorInvalidValue;
    read(std::get<W>(*node->work));
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* params) {
  return read_node<emu::CopyWork>("cudaGraphMemcpyNodeGetParams", node, cudaGraphNodeTypeMemcpy, params,
                                  [&](const emu::CopyWork& copy) {
                                    *params = {};
                                    params->dstPtr = {copy.target, copy.target_pitch, 0, 0};
                                    params->srcPtr = {const_cast<void*>(copy.source), copy.source_pitch, 0, 0};
                                    params->extent = {copy.bytes, copy.rows, 1};
                                    params->kind = copy.kind;
                                  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  return read_node<emu::FillWork>("cudaGraphMemsetNodeGetParams", node, cudaGraphNodeTypeMemset, params,
                                  [&](const emu::FillWork& fill) {
                                    *params = {fill.params.dst,         fill.params.pitch, fill.params.value,
                                               fill.params.elementSize, fill.params.width, fill.params.height};
                                  });
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* params) {
  return read_node<emu::HostWork>("cudaGraphHostNodeGetParams", node, cudaGraphNodeTypeHost, params,
                                  [&](const emu::HostWork& host) {
                                    *params = {host.function, host.data};
                                  });
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* params) {
  return read_node<emu::AllocWork>("cudaGraphMemAllocNodeGetParams", node, cudaGraphNodeTypeMemAlloc, params,
                                   [&](const emu::AllocWork& alloc) {
                                     *params = {};
                                     params->poolProps.allocType = cudaMemAllocationTypePinned;
                                     params->poolProps.location.type = cudaMemLocationTypeDevice;
                                     params->bytesize = alloc.memory->bytes;
                                     params->dptr = alloc.memory->pointer;
                                   });
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  return read_node<emu::FreeWork>("cudaGraphMemFreeNodeGetParams", node, cudaGraphNodeTypeMemFree, pointer,
                                  [&](const emu::FreeWork& free) { *static_cast<void**>(pointer) = free.pointer; });
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return read_node<emu::EventWork>("cudaGraphEventRecordNodeGetEvent", node, cudaGraphNodeTypeEventRecord, event,
                                   [&](const emu::EventWork& work) { *event = work.event; });
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return read_node<emu::EventWork>("cudaGraphEventWaitNodeGetEvent", node, cudaGraphNodeTypeWaitEvent, event,
                                   [&](const emu::EventWork& work) { *event = work.event; });
}
