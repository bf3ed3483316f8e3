// Instantiating, launching and updating.
#include "runtime.h"

namespace emu {
namespace {

constexpr unsigned kUndefinedCondition = 0xDEADBEEF;

cudaError_t instantiate(Runtime& r, cudaGraphExec_t* out, cudaGraph_t graph, PlanError& error) {
  error.result = cudaGraphInstantiateError;
  if (out == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
  if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
  for (const CaptureRef& capture : r.captures) {
    if (capture->graph == graph) return cudaErrorInvalidValue;
  }
  error.result = cudaGraphInstantiateSuccess;
  const PlanRef plan = make_plan(r, *graph, error);
  if (plan == nullptr) return cudaErrorInvalidValue;
  if (plan->has_conditional && *graph->live_execs > 0) {
    error.result = cudaGraphInstantiateError;
    return cudaErrorInvalidValue;
  }
  auto* exec = new CUgraphExec_st;
  exec->plan = plan;
  exec->live_execs = graph->live_execs;
  ++*exec->live_execs;
  r.execs.insert(exec);
  *out = exec;
  return cudaSuccess;
}

// A captured launch becomes a child node with the nodes of the exec.
void rebuild(const Plan& plan, CUgraph_st& graph) {
  for (const PlanNode& node : plan.nodes) {
    const cudaGraphNode_t copy = add_node(&graph, node.work, {});
    for (const PlanRef& body : node.bodies) {
      copy->bodies.push_back(std::make_unique<CUgraph_st>(copy));
      rebuild(*body, *copy->bodies.back());
    }
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    for (const std::size_t b : plan.nodes[i].before) graph.nodes[i]->before.push_back({graph.nodes[b].get(), {}});
  }
}

cudaError_t capture_launch(CUstream_st& stream, const CUgraphExec_st& exec) {
  const CaptureRef capture = active_capture(stream);
  if (exec.plan->has_conditional) {
    invalidate(*capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  const auto work = std::make_shared<const Work>(ChildWork{});
  const cudaGraphNode_t node = add_node(capture->graph, work, stream.frontier);
  node->bodies.push_back(std::make_unique<CUgraph_st>(node));
  rebuild(*exec.plan, *node->bodies.back());
  stream.frontier = {{node, {}}};
  return cudaSuccess;
}

cudaError_t launch(Runtime& r, Lock& lock, CUgraphExec_st& exec, cudaStream_t handle) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (active_capture(*stream) != nullptr) return capture_launch(*stream, exec);
  auto state = std::make_shared<Launch>();
  for (const Handle& condition : exec.plan->handles) {
    state->values[condition.id] = condition.assign_default ? condition.value : kUndefinedCondition;
  }
  // An exec never runs twice at once.
  auto begin = std::make_shared<Op>();
  append(r, *stream, begin, {exec.tail});
  exec.tail = expand_plan(r, exec.plan, begin, state, false);
  stream->tail = exec.tail;
  r.executor.run_ahead(lock);
  return cudaSuccess;
}

cudaGraphExecUpdateResult compare(const Plan& old, const Plan& now, const CUgraph_st& graph, cudaGraphNode_t& node);

cudaGraphExecUpdateResult compare_node(const PlanNode& old, const PlanNode& now, const CUgraphNode_st& source,
                                       cudaGraphNode_t& node) {
  if (old.type != now.type) return cudaGraphExecUpdateErrorNodeTypeChanged;
  if (old.before != now.before || old.bodies.size() != now.bodies.size()) {
    return cudaGraphExecUpdateErrorTopologyChanged;
  }
  if (const auto* before = std::get_if<ConditionalWork>(old.work.get())) {
    if (before->type != std::get<ConditionalWork>(*now.work).type) return cudaGraphExecUpdateErrorParametersChanged;
  }
  if (const auto* before = std::get_if<FillWork>(old.work.get())) {
    const cudaMemsetParamsV2& a = before->params;
    const cudaMemsetParamsV2& b = std::get<FillWork>(*now.work).params;
    const bool same_shape =
        a.height == b.height && a.elementSize == b.elementSize && (a.height <= 1 || a.width == b.width);
    if (!same_shape) return cudaGraphExecUpdateErrorParametersChanged;
  }
  if (const auto* before = std::get_if<CopyWork>(old.work.get())) {
    if (before->kind != std::get<CopyWork>(*now.work).kind) return cudaGraphExecUpdateErrorParametersChanged;
  }
  for (std::size_t i = 0; i < old.bodies.size(); ++i) {
    const cudaGraphExecUpdateResult result = compare(*old.bodies[i], *now.bodies[i], *source.bodies[i], node);
    if (result != cudaGraphExecUpdateSuccess) return result;
  }
  return cudaGraphExecUpdateSuccess;
}

// Nodes are paired by the order in which they were added.
cudaGraphExecUpdateResult compare(const Plan& old, const Plan& now, const CUgraph_st& graph, cudaGraphNode_t& node) {
  if (old.nodes.size() != now.nodes.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < old.nodes.size(); ++i) {
    const cudaGraphExecUpdateResult result = compare_node(old.nodes[i], now.nodes[i], *graph.nodes[i], node);
    if (result == cudaGraphExecUpdateSuccess) continue;
    if (node == nullptr) node = graph.nodes[i].get();
    return result;
  }
  return cudaGraphExecUpdateSuccess;
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return api("cudaGraphInstantiateWithParams", [&](Runtime& r, Lock&) -> cudaError_t {
    if (params == nullptr) return cudaErrorInvalidValue;
    constexpr unsigned long long kKnown = cudaGraphInstantiateFlagUpload | cudaGraphInstantiateFlagUseNodePriority;
    emu::PlanError error;
    const bool known = (params->flags & ~kKnown) == 0;
    const cudaError_t code = known ? emu::instantiate(r, out, graph, error) : cudaErrorNotSupported;
    params->result_out = known ? error.result : cudaGraphInstantiateError;
    params->errNode_out = error.node;
    return code;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return api("cudaGraphInstantiate", [&](Runtime& r, Lock&) -> cudaError_t {
    if ((flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUseNodePriority)) != 0) {
      return cudaErrorNotSupported;
    }
    emu::PlanError error;
    return emu::instantiate(r, out, graph, error);
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  return api("cudaGraphUpload", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec)) return cudaErrorInvalidValue;
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = emu::check_capture(r, *stream); refused != cudaSuccess) return refused;
    if (const emu::CaptureRef capture = emu::active_capture(*stream)) {
      emu::invalidate(*capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", [&](Runtime& r, Lock& lock) -> cudaError_t {
    return r.execs.contains(exec) ? emu::launch(r, lock, *exec, stream) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return api("cudaGraphExecUpdate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec) || !r.graphs.contains(graph) || info == nullptr) return cudaErrorInvalidValue;
    *info = cudaGraphExecUpdateResultInfo{};
    emu::PlanError error;
    const emu::PlanRef plan = emu::make_plan(r, *graph, error);
    if (plan == nullptr) {
      info->result = cudaGraphExecUpdateError;
      info->errorNode = error.node;
      return cudaErrorGraphExecUpdateFailure;
    }
    info->result = emu::compare(*exec->plan, *plan, *graph, info->errorNode);
    if (info->result == cudaGraphExecUpdateSuccess && exec->plan->handles.size() != plan->handles.size()) {
      info->result = cudaGraphExecUpdateErrorParametersChanged;
    }
    if (info->result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
    // Launches that are queued keep the old plan.
    exec->plan = plan;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (r.execs.erase(exec) == 0) return cudaErrorInvalidValue;
    --*exec->live_execs;
    delete exec;
    return cudaSuccess;
  });
}
