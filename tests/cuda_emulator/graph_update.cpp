// Changing an exec: by another graph, and node by node. Launches that are queued keep the old plan.
#include <cstdio>

#include "runtime.h"

namespace emu {
namespace {

// Null unless the exec was made from the node's graph.
const PlanPath* find_path(Runtime& r, const CUgraphExec_st& exec, cudaGraphNode_t node) {
  if (!r.nodes.contains(node)) return nullptr;
  const auto found = exec.paths.find(node);
  return found == exec.paths.end() ? nullptr : &found->second;
}

bool uses_priorities(const CUgraphExec_st& exec) { return (exec.flags & cudaGraphInstantiateFlagUseNodePriority) != 0; }

cudaError_t update(Runtime& r, CUgraphExec_st& exec, const CUgraph_st& graph, cudaGraphExecUpdateResultInfo& info) {
  info = cudaGraphExecUpdateResultInfo{};
  PlanError error;
  PlanRef plan = make_plan(r, graph, error, (exec.flags & cudaGraphInstantiateFlagDeviceLaunch) != 0);
  if (plan == nullptr) {
    info.result = cudaGraphExecUpdateError;
    info.errorNode = error.node;
    return cudaErrorGraphExecUpdateFailure;
  }
  if (exec.plan->has_updatable || plan->has_updatable) {
    info.result = cudaGraphExecUpdateErrorNotSupported;
    return explain(cudaErrorNotSupported,
                   "Whole-graph update of a graph with device-updatable kernel nodes not allowed");
  }
  plan = match_plans(*exec.plan, *plan, graph, uses_priorities(exec), info);
  if (info.result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
  // Nodes that were switched off stay off.
  for (const auto& [node, path] : exec.paths) {
    if (node_at(*exec.plan, path).enabled) continue;
    plan = edit_plan(plan, path, [](PlanNode& planned) { planned.enabled = false; });
  }
  exec.plan = plan;
  return cudaSuccess;
}

bool can_be_disabled(cudaGraphNodeType type) {
  return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset;
}

cudaError_t explain_type(cudaGraphNodeType type) {
  char why[40];
  std::snprintf(why, sizeof why, "Unsupported node type: %x", static_cast<unsigned>(type));
  return explain(cudaErrorInvalidValue, why);
}

// One node of a plan, as a plan of its own: the rules for updating an exec then hold for it.
Plan alone(const PlanNode& node) {
  Plan plan;
  plan.nodes.push_back(node);
  plan.nodes.front().before.clear();
  return plan;
}

cudaError_t set_params(Runtime& r, CUgraphExec_st& exec, const PlanPath& path, const cudaGraphNodeParams& params) {
  const PlanNode& old = node_at(*exec.plan, path);
  if (params.type != old.type) return explain(cudaErrorInvalidValue, "Parameter type does not match node type");
  switch (old.type) {
    case cudaGraphNodeTypeMemAlloc:
      return explain(cudaErrorNotSupported, "Cannot set parameters of instantiated memory allocation nodes");
    case cudaGraphNodeTypeMemFree:
    case cudaGraphNodeTypeConditional:
      return cudaErrorNotSupported;
    default:
      break;
  }
  // A graph for nothing but this node, which checks the parameters and gives a plan.
  CUgraph_st scratch(nullptr);
  Work work;
  if (const cudaError_t invalid = make_work(r, &scratch, params, work); invalid != cudaSuccess) return invalid;
  if (auto* kernel = std::get_if<KernelWork>(&work)) {
    const auto& before = std::get<KernelWork>(*old.work);
    kernel->attributes = before.attributes;  // parameters do not change them
    kernel->programmatic = before.programmatic;
  }
  const cudaGraphNode_t made = add_node(&scratch, std::make_shared<const Work>(std::move(work)), {});
  if (old.type == cudaGraphNodeTypeGraph) {
    made->bodies.push_back(std::make_unique<CUgraph_st>(made));
    clone_into(*params.graph.graph, *made->bodies.back());
  }
  PlanError error;
  const PlanRef plan = make_plan(r, scratch, error);
  if (plan == nullptr) return cudaErrorInvalidValue;
  cudaGraphExecUpdateResultInfo info;
  const PlanRef matched = match_plans(alone(old), *plan, scratch, uses_priorities(exec), info);
  if (matched == nullptr) return cudaErrorInvalidValue;
  exec.plan = edit_plan(exec.plan, path, [&](PlanNode& planned) {
    planned.work = matched->nodes.front().work;
    planned.bodies = matched->nodes.front().bodies;
  });
  return cudaSuccess;
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return api("cudaGraphExecUpdate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec) || !r.graphs.contains(graph) || info == nullptr) return cudaErrorInvalidValue;
    if (!graph->moved) return emu::update(r, *exec, *graph, *info);
    return emu::explain(cudaErrorInvalidValue,
                        "hGraph is owned by another graph and cannot be used in cuGraphExecUpdate");
  });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* params) {
  return api("cudaGraphExecNodeSetParams", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec) || params == nullptr) return cudaErrorInvalidValue;
    const emu::PlanPath* path = emu::find_path(r, *exec, node);
    return path == nullptr ? cudaErrorInvalidValue : emu::set_params(r, *exec, *path, *params);
  });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled) {
  return api("cudaGraphNodeSetEnabled", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec)) return cudaErrorInvalidValue;
    const emu::PlanPath* path = emu::find_path(r, *exec, node);
    if (path == nullptr) return cudaErrorInvalidValue;
    if (!emu::can_be_disabled(node->type)) return emu::explain_type(node->type);
    exec->plan = emu::edit_plan(exec->plan, *path, [&](emu::PlanNode& planned) { planned.enabled = enabled != 0; });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* enabled) {
  return api("cudaGraphNodeGetEnabled", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec) || enabled == nullptr) return cudaErrorInvalidValue;
    const emu::PlanPath* path = emu::find_path(r, *exec, node);
    if (path == nullptr || !emu::can_be_disabled(node->type)) return cudaErrorInvalidValue;
    *enabled = emu::node_at(*exec->plan, *path).enabled;
    return cudaSuccess;
  });
}
