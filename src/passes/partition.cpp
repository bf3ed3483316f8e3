#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// The first node that the step calls, itself or in its bodies, for which `holds` is true, or nullptr.
template <class Holds>
const PlanNode* find_node(const Plan& plan, const Step& step, const Holds& holds) {
  if (step.kind == StepKind::call) {
    const PlanNode& node = plan.nodes[at(step.node)];
    return holds(node) ? &node : nullptr;
  }
  for (int sequence : step.sequences)
    for (const Step& inner : plan.sequences[at(sequence)].steps)
      if (const PlanNode* node = find_node(plan, inner, holds)) return node;
  return nullptr;
}

bool runs_on_host(const PlanNode& node) { return node.on_host; }

// What limits where a launch can hold the node. A CPU body is a host node there, whatever the traits of its op are.
OpTraits cuda_traits(const Plan& plan, const PlanNode& node) {
  bool runs_cpu_body = node.on_host || plan.target().id.kind == DeviceKind::cpu;
  return runs_cpu_body ? OpTraits() : node.op->traits;
}

// The first node that the body of a conditional node cannot hold, and why. No node: there is none.
struct Obstacle {
  const PlanNode* node = nullptr;
  std::string why, remedy;
};
Obstacle obstacle_in_body(const Plan& plan, const Step& step) {
  if (!plan.target().host_nodes_in_bodies) {
    if (const PlanNode* node = find_node(plan, step, runs_on_host))
      return {node, "runs on the host, and a conditional node may not hold host nodes", "give its OpDef a CUDA body"};
  }
  const PlanNode* node = find_node(plan, step, [&](const PlanNode& candidate) {
    OpTraits traits = cuda_traits(plan, candidate);
    return !traits.capturable || !traits.allowed_in_bodies;
  });
  if (node == nullptr) return {};
  return {node,
          node->op->traits.capturable ? "is declared as not allowed in the body of a conditional node"
                                      : "is declared as not capturable",
          "give it a CUDA body that only launches kernels, or move it out of the loop or branch"};
}

bool can_sink(Plan& plan, const Step& step) {
  if (step.kind == StepKind::call) {
    const PlanNode& node = plan.nodes[at(step.node)];
    if (cuda_traits(plan, node).capturable) return true;
    plan.reasons.push_back({std::string(node.op->name) + " is issued by the host", node.where,
                            "its OpDef declares it as not capturable", "one more launch",
                            "give it a CUDA body that only enqueues work on its stream"});
    return false;
  }
  if (step.sequences.empty()) return true;
  const char* what = step.kind == StepKind::loop ? "a loop" : "a branch";
  if (!plan.target().conditional_nodes) {
    plan.reasons.push_back({std::string(what) + " is driven by the host", Where(),
                            "this driver has no conditional nodes", "a wait for the predicate, and one more launch",
                            "use a driver of CUDA 12.8 or newer"});
    return false;
  }
  Obstacle obstacle = obstacle_in_body(plan, step);
  if (obstacle.node) {
    plan.reasons.push_back({std::string(what) + " is driven by the host", obstacle.node->where,
                            std::string(obstacle.node->op->name) + " in its body " + obstacle.why,
                            "a wait for each predicate, and one more launch", obstacle.remedy});
  }
  return obstacle.node == nullptr;
}

// The order of the schedule that takes the fewest islands, and within each the fewest changes between host and device:
// from the first step on, everything of one kind that can run does so before anything of the other. With two kinds this
// is the least number of changes, since whatever comes early never makes another step wait longer.
class Grouping {
 public:
  Grouping(const Plan& plan, const std::vector<bool>& sinks) : plan_(plan) {
    const auto& steps = plan.sequences[0].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) kind_.push_back({sinks[i], is_on_host(plan, steps[i])});
  }

  // Where each step of the new order is in the old one. The commit stays the end.
  std::vector<int> run() {
    std::vector<int> order(kind_.size());
    std::iota(order.begin(), order.end(), 0);
    bool is_uniform = std::all_of(kind_.begin(), kind_.end(), [&](const Kind& kind) { return kind == kind_[0]; });
    if (is_uniform) return order;
    auto first_commit = at(first_commit_step(plan_));
    deps_ = dependencies(plan_);
    users_.resize(kind_.size());
    for (std::size_t i = 0; i < first_commit; ++i) {
      waits_for_.push_back(deps_[i].size());
      for (int d : deps_[i]) users_[at(d)].push_back(static_cast<int>(i));
      if (deps_[i].empty()) ready(i);
    }
    for (std::size_t i = 0; i < first_commit; ++i) order[i] = take();
    return order;
  }

 private:
  struct Kind {
    bool sinks;
    bool is_on_host;
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  std::set<int>& ready_of(const Kind& kind) { return ready_[kind.sinks ? 1 : 0][kind.is_on_host ? 1 : 0]; }
  void ready(std::size_t i) { ready_of(kind_[i]).insert(static_cast<int>(i)); }

  // The next step: the first of the current kind, else of the current island, else any.
  int take() {
    if (ready_of(now_).empty()) now_.is_on_host = !now_.is_on_host;
    if (ready_of(now_).empty()) now_ = {!now_.sinks, false};
    if (ready_of(now_).empty()) now_.is_on_host = true;
    std::set<int>& candidates = ready_of(now_);
    int i = *candidates.begin();
    candidates.erase(candidates.begin());
    for (int user : users_[at(i)])
      if (--waits_for_[at(user)] == 0) ready(at(user));
    return i;
  }

  const Plan& plan_;
  std::vector<Kind> kind_;
  std::vector<std::vector<int>> deps_, users_;
  std::vector<std::size_t> waits_for_;
  std::set<int> ready_[2][2];  // by sinks, is_on_host; in the user's order
  Kind now_{true, false};
};

// Which steps of an island lead to the next one.
std::vector<bool> leading_to_next(const Island& island, const Island& next, const std::vector<std::vector<int>>& deps) {
  std::vector<bool> leads(at(next.last - island.first));
  for (int i = next.last - 1; i >= island.first; --i) {
    if (i < next.first && !leads[at(i - island.first)]) continue;
    for (int d : deps[at(i)])
      if (d >= island.first) leads[at(d - island.first)] = true;
  }
  return leads;
}

// Maximal runs of steps [first, last) of which one launch can hold all or none.
template <class Sinks>
void add_islands(std::vector<Island>& islands, int first, int last, Sinks&& sinks) {
  for (int i = first; i < last; ++i) {
    if (i == first || islands.back().sunk != sinks(i)) islands.push_back({i, i, sinks(i)});
    islands.back().last = i + 1;
  }
}

// Sets Island::after, as far as steps of these islands depend on each other.
void connect(std::vector<Island>& islands, const std::vector<std::vector<int>>& deps) {
  std::vector<int> island_of(deps.size(), -1);
  for (std::size_t i = 0; i < islands.size(); ++i) {
    Island& island = islands[i];
    std::set<int> after;
    for (int k = island.first; k < island.last; ++k) {
      island_of[at(k)] = static_cast<int>(i);
      for (int d : deps[at(k)])
        if (island_of[at(d)] >= 0) after.insert(island_of[at(d)]);
    }
    after.erase(static_cast<int>(i));
    island.after.assign(after.begin(), after.end());
  }
}

// A launch in two: what the island behind it waits for, and the rest.
struct Division {
  std::size_t island = 0;
  std::vector<Step> first, rest;
  std::size_t work = 0;  // steps of the rest that are more than views
};
Division divide(const Plan& plan, const std::vector<Island>& islands, std::size_t i,
                const std::vector<std::vector<int>>& deps) {
  const Island& island = islands[i];
  std::vector<bool> leads = leading_to_next(island, islands[i + 1], deps);
  Division result;
  result.island = i;
  for (int k = island.first; k < island.last; ++k) {
    const Step& step = plan.sequences[0].steps[at(k)];
    bool is_first = leads[at(k - island.first)];
    if (!is_first && !touched(plan, step).writes.empty()) ++result.work;
    (is_first ? result.first : result.rest).push_back(step);
  }
  return result;
}

// What the host drives is to run beside the launch before it. Each launch costs time, so only one is divided: that with
// the most work that an island behind it, for which `can_be_beside` holds, does not wait for.
template <class CanBeBeside>
void divide_launch(Plan& plan, std::vector<Island>& islands, const CanBeBeside& can_be_beside) {
  const std::vector<std::vector<int>> deps = dependencies(plan);
  Division best;
  for (std::size_t i = 0; i + 1 < islands.size(); ++i) {
    if (!islands[i].sunk || !can_be_beside(islands[i + 1])) continue;
    Division division = divide(plan, islands, i, deps);
    if (!division.first.empty() && division.work > best.work) best = std::move(division);
  }
  if (best.work == 0) return;
  Island& island = islands[best.island];
  auto middle = island.first + static_cast<int>(best.first.size());
  auto steps = plan.sequences[0].steps.begin();
  std::move(best.first.begin(), best.first.end(), steps + island.first);
  std::move(best.rest.begin(), best.rest.end(), steps + middle);
  Island rest{middle, island.last, true};
  island.last = middle;
  islands.insert(islands.begin() + static_cast<std::ptrdiff_t>(best.island) + 1, std::move(rest));
}

// Sets what depends on what, and what runs beside others.
template <class CanBeBeside>
void connect(const Plan& plan, std::vector<Island>& islands, const CanBeBeside& can_be_beside) {
  connect(islands, dependencies(plan));
  if (islands.back().last == static_cast<int>(plan.sequences[0].steps.size())) {  // the commit waits for everything
    islands.back().after.resize(islands.size() - 1);
    std::iota(islands.back().after.begin(), islands.back().after.end(), 0);
  }
  for (std::size_t i = 1; i < islands.size(); ++i) {
    const std::vector<int>& after = islands[i].after;
    bool needs_last = std::binary_search(after.begin(), after.end(), static_cast<int>(i) - 1);
    islands[i].beside = !needs_last && can_be_beside(islands[i]);
  }
}

// The parts of launches for split_sink, which ends a launch where an op on the host begins. The commit is part of the
// last launch.
void divide_at_host_ops(Plan& plan, bool has_streams) {
  auto is_host_op = [&](int i) { return is_on_host(plan, plan.sequences[0].steps[at(i)]); };
  for (Island& island : plan.islands) {
    if (!island.sunk) continue;
    std::vector<Island> parts;
    add_islands(parts, island.first, island.last, [&](int i) { return !is_host_op(i); });
    if (parts.size() < 2) continue;
    auto can_be_beside = [&](const Island& part) { return has_streams && is_host_op(part.first); };
    divide_launch(plan, parts, can_be_beside);
    connect(plan, parts, can_be_beside);
    island.parts = std::move(parts);
  }
}

}  // namespace

bool is_on_host(const Plan& plan, const Step& step) {
  return step.kind == StepKind::call && plan.nodes[at(step.node)].on_host;
}

std::vector<Island> split_islands(const Plan& plan) {
  std::vector<Island> result;
  std::vector<int> first;  // per island of the plan: the number of its first part
  for (const Island& island : plan.islands) {
    first.push_back(static_cast<int>(result.size()));
    std::vector<int> before;  // parts of the islands before
    for (int i : island.after) {
      int end = at(i) + 1 < first.size() ? first[at(i) + 1] : static_cast<int>(result.size());
      for (int part = first[at(i)]; part < end; ++part) before.push_back(part);
    }
    const std::span<const Island> parts = island.parts.empty() ? std::span(&island, 1) : std::span(island.parts);
    for (const Island& part : parts) {
      Island& added = result.emplace_back(part);
      added.after = before;
      if (island.parts.empty()) continue;
      for (int i : part.after) added.after.push_back(first.back() + i);
    }
  }
  return result.size() == plan.islands.size() ? std::vector<Island>() : result;
}

bool sinks_whole(const Plan& plan) { return plan.islands.size() == 1 && plan.islands[0].sunk; }

void partition(Plan& plan) {
  std::vector<Step>& steps = plan.sequences[0].steps;
  std::vector<bool> sinks;
  Obstacle obstacle;  // to a loop over steps in a launch
  for (const Step& step : steps) {
    sinks.push_back(can_sink(plan, step));
    if (!obstacle.node) obstacle = obstacle_in_body(plan, step);
  }
  std::vector<int> order = Grouping(plan, sinks).run();
  if (!std::is_sorted(order.begin(), order.end())) {
    std::vector<Step> ordered;
    for (int i : order) ordered.push_back(std::move(steps[at(i)]));
    steps = std::move(ordered);
  }
  add_islands(plan.islands, 0, static_cast<int>(steps.size()), [&](int i) { return sinks[at(order[at(i)])]; });
  bool has_streams = plan.target().max_streams > static_cast<int>(plan.devices.size());
  // What runs beside a launch is on a stream of the target.
  auto can_be_beside = [&](const Island& island) {
    return has_streams && !island.sunk &&
           std::all_of(steps.begin() + island.first, steps.begin() + island.last,
                       [&](const Step& step) { return device_of(plan, step) == 0; });
  };
  if (plan.islands.size() > 1) {
    divide_launch(plan, plan.islands, can_be_beside);
    connect(plan, plan.islands, can_be_beside);
  }
  divide_at_host_ops(plan, has_streams);
  bool is_on_one_device = used_further_devices(plan).empty();
  plan.loop_over_steps =
      sinks_whole(plan) && plan.target().conditional_nodes && is_on_one_device && obstacle.node == nullptr;
  if (sinks_whole(plan) && !plan.target().conditional_nodes) {
    plan.reasons.push_back({"several steps take several launches", Where(), "this driver has no conditional nodes",
                            "one launch for each step", "use a driver of CUDA 12.8 or newer"});
  } else if (sinks_whole(plan) && !is_on_one_device) {
    plan.reasons.push_back({"several steps take several launches", Where(),
                            "the step runs on several devices, and a loop in a launch stays on one",
                            "one launch for each step", "remove the placements on_device(1) and so on"});
  } else if (sinks_whole(plan) && obstacle.node && obstacle.node->on_host) {
    plan.reasons.push_back({"several steps take several launches", Where(),
                            "the step holds host nodes, and a loop in a launch may not", "one launch for each step",
                            "give every op a CUDA body"});
  } else if (sinks_whole(plan) && obstacle.node) {
    plan.reasons.push_back({"several steps take several launches", obstacle.node->where,
                            std::string(obstacle.node->op->name) + " " + obstacle.why, "one launch for each step",
                            "give it a CUDA body that only launches kernels"});
  }
}

}  // namespace graphsink
