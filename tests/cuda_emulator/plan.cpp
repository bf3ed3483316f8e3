// From an editable graph to the fixed form that is launched, and from there to operations.
#include <algorithm>
#include <unordered_map>

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

std::shared_ptr<Plan> build(Runtime& r, const CUgraph_st& graph, bool in_body, PlanError& error) {
  auto plan = std::make_shared<Plan>();
  const auto refuse = [&](cudaGraphInstantiateResult result, cudaGraphNode_t node) {
    error = {result, node};
    return nullptr;
  };
  if (graph.spoiled) return refuse(cudaGraphInstantiateError, nullptr);
  plan->handles = graph.handles;
  std::unordered_map<cudaGraphNode_t, std::size_t> index;
  for (const auto& node : graph.nodes) index.emplace(node.get(), index.size());
  for (const auto& node : graph.nodes) {
    const bool allowed = is_allowed_in_body(node->type) && is_reachable_copy(r, *node->work);
    if (in_body && !allowed) return refuse(cudaGraphInstantiateError, node.get());
    PlanNode& planned = plan->nodes.emplace_back();
    planned.type = node->type;
    planned.work = node->work;
    for (const Edge& edge : node->before) planned.before.push_back(index.at(edge.node));
    const bool conditional = node->type == cudaGraphNodeTypeConditional;
    plan->has_conditional |= conditional;
    for (const auto& body : node->bodies) {
      const std::shared_ptr<Plan> inner = build(r, *body, in_body || conditional, error);
      if (inner == nullptr) return nullptr;
      plan->handles.insert(plan->handles.end(), inner->handles.begin(), inner->handles.end());
      plan->has_conditional |= inner->has_conditional;
      planned.bodies.push_back(inner);
    }
  }
  if (has_cycle(*plan)) return refuse(cudaGraphInstantiateInvalidStructure, nullptr);
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

}  // namespace

PlanRef make_plan(Runtime& r, const CUgraph_st& graph, PlanError& error) {
  const std::shared_ptr<Plan> plan = build(r, graph, false, error);
  if (plan == nullptr) return nullptr;
  for (const Handle& handle : plan->handles) {
    if (handle.used) continue;
    error = {cudaGraphInstantiateConditionalHandleUnused, nullptr};
    return nullptr;
  }
  return plan;
}

OpRef expand_plan(Runtime& r, const PlanRef& plan, const OpRef& begin, const std::shared_ptr<Launch>& launch,
                  bool wanted) {
  std::vector<OpRef> starts, ends;  // a child graph is two operations with its nodes in between
  std::vector<OpRef> all{begin};
  for (std::size_t i = 0; i < plan->nodes.size(); ++i) {
    const PlanNode& node = plan->nodes[i];
    starts.push_back(node.type == cudaGraphNodeTypeConditional ? make_conditional(r, plan, i, launch)
                                                               : make_op(node.work));
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
    std::vector<OpRef> before{begin};
    for (const std::size_t b : plan->nodes[i].before) {
      submit(b);
      before.push_back(ends[b]);
    }
    r.executor.submit(starts[i], before);
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
  r.executor.submit(end, all);
  return end;
}

}  // namespace emu
