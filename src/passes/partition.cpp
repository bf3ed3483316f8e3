#include <algorithm>
#include <numeric>
#include <set>

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

// What the host drives runs beside the rest of the launch before it: that begins with what the next island waits for,
// and then has a mark, a step whose `number` is that island. Done before those islands that `wants` holds for.
template <class Wants>
void mark_islands(Plan& plan, std::vector<Island>& islands, int Step::*number, Wants&& wants) {
  std::vector<std::vector<int>> deps = dependencies(plan);
  const std::vector<Step> steps = plan.sequences[0].steps;
  std::vector<Step> marked;
  for (std::size_t i = 0; i < islands.size(); ++i) {
    Island& island = islands[i];
    std::vector<bool> leads(at(island.last - island.first), true);
    if (island.sunk && i + 1 < islands.size() && wants(islands[i + 1]))
      leads = leading_to_next(island, islands[i + 1], deps);
    auto first = static_cast<int>(marked.size());
    std::vector<Step> rest;
    bool is_work = false;
    int last_mark = island.last - 1;  // one that is there already: up to it the order stays
    while (last_mark >= island.first && steps[at(last_mark)].kind != StepKind::mark) --last_mark;
    for (int k = island.first; k < island.last; ++k) {
      bool is_first = k <= last_mark || leads[at(k - island.first)];
      (is_first ? marked : rest).push_back(steps[at(k)]);
      is_work = is_work || (!is_first && !touched(plan, steps[at(k)]).writes.empty());  // more than views
    }
    if (is_work) {
      marked.emplace_back().kind = StepKind::mark;
      marked.back().*number = static_cast<int>(i + 1);
    }
    marked.insert(marked.end(), rest.begin(), rest.end());
    island.first = first;
    island.last = static_cast<int>(marked.size());
  }
  plan.sequences[0].steps = std::move(marked);
}

// The islands of split_sink: those of sink, cut where ops on the host begin and end. The commit is part of the last.
void split_islands(Plan& plan, bool has_streams) {
  const auto& steps = plan.sequences[0].steps;
  auto is_between = [&](int i) { return is_on_host(plan, steps[at(i)]); };
  std::vector<std::size_t> last_piece;  // of each island
  for (const Island& island : plan.islands) {
    add_islands(plan.split_islands, island.first, island.last, [&](int i) { return island.sunk && !is_between(i); });
    last_piece.push_back(plan.split_islands.size() - 1);
  }
  if (plan.split_islands.size() == plan.islands.size()) return plan.split_islands.clear();
  if (has_streams) {
    auto wants = [&](const Island& next) { return is_between(next.first); };
    mark_islands(plan, plan.split_islands, &Step::split_island, wants);
  }
  std::size_t first_piece = 0;
  for (std::size_t i = 0; i < plan.islands.size(); ++i) {
    plan.islands[i].first = plan.split_islands[first_piece].first;
    plan.islands[i].last = plan.split_islands[last_piece[i]].last;
    first_piece = last_piece[i] + 1;
  }
  for (Step& step : plan.sequences[0].steps)  // what the host drives in both is one piece
    if (step.kind == StepKind::mark && step.island >= 0)
      step.split_island = static_cast<int>(last_piece[at(step.island)]);
}

}  // namespace

bool is_on_host(const Plan& plan, const Step& step) {
  return step.kind == StepKind::call && plan.nodes[at(step.node)].on_host;
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
    return !island.sunk && std::all_of(steps.begin() + island.first, steps.begin() + island.last,
                                       [&](const Step& step) { return device_of(plan, step) == 0; });
  };
  if (has_streams && plan.islands.size() > 1) mark_islands(plan, plan.islands, &Step::island, can_be_beside);
  split_islands(plan, has_streams);
  for (int i = 0; i < static_cast<int>(plan.sequences[0].steps.size()); ++i) {
    const Step& step = plan.sequences[0].steps[at(i)];
    if (step.island >= 0) plan.islands[at(step.island)].mark = i;
    if (step.split_island >= 0) plan.split_islands[at(step.split_island)].mark = i;
  }
  bool is_on_one_device = used_further_devices(plan).empty();
  plan.loop_over_steps =
      sinks_whole(plan) && plan.target().conditional_nodes && is_on_one_device && obstacle.node == nullptr;
  if (sinks_whole(plan) && !plan.target().conditional_nodes) {
    plan.reasons.push_back({"several steps take several launches", Where(), "this driver has no conditional nodes",
                            "one launch for each step", "use a driver of CUDA 12.8 or newer"});
  } else if (sinks_whole(plan) && !is_on_one_device) {
    plan.reasons.push_back({"several steps take several launches", Where(),
                            "the step runs on several devices, and a loop in a launch stays on one",
                            "one launch for each step", "remove the labels on_device(1) and so on"});
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
