// How plans differ, and copies of a plan with one node changed.
#include "runtime.h"

namespace emu {
namespace {

struct Comparison {
  bool priorities;  // of kernels are used
  cudaGraphExecUpdateResultInfo info{};
};

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

// The result, with what the error log says of it.
cudaGraphExecUpdateResult differs(cudaGraphExecUpdateResult result, std::string why) {
  explain(cudaErrorGraphExecUpdateFailure, std::move(why));
  return result;
}

cudaGraphExecUpdateResult compare_work(const KernelWork& old, const KernelWork& now, bool priorities) {
  if (old.device != now.device) return cudaGraphExecUpdateErrorUnsupportedFunctionChange;
  const auto cooperative = [](const KernelWork& kernel) {
    return attribute(kernel, cudaLaunchAttributeCooperative).cooperative;
  };
  const auto priority = [](const KernelWork& kernel) {
    return attribute(kernel, cudaLaunchAttributePriority).priority;
  };
  if (cooperative(old) != cooperative(now)) {
    return differs(cudaGraphExecUpdateErrorAttributesChanged,
                   "The cooperative attribute cannot change as part of a kernel node update");
  }
  if (priorities && priority(old) != priority(now)) {
    return differs(cudaGraphExecUpdateErrorAttributesChanged,
                   "Graph was instantiated to use priority attributes from each node. Therefore, the node priority "
                   "attribute cannot change as part of a kernel node update");
  }
  return cudaGraphExecUpdateSuccess;
}

// Of a fill of one row, everything but the number of rows may change.
cudaGraphExecUpdateResult compare_work(const cudaMemsetParamsV2& old, const cudaMemsetParamsV2& now) {
  if (old.height != now.height) {
    return differs(cudaGraphExecUpdateErrorParametersChanged,
                   "Memset height cannot be changed. Original: " + std::to_string(old.height) +
                       ", New: " + std::to_string(now.height));
  }
  if (old.height <= 1 || (old.elementSize == now.elementSize && old.width == now.width)) {
    return cudaGraphExecUpdateSuccess;
  }
  return differs(cudaGraphExecUpdateErrorParametersChanged,
                 "2d memsets only support updates to the address or assigned value");
}

// A copy of several rows cannot change, and none can become one.
cudaGraphExecUpdateResult compare_work(const CopyWork& old, const CopyWork& now) {
  if (old.kind != now.kind) {
    return differs(cudaGraphExecUpdateErrorParametersChanged,
                   "memcpy src operand memory type cannot be changed during an update");
  }
  const bool is_same = old.target == now.target && old.source == now.source && old.bytes == now.bytes &&
                       old.rows == now.rows && old.target_pitch == now.target_pitch &&
                       old.source_pitch == now.source_pitch;
  if (is_same || (old.rows <= 1 && now.rows <= 1)) return cudaGraphExecUpdateSuccess;
  return differs(cudaGraphExecUpdateErrorParametersChanged, "Only 1D memcpy nodes can be updated");
}

// Allocations may change in size.
cudaGraphExecUpdateResult compare_work(const Work& old, const Work& now, bool priorities) {
  if (const auto* kernel = std::get_if<KernelWork>(&old)) {
    return compare_work(*kernel, std::get<KernelWork>(now), priorities);
  }
  if (const auto* fill = std::get_if<FillWork>(&old)) {
    return compare_work(fill->params, std::get<FillWork>(now).params);
  }
  const auto* copy = std::get_if<CopyWork>(&old);
  return copy == nullptr ? cudaGraphExecUpdateSuccess : compare_work(*copy, std::get<CopyWork>(now));
}

// What cannot change of a conditional node, as the error log lists it; empty where nothing did.
std::string changed_parameters(const PlanNode& old, const PlanNode& now) {
  if (old.type != cudaGraphNodeTypeConditional) return "";
  const bool same_type = std::get<ConditionalWork>(*old.work).type == std::get<ConditionalWork>(*now.work).type;
  const bool same_size = old.bodies.size() == now.bodies.size();
  return std::string(same_type ? "" : "type ") + (same_size ? "" : "size ");
}

// Whether an edge to it is; it is taken for part of the topology.
bool is_programmatic(const Work& work) {
  const auto* kernel = std::get_if<KernelWork>(&work);
  return kernel != nullptr && kernel->programmatic;
}

bool compare_nodes(const PlanNode& old, const PlanNode& now, const CUgraphNode_st& source, Comparison& comparison) {
  const auto node = const_cast<cudaGraphNode_t>(&source);
  if (old.before.size() != now.before.size()) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node);
  }
  if (old.type != now.type) return refuse(comparison, cudaGraphExecUpdateErrorNodeTypeChanged, node);
  if (const std::string changed = changed_parameters(old, now); !changed.empty()) {
    const std::string why = "The conditional node parameters cannot be updated. Parameters changed: " + changed;
    return refuse(comparison, differs(cudaGraphExecUpdateErrorNotSupported, why), node);
  }
  if (old.bodies.size() != now.bodies.size()) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node);
  }
  if (is_programmatic(*old.work) != is_programmatic(*now.work)) {
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, node);
  }
  const cudaGraphExecUpdateResult result = compare_work(*old.work, *now.work, comparison.priorities);
  return result == cudaGraphExecUpdateSuccess || refuse(comparison, result, node);
}

std::vector<std::size_t> exits_of(const Plan& plan) {
  std::vector<char> has_dependents(plan.nodes.size());
  for (const PlanNode& node : plan.nodes) {
    for (const std::size_t b : node.before) has_dependents[b] = 1;
  }
  std::vector<std::size_t> exits;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (!has_dependents[i]) exits.push_back(i);
  }
  return exits;
}

// Which node of one plan is which of the other.
class Pairs {
 public:
  explicit Pairs(std::size_t count) : now_of_(count, kNone), old_of_(count, kNone) {}
  // False where one of them is paired with another node.
  bool add(std::size_t old, std::size_t now) {
    if (now_of_[old] == kNone && old_of_[now] == kNone) {
      now_of_[old] = now;
      old_of_[now] = old;
      found_.push_back(old);
    }
    return now_of_[old] == now;
  }
  // In the order in which they were found.
  const std::vector<std::size_t>& found() const { return found_; }
  std::size_t now_of(std::size_t old) const { return now_of_[old]; }
  std::size_t old_of(std::size_t now) const { return old_of_[now]; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> now_of_, old_of_, found_;
};

// Nodes that nothing depends on are paired by the order in which they were added, the others by the order of the edges
// of those that depend on them (cuda_runtime_api.h on cudaGraphExecUpdate). As all nodes of a plan lead to such an
// exit, plans without a difference are paired completely.
bool find_pairs(const Plan& old, const Plan& now, const CUgraph_st& graph, Comparison& comparison, Pairs& pairs) {
  const std::vector<std::size_t> old_exits = exits_of(old), now_exits = exits_of(now);
  if (now_exits.size() > old_exits.size()) {
    const cudaGraphNode_t more = graph.nodes[now_exits[old_exits.size()]].get();
    return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, more);
  }
  for (std::size_t i = 0; i < now_exits.size(); ++i) pairs.add(old_exits[i], now_exits[i]);
  for (std::size_t k = 0; k < pairs.found().size(); ++k) {
    const PlanNode& old_node = old.nodes[pairs.found()[k]];
    const std::size_t index = pairs.now_of(pairs.found()[k]);
    const PlanNode& now_node = now.nodes[index];
    if (!compare_nodes(old_node, now_node, *graph.nodes[index], comparison)) return false;
    for (std::size_t i = 0; i < old_node.before.size(); ++i) {
      if (pairs.add(old_node.before[i], now_node.before[i])) continue;
      return refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, graph.nodes[index].get(),
                    graph.nodes[index]->before[i].node);
    }
  }
  return true;
}

std::size_t count_edges(const Plan& plan) {
  std::size_t count = 0;
  for (const PlanNode& node : plan.nodes) count += node.before.size();
  return count;
}

// The work that a node has after the update. A kernel that asks for no cluster keeps the one it had, though it should
// run without: that is what a GPU does.
WorkRef updated_work(const PlanNode& old, const PlanNode& now) {
  const auto* before = std::get_if<KernelWork>(old.work.get());
  const auto* kernel = std::get_if<KernelWork>(now.work.get());
  if (before == nullptr || kernel == nullptr) return now.work;
  const auto cluster = before->attributes.find(cudaLaunchAttributeClusterDimension);
  if (cluster == before->attributes.end() || kernel->attributes.contains(cudaLaunchAttributeClusterDimension)) {
    return now.work;
  }
  KernelWork kept = *kernel;
  kept.attributes.insert(*cluster);
  return std::make_shared<const Work>(std::move(kept));
}

// The plan `now` with its nodes where `old` has those they are paired with; null where an exec cannot follow.
PlanRef match(const Plan& old, const Plan& now, const CUgraph_st& graph, Comparison& comparison) {
  // Where they differ in these numbers, no node is to blame.
  if (old.nodes.size() != now.nodes.size() || count_edges(old) != count_edges(now)) {
    refuse(comparison, cudaGraphExecUpdateErrorTopologyChanged, nullptr);
    return nullptr;
  }
  Pairs pairs(old.nodes.size());
  if (!find_pairs(old, now, graph, comparison, pairs)) return nullptr;
  auto matched = std::make_shared<Plan>(now);
  for (std::size_t i = 0; i < old.nodes.size(); ++i) {
    const std::size_t index = pairs.now_of(i);
    PlanNode& node = matched->nodes[i] = now.nodes[index];
    node.id = old.nodes[i].id;
    node.work = updated_work(old.nodes[i], node);
    for (std::size_t& b : node.before) b = pairs.old_of(b);
    for (std::size_t b = 0; b < node.bodies.size(); ++b) {
      node.bodies[b] = match(*old.nodes[i].bodies[b], *node.bodies[b], *graph.nodes[index]->bodies[b], comparison);
      if (node.bodies[b] == nullptr) return nullptr;
    }
  }
  return matched;
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

PlanRef match_plans(const Plan& old, const Plan& now, const CUgraph_st& graph, bool priorities,
                    cudaGraphExecUpdateResultInfo& info) {
  Comparison comparison{priorities};
  PlanRef matched = match(old, now, graph, comparison);
  if (matched != nullptr && old.handles.size() != now.handles.size()) {
    refuse(comparison, cudaGraphExecUpdateErrorParametersChanged, nullptr);
    matched = nullptr;
  }
  info = comparison.info;
  return matched;
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
