// How plans differ, and copies of a plan with one node changed.
#include "runtime.h"

namespace emu {
namespace {

struct Comparison {
  bool priorities;  // of kernels are used
  cudaGraphExecUpdateResultInfo info{};
};

bool compare(const Plan& old, const Plan& now, const CUgraph_st& graph, Comparison& comparison);

bool refuse(Comparison& comparison, cudaGraphExecUpdateResult result, cudaGraphNode_t node,
            cudaGraphNode_t from = nullptr) {
  comparison.info.result = result;
  comparison.info.errorNode = node;
  comparison.info.errorFromNode = from;
  return false;
}

cudaLaunchAttributeValue attribute(const KernelWork& kernel, cudaLaunchAttributeID id) {
  const auto found = kernel.attributes.find(id);
  return found == kernel.attributes.end() ? cudaLaunchAttributeValue{} : found->second;
}

cudaGraphExecUpdateResult compare_work(const KernelWork& old, const KernelWork& now, bool priorities) {
  if (old.device != now.device) return cudaGraphExecUpdateErrorUnsupportedFunctionChange;
  const auto cooperative = [](const KernelWork& kernel) {
    return attribute(kernel, cudaLaunchAttributeCooperative).cooperative;
  };
  const auto priority = [](const KernelWork& kernel) {
    return attribute(kernel, cudaLaunchAttributePriority).priority;
  };
  if (cooperative(old) != cooperative(now)) return cudaGraphExecUpdateErrorAttributesChanged;
  if (priorities && priority(old) != priority(now)) return cudaGraphExecUpdateErrorAttributesChanged;
  return cudaGraphExecUpdateSuccess;
}

// Of a fill of one row, everything may change.
bool same_shape(const cudaMemsetParamsV2& a, const cudaMemsetParamsV2& b) {
  return a.height == b.height && (a.height <= 1 || (a.elementSize == b.elementSize && a.width == b.width));
}

cudaGraphExecUpdateResult compare_work(const Work& old, const Work& now, bool priorities) {
  if (const auto* kernel = std::get_if<KernelWork>(&old)) {
    return compare_work(*kernel, std::get<KernelWork>(now), priorities);
  }
  bool same = true;
  if (const auto* conditional = std::get_if<ConditionalWork>(&old)) {
    same = conditional->type == std::get<ConditionalWork>(now).type;
  } else if (const auto* fill = std::get_if<FillWork>(&old)) {
    same = same_shape(fill->params, std::get<FillWork>(now).params);
  } else if (const auto* copy = std::get_if<CopyWork>(&old)) {
    same = copy->kind == std::get<CopyWork>(now).kind;
  } else if (const auto* made = std::get_if<AllocWork>(&old)) {
    same = made->memory->bytes == std::get<AllocWork>(now).memory->bytes;
  }
  return same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorParametersChanged;
}

bool compare_node(const PlanNode& old, const PlanNode& now, const CUgraphNode_st& source, Comparison& comparison) {
  const auto node = const_cast<cudaGraphNode_t>(&source);
  if (old.before.size() != now.before.size()) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node);
  }
  if (old.type != now.type) return refuse(comparison, cudaGraphExecUpdateErrorNodeTypeChanged, node);
  if (old.bodies.size() != now.bodies.size()) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node);
  }
  for (std::size_t i = 0; i < old.before.size(); ++i) {
    if (old.before[i] == now.before[i]) continue;
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node, source.before[i].node);
  }
  const cudaGraphExecUpdateResult result = compare_work(*old.work, *now.work, comparison.priorities);
  if (result != cudaGraphExecUpdateSuccess) return refuse(comparison, result, node);
  for (std::size_t i = 0; i < old.bodies.size(); ++i) {
    if (!compare(*old.bodies[i], *now.bodies[i], *source.bodies[i], comparison)) return false;
  }
  return true;
}

// Nodes are paired by the order in which they were added.
bool compare(const Plan& old, const Plan& now, const CUgraph_st& graph, Comparison& comparison) {
  if (old.nodes.size() != now.nodes.size()) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, nullptr);
  }
  for (std::size_t i = 0; i < old.nodes.size(); ++i) {
    if (!compare_node(old.nodes[i], now.nodes[i], *graph.nodes[i], comparison)) return false;
  }
  return true;
}

void collect(const CUgraph_st& graph, const PlanPath& prefix, std::map<cudaGraphNode_t, PlanPath>& paths) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const CUgraphNode_st& node = *graph.nodes[i];
    PlanPath path = prefix;
    path.push_back(i);
    for (std::size_t b = 0; b < node.bodies.size(); ++b) {
      PlanPath inner = path;
      inner.push_back(b);
      collect(*node.bodies[b], inner, paths);
    }
    paths[graph.nodes[i].get()] = std::move(path);
  }
}

PlanRef edit_at(const PlanRef& plan, const PlanPath& path, std::size_t depth,
                const std::function<void(PlanNode&)>& edit) {
  auto copy = std::make_shared<Plan>(*plan);
  PlanNode& node = copy->nodes[path[depth]];
  if (depth + 1 == path.size()) {
    edit(node);
  } else {
    std::shared_ptr<const Plan>& body = node.bodies[path[depth + 1]];
    body = edit_at(body, path, depth + 2, edit);
  }
  return copy;
}

}  // namespace

cudaGraphExecUpdateResultInfo compare_plans(const Plan& old, const Plan& now, const CUgraph_st& graph,
                                            bool priorities) {
  Comparison comparison{priorities};
  if (compare(old, now, graph, comparison) && old.handles.size() != now.handles.size()) {
    refuse(comparison, cudaGraphExecUpdateErrorParametersChanged, nullptr);
  }
  return comparison.info;
}

std::map<cudaGraphNode_t, PlanPath> paths_of(const CUgraph_st& graph) {
  std::map<cudaGraphNode_t, PlanPath> paths;
  collect(graph, {}, paths);
  return paths;
}

const PlanNode& node_at(const Plan& plan, const PlanPath& path) {
  const PlanNode* node = &plan.nodes[path[0]];
  for (std::size_t i = 1; i + 1 < path.size(); i += 2) node = &node->bodies[path[i]]->nodes[path[i + 1]];
  return *node;
}

PlanRef edit_plan(const PlanRef& plan, const PlanPath& path, const std::function<void(PlanNode&)>& edit) {
  return edit_at(plan, path, 0, edit);
}

}  // namespace emu
