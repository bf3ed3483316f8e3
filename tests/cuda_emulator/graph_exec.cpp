// Instantiating, launching and updating.
#include "profiler.h"
#include "runtime.h"

namespace emu {
namespace {

constexpr unsigned kUndefinedCondition = 0xDEADBEEF;

constexpr unsigned long long kLaunchFlags = cudaGraphInstantiateFlagAutoFreeOnLaunch |
                                            cudaGraphInstantiateFlagDeviceLaunch |
                                            cudaGraphInstantiateFlagUseNodePriority;

bool are_flags(unsigned long long flags) {
  constexpr unsigned long long kEither =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagDeviceLaunch;
  return (flags & ~kLaunchFlags) == 0 && (flags & kEither) != kEither;
}

cudaError_t instantiate(Runtime& r, cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags,
                        PlanError& error) {
  error.result = cudaGraphInstantiateError;
  if (out == nullptr || !r.graphs.contains(graph) || !are_flags(flags)) return cudaErrorInvalidValue;
  if (graph->moved) return cudaErrorNotSupported;
  if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
  for (const CaptureRef& capture : r.captures) {
    if (capture->graph == graph) return cudaErrorInvalidValue;
  }
  error.result = cudaGraphInstantiateSuccess;
  const PlanRef plan = make_plan(r, *graph, error, (flags & cudaGraphInstantiateFlagDeviceLaunch) != 0);
  if (plan == nullptr) return cudaErrorInvalidValue;
  const bool once = plan->has_conditional || plan->has_memory || plan->has_updatable;
  if (once && *graph->live_execs > 0) {
    error.result = cudaGraphInstantiateError;
    return plan->has_memory ? cudaErrorNotSupported : cudaErrorInvalidValue;
  }
  auto* exec = new CUgraphExec_st;
  exec->id = new_graph_id();
  exec->plan = plan;
  exec->flags = flags;
  exec->paths = paths_of(*graph);
  exec->live_execs = graph->live_execs;
  ++*exec->live_execs;
  r.execs.insert(exec);
  announce_clones(*graph, *plan);
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
  if (exec.plan->has_conditional || exec.plan->has_memory) {
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

// Which graph allocations live follows the order of the calls, as far as the program can tell.
cudaError_t account_memory(Runtime& r, const CUgraphExec_st& exec, Launch& launch) {
  const Plan& plan = *exec.plan;
  const bool auto_free = (exec.flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0;
  for (const GraphMemoryRef& memory : plan.left) {
    if (!auto_free && r.graph_allocations.contains(memory->pointer)) return cudaErrorInvalidValue;
  }
  for (void* pointer : plan.freed) {
    if (!r.graph_allocations.contains(pointer)) return cudaErrorInvalidValue;
  }
  for (void* pointer : plan.freed) launch.freed.push_back(r.graph_allocations.extract(pointer).mapped());
  for (const GraphMemoryRef& memory : plan.left) r.graph_allocations[memory->pointer] = memory;
  return cudaSuccess;
}

cudaError_t launch(Runtime& r, Lock& lock, CUgraphExec_st& exec, cudaStream_t handle) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (active_capture(*stream) != nullptr) return capture_launch(*stream, exec);
  auto state = std::make_shared<Launch>();
  state->graph = exec.id;
  if (const cudaError_t invalid = account_memory(r, exec, *state); invalid != cudaSuccess) return invalid;
  for (const Handle& condition : exec.plan->handles) {
    state->values[condition.id] = condition.assign_default ? condition.value : kUndefinedCondition;
  }
  // An exec never runs twice at once.
  auto begin = std::make_shared<Op>();
  append(r, *stream, begin, {exec.tail});
  exec.tail = expand_plan(r, exec.plan, begin, state, false, record_of_launch(begin, exec.id));
  stream->tail = exec.tail;
  r.executor.run_ahead(lock);
  return cudaSuccess;
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
    emu::PlanError error;
    const auto flags = params->flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUpload);
    const cudaError_t code = emu::instantiate(r, out, graph, flags, error);
    params->result_out = error.result;
    params->errNode_out = error.node;
    return code;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return api("cudaGraphInstantiate", [&](Runtime& r, Lock&) -> cudaError_t {
    emu::PlanError error;
    return emu::instantiate(r, out, graph, flags, error);
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

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (r.execs.erase(exec) == 0) return cudaErrorInvalidValue;
    --*exec->live_execs;
    delete exec;
    return cudaSuccess;
  });
}
