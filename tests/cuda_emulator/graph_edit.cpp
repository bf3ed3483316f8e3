// Changing graphs: copies, removals, attributes of kernels.
#include <algorithm>

#include "runtime.h"

namespace emu {
namespace {

bool is_captured_into(Runtime& r, cudaGraph_t graph) {
  return std::any_of(r.captures.begin(), r.captures.end(),
                     [&](const CaptureRef& capture) { return capture->graph == graph; });
}

cudaError_t remove_node(Runtime& r, cudaGraphNode_t node) {
  CUgraph_st& graph = *node->graph;
  if (has_memory_nodes(graph)) {
    return explain(cudaErrorNotSupported,
                   "Node deletion is not supported in graphs with memory allocation or free nodes");
  }
  if (is_updatable(*node->work)) {
    return explain(cudaErrorNotSupported, "Cannot remove device-updatable kernel nodes");
  }
  if (is_captured_into(r, &graph)) return cudaErrorInvalidValue;
  for (const auto& other : graph.nodes) {
    std::erase_if(other->before, [&](const Edge& edge) { return edge.node == node; });
  }
  std::erase_if(graph.nodes, [&](const auto& other) { return other.get() == node; });
  return cudaSuccess;
}

bool is_in_conditional(const CUgraph_st& graph) {
  for (cudaGraphNode_t owner = graph.owner; owner != nullptr; owner = owner->graph->owner) {
    if (owner->type == cudaGraphNodeTypeConditional) return true;
  }
  return false;
}

auto find_edge(cudaGraphNode_t from, cudaGraphNode_t to) {
  return std::find_if(to->before.begin(), to->before.end(), [&](const Edge& edge) { return edge.node == from; });
}

bool is_kernel(Runtime& r, cudaGraphNode_t node) {
  return r.nodes.contains(node) && node->type == cudaGraphNodeTypeKernel;
}

bool is_node_attribute(cudaLaunchAttributeID id) {
  switch (id) {
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributeCooperative:
    case cudaLaunchAttributeClusterDimension:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributeDeviceUpdatableKernelNode:
    case cudaLaunchAttributeNvlinkUtilCentricScheduling:
      return true;
    default:
      return false;
  }
}

bool is_attribute_value(cudaLaunchAttributeID id, const cudaLaunchAttributeValue& value) {
  if (id != cudaLaunchAttributeAccessPolicyWindow) return true;
  const cudaAccessPolicyWindow& window = value.accessPolicyWindow;
  return window.num_bytes <= kMaxAccessPolicyWindow && window.hitRatio >= 0.0f && window.hitRatio <= 1.0f &&
         window.hitProp >= cudaAccessPropertyNormal && window.hitProp <= cudaAccessPropertyPersisting &&
         (window.missProp == cudaAccessPropertyNormal || window.missProp == cudaAccessPropertyStreaming);
}

// Plans keep the work they were made with.
void change_attributes(cudaGraphNode_t node, const std::function<void(KernelWork&)>& change) {
  Work work = *node->work;
  change(std::get<KernelWork>(work));
  node->work = std::make_shared<const Work>(std::move(work));
}

}  // namespace

bool is_updatable(const Work& work) {
  const auto* kernel = std::get_if<KernelWork>(&work);
  if (kernel == nullptr) return false;
  const auto found = kernel->attributes.find(cudaLaunchAttributeDeviceUpdatableKernelNode);
  return found != kernel->attributes.end() && found->second.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphClone(cudaGraph_t* out, cudaGraph_t graph) {
  return api("cudaGraphClone", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    if (emu::has_memory_nodes(*graph)) {
      return emu::explain(cudaErrorNotSupported,
                          "Cloning is not supported for graphs containing memory allocation or free nodes");
    }
    if (emu::has_conditional(*graph) || emu::is_in_conditional(*graph)) {
      return emu::explain(cudaErrorNotSupported,
                          "Cloning is not supported for graphs containing or contained within a conditional node");
    }
    *out = new CUgraph_st(nullptr);
    emu::clone_into(*graph, **out);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return api("cudaGraphDestroyNode", [&](Runtime& r, Lock&) -> cudaError_t {
    return r.nodes.contains(node) ? emu::remove_node(r, node) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData*, size_t count) {
  return api("cudaGraphRemoveDependencies", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || (count > 0 && (from == nullptr || to == nullptr))) return cudaErrorInvalidValue;
    if (emu::has_memory_nodes(*graph)) {
      return emu::explain(cudaErrorNotSupported,
                          "Graph contains allocation and/or free nodes and therefore cannot have edges deleted");
    }
    for (size_t i = 0; i < count; ++i) {
      if (!r.nodes.contains(to[i]) || to[i]->graph != graph) return cudaErrorInvalidValue;
      if (emu::find_edge(from[i], to[i]) == to[i]->before.end()) return cudaErrorInvalidValue;
    }
    for (size_t i = 0; i < count; ++i) {
      const auto edge = emu::find_edge(from[i], to[i]);
      if (edge != to[i]->before.end()) to[i]->before.erase(edge);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            cudaLaunchAttributeValue* value) {
  return api("cudaGraphKernelNodeGetAttribute", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!emu::is_kernel(r, node) || !emu::is_node_attribute(id) || value == nullptr) return cudaErrorInvalidValue;
    const auto& attributes = std::get<emu::KernelWork>(*node->work).attributes;
    const auto found = attributes.find(id);
    *value = found == attributes.end() ? cudaLaunchAttributeValue{} : found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            const cudaLaunchAttributeValue* value) {
  return api("cudaGraphKernelNodeSetAttribute", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!emu::is_kernel(r, node) || !emu::is_node_attribute(id) || value == nullptr) return cudaErrorInvalidValue;
    if (!emu::is_attribute_value(id, *value)) return cudaErrorInvalidValue;
    const bool opts_out =
        id == cudaLaunchAttributeDeviceUpdatableKernelNode && value->deviceUpdatableKernelNode.deviceUpdatable == 0;
    if (opts_out && emu::is_updatable(*node->work)) {
      return emu::explain(cudaErrorNotSupported, "Cannot opt-out of device node update once opted in");
    }
    emu::change_attributes(node, [&](emu::KernelWork& kernel) { kernel.attributes[id] = *value; });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
  return api("cudaGraphKernelNodeCopyAttributes", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!emu::is_kernel(r, to) || !emu::is_kernel(r, from)) return cudaErrorInvalidValue;
    if (emu::is_updatable(*to->work) || emu::is_updatable(*from->work)) {
      return emu::explain(cudaErrorNotSupported, "Attributes cannot be copied to/from a device-updatable node");
    }
    emu::change_attributes(
        to, [&](emu::KernelWork& kernel) { kernel.attributes = std::get<emu::KernelWork>(*from->work).attributes; });
    return cudaSuccess;
  });
}
