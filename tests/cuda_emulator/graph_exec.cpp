// Instantiating and launching.
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

bool may_have_several_execs(const Plan& plan) {
  if (plan.has_conditional) {
    explain(cudaErrorNotSupported, "Graphs with conditional nodes cannot be instantiated more than once");
  } else if (plan.has_updatable) {
    explain(cudaErrorNotSupported,
            "Graphs with device-updatable kernel nodes nodes cannot be instantiated more than once");
  }
  return !plan.has_conditional && !plan.has_updatable && !plan.has_memory;
}

cudaError_t instantiate(Runtime& r, cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags,
                        PlanError& error) {
  error.result = cudaGraphInstantiateError;
  if (out == nullptr || !r.graphs.contains(graph) || !are_flags(flags)) return cudaErrorInvalidValue;
  if (graph->moved) {
    return explain(cudaErrorNotSupported, "hGraph is owned by another graph and cannot be independently instantiated");
  }
  if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
  for (const CaptureRef& capture : r.captures) {
    if (capture->graph == graph) return cudaErrorInvalidValue;
  }
  error.result = cudaGraphInstantiateSuccess;
  const PlanRef plan = make_plan(r, *graph, error, (flags & cudaGraphInstantiateFlagDeviceLaunch) != 0);
  if (plan == nullptr) return cudaErrorInvalidValue;
  if (*graph->live_execs > 0 && !may_have_several_execs(*plan)) {
    error.result = cudaGraphInstantiateError;
    return cudaErrorNotSupported;
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

// Which graph allocations live follows the order of the calls, as far as the program can tell.
cudaError_t account_memory(Runtime& r, const CUgraphExec_st& exec, Launch& launch) {
  const Plan& plan = *exec.plan;
  const bool auto_free = (exec.flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0;
  for (const GraphMemoryRef& memory : plan.left) {
    if (auto_free || !r.graph_allocations.contains(memory->pointer)) continue;
    return explain(cudaErrorInvalidValue,
                   "Attempting to launch a graph with unfreed allocation at address " + address_text(memory->pointer));
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
  // A launch becomes no child node: only cudaGraphAddNode makes those.
  if (const cudaError_t refused = refuse_captured(*stream); refused != cudaSuccess) return refused;
  auto state = std::make_shared<Launch>();
  state->graph = exec.id;
  state->plan = exec.plan;
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
    return emu::refuse_captured(*stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", [&](Runtime& r, Lock& lock) -> cudaError_t {
    return r.execs.contains(exec) ? emu::launch(r, lock, *exec, stream) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.execs.contains(exec)) return cudaErrorInvalidValue;
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    r.execs.erase(exec);
    --*exec->live_execs;
    delete exec;
    return cudaSuccess;
  });
}
