// From an editable graph to the fixed form that is launched, and from there to operations.
#include <algorithm>
#include <unordered_map>

#include "profiler.h"
#include "runtime.h"

namespace emu {
namespace {

bool is_allowed_in_body(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
    case cudaGraphNodeTypeEmpty:
    case cudaGraphNodeTypeGraph:
    case cudaGraphNodeTypeMemset:
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeConditional:
      return true;
    default:
      return false;
  }
}

bool is_allowed_in_device_launch(cudaGraphNodeType type) {
  return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset ||
         type == cudaGraphNodeTypeGraph;
}

// The device itself runs bodies, so a copy in one needs memory the device can reach.
bool is_reachable_copy(Runtime& r, const Work& work) {
  const auto* copy = std::get_if<CopyWork>(&work);
  if (copy == nullptr) return true;
  return r.memory.place(copy->target) != Place::kPageable && r.memory.place(copy->source) != Place::kPageable;
}

bool has_cycle(const Plan& plan) {
  std::vector<std::size_t> missing(plan.nodes.size()), ready;
  std::vector<std::vector<std::size_t>> after(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    missing[i] = plan.nodes[i].before.size();
    for (const std::size_t b : plan.nodes[i].before) after[b].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  std::size_t reached = 0;
  while (!ready.empty()) {
    const std::size_t node = ready.back();
    ready.pop_back();
    ++reached;
    for (const std::size_t next : after[node]) {
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  return reached < plan.nodes.size();
}

// Where the nodes are, which decides what they may be.
struct Setting {
  bool in_body = false;
  bool device_launch = false;
  int* device = nullptr;  // that of the kernels met so far, -1 for none; null where any will do
};

constexpr auto kInvalid = cudaErrorInvalidValue;
constexpr const char* kOneContext = "All nodes within a device graph or conditional body must use the same context";

void explain_setting(cudaGraphNodeType type) {
  if (type == cudaGraphNodeTypeEmpty) {
    explain(kInvalid, "Empty nodes are not supported within device graphs");
  } else if (type == cudaGraphNodeTypeConditional) {
    explain(kInvalid, "Device graphs do not support conditional nodes");
  } else {
    explain(kInvalid,
            std::string("Device-launched graphs and conditional nodes do not support ") + type_name(type) + " nodes");
  }
}

cudaGraphInstantiateResult check_setting(Runtime& r, const CUgraphNode_st& node, const Setting& setting) {
  if ((setting.device_launch && !is_allowed_in_device_launch(node.type)) ||
      (setting.in_body && !is_allowed_in_body(node.type))) {
    explain_setting(node.type);
    return cudaGraphInstantiateNodeOperationNotSupported;
  }
  if (setting.in_body && !is_reachable_copy(r, *node.work)) {
    explain(kInvalid, "The memcpy source operand is not accessible from the chosen device");
    explain(kInvalid, "The memcopy node's operation is not supported from the node's context");
    explain(kInvalid, kOneContext);
    return cudaGraphInstantiateMultipleDevicesNotSupported;
  }
  const auto* kernel = std::get_if<KernelWork>(node.work.get());
  if (kernel == nullptr || setting.device == nullptr) return cudaGraphInstantiateSuccess;
  if (*setting.device < 0) *setting.device = kernel->device;
  if (*setting.device == kernel->device) return cudaGraphInstantiateSuccess;
  explain(kInvalid, kOneContext);
  return cudaGraphInstantiateMultipleDevicesNotSupported;
}

// What the graph around takes over from a child or a body.
void take_over(Plan& plan, const Plan& inner) {
  plan.handles.insert(plan.handles.end(), inner.handles.begin(), inner.handles.end());
  plan.has_conditional |= inner.has_conditional;
  plan.has_memory |= inner.has_memory;
  plan.has_updatable |= inner.has_updatable;
  plan.left.insert(plan.left.end(), inner.left.begin(), inner.left.end());
  plan.freed.insert(plan.freed.end(), inner.freed.begin(), inner.freed.end());
}

void note_memory(Plan& plan, const Work& work) {
  if (const auto* made = std::get_if<AllocWork>(&work)) plan.left.push_back(made->memory);
  if (const auto* freed = std::get_if<FreeWork>(&work)) plan.freed.push_back(freed->pointer);
  plan.has_memory |= std::holds_alternative<AllocWork>(work) || std::holds_alternative<FreeWork>(work);
}

// What is both allocated and freed inside concerns nobody else.
void settle_memory(Plan& plan) {
  std::erase_if(plan.left, [&](const GraphMemoryRef& memory) { return std::erase(plan.freed, memory->pointer) > 0; });
}

// What the node does. A kernel behind a programmatic edge may begin before the one in front has ended.
WorkRef work_of(const CUgraphNode_st& node) {
  const bool programmatic = std::any_of(node.before.begin(), node.before.end(), [](const Edge& edge) {
    return edge.data.type == cudaGraphDependencyTypeProgrammatic;
  });
  if (!programmatic) return node.work;
  KernelWork kernel = std::get<KernelWork>(*node.work);
  kernel.programmatic = true;
  return std::make_shared<const Work>(std::move(kernel));
}

std::shared_ptr<Plan> build(Runtime& r, const CUgraph_st& graph, const Setting& setting, PlanError& error) {
  auto plan = std::make_shared<Plan>();
  const auto refuse = [&](cudaGraphInstantiateResult result, cudaGraphNode_t node) {
    error = {result, node};
    return nullptr;
  };
  if (graph.spoiled) return refuse(cudaGraphInstantiateError, nullptr);
  plan->handles = graph.handles;
  plan->user_references = graph.user_references;
  std::unordered_map<cudaGraphNode_t, std::size_t> index;
  for (const auto& node : graph.nodes) index.emplace(node.get(), index.size());
  for (const auto& node : graph.nodes) {
    const cudaGraphInstantiateResult refused = check_setting(r, *node, setting);
    if (refused != cudaGraphInstantiateSuccess) return refuse(refused, node.get());
    PlanNode& planned = plan->nodes.emplace_back();
    planned.id = new_node_id();
    planned.type = node->type;
    planned.work = work_of(*node);
    for (const Edge& edge : node->before) planned.before.push_back(index.at(edge.node));
    const bool conditional = node->type == cudaGraphNodeTypeConditional;
    plan->has_conditional |= conditional;
    plan->has_updatable |= is_updatable(*node->work);
    note_memory(*plan, *node->work);
    int device = -1;  // all bodies of a node are on one
    const Setting body_setting{true, setting.device_launch, setting.device == nullptr ? &device : setting.device};
    for (const auto& body : node->bodies) {
      const std::shared_ptr<Plan> inner = build(r, *body, conditional ? body_setting : setting, error);
      if (inner == nullptr) return nullptr;
      take_over(*plan, *inner);
      planned.bodies.push_back(inner);
    }
  }
  settle_memory(*plan);
  if (has_cycle(*plan)) {
    explain(kInvalid, "Graph cycle detected");
    return refuse(cudaGraphInstantiateInvalidStructure, nullptr);
  }
  return plan;
}

// Which body runs now; null when the conditional is finished.
PlanRef choose_body(const ConditionalWork& conditional, const PlanNode& node, const Launch& launch, bool first) {
  const unsigned value = launch.values.at(conditional.handle);
  switch (conditional.type) {
    case cudaGraphCondTypeWhile:
      return value != 0 ? node.bodies[0] : nullptr;
    case cudaGraphCondTypeIf: {
      const std::size_t body = value != 0 ? 0 : 1;
      return first && body < node.bodies.size() ? node.bodies[body] : nullptr;
    }
    case cudaGraphCondTypeSwitch:
      return first && value < node.bodies.size() ? node.bodies[value] : nullptr;
  }
  return nullptr;
}

OpRef make_conditional(Runtime& r, const PlanRef& plan, std::size_t index, const std::shared_ptr<Launch>& launch) {
  auto op = std::make_shared<Op>();
  op->kind = OpKind::kConditional;
  op->expand = [&r, plan, index, launch, first = true](const OpRef& self) mutable {
    const PlanNode& node = plan->nodes[index];
    const PlanRef body = choose_body(std::get<ConditionalWork>(*node.work), node, *launch, first);
    first = false;
    if (body == nullptr) return true;
    r.executor.ask_again_after(expand_plan(r, body, nullptr, launch, self->wanted), self);
    return false;
  };
  return op;
}

OpRef make_start(Runtime& r, const PlanRef& plan, std::size_t index, const std::shared_ptr<Launch>& launch) {
  const PlanNode& node = plan->nodes[index];
  if (node.type == cudaGraphNodeTypeConditional) return make_conditional(r, plan, index, launch);
  return node.enabled ? make_op(node.work, node.id, launch->graph) : std::make_shared<Op>();
}

// What a wait node waits for: the event as it is when the graph is launched.
OpRef awaited(Runtime& r, const Work& work) {
  const auto* event = std::get_if<EventWork>(&work);
  if (event == nullptr || event->records || !r.events.contains(event->event)) return nullptr;
  return event->event->op;
}

void record_by(Runtime& r, const EventWork& work, const OpRef& op) {
  if (!work.records || !r.events.contains(work.event)) return;
  work.event->op = op;
  work.event->capture = nullptr;
  work.event->frontier.clear();
}

}  // namespace

PlanRef make_plan(Runtime& r, const CUgraph_st& graph, PlanError& error, bool device_launch) {
  int device = -1;
  const std::shared_ptr<Plan> plan = build(r, graph, {false, device_launch, device_launch ? &device : nullptr}, error);
  if (plan == nullptr) return nullptr;
  for (const Handle& handle : plan->handles) {
    if (handle.used) continue;
    explain(kInvalid, "The graph contains unused conditional handles");
    error = {cudaGraphInstantiateConditionalHandleUnused, nullptr};
    return nullptr;
  }
  return plan;
}

OpRef expand_plan(Runtime& r, const PlanRef& plan, const OpRef& begin, const std::shared_ptr<Launch>& launch,
                  bool wanted, std::function<void(const Op&)> record) {
  std::vector<OpRef> starts, ends;  // a child graph is two operations with its nodes in between
  std::vector<OpRef> all{begin};
  for (std::size_t i = 0; i < plan->nodes.size(); ++i) {
    const PlanNode& node = plan->nodes[i];
    starts.push_back(make_start(r, plan, i, launch));
    starts.back()->launch = launch;
    starts.back()->wanted = wanted;
    const bool child = node.type == cudaGraphNodeTypeGraph;
    ends.push_back(child ? std::make_shared<Op>() : starts.back());
  }
  // Submitted in an order that has each operation after those it waits for.
  std::vector<char> submitted(plan->nodes.size());
  const std::function<void(std::size_t)> submit = [&](std::size_t i) {
    if (submitted[i]) return;
    submitted[i] = 1;
    std::vector<OpRef> before{begin, awaited(r, *plan->nodes[i].work)};
    for (const std::size_t b : plan->nodes[i].before) {
      submit(b);
      before.push_back(ends[b]);
    }
    r.executor.submit(starts[i], before);
    if (const auto* event = std::get_if<EventWork>(plan->nodes[i].work.get())) record_by(r, *event, starts[i]);
    if (plan->nodes[i].type == cudaGraphNodeTypeGraph) {
      const OpRef inner = expand_plan(r, plan->nodes[i].bodies.front(), starts[i], launch, wanted);
      ends[i]->wanted = wanted;
      r.executor.submit(ends[i], {inner});
    }
    all.push_back(ends[i]);
  };
  for (std::size_t i = 0; i < plan->nodes.size(); ++i) submit(i);
  auto end = std::make_shared<Op>();
  end->wanted = wanted;
  end->record = std::move(record);
  r.executor.submit(end, all);
  return end;
}

}  // namespace emu
