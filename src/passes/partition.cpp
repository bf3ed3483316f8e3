#include <algorithm>
#include <set>

#include "base/at.h"
#include "passes/exchanges.h"
#include "passes/islands.h"
#include "passes/obstacle.h"
#include "passes/passes.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// Why a loop whose body cannot be a conditional node is not unrolled either.
std::string not_unrolled(const PlanControl& loop) {
  if (loop.iterations < 0) return "; how often it runs is not known when the plan is made";
  if (loop.iterations > kMostUnrolled)
    return "; its " + std::to_string(loop.iterations) + " iterations are more than the " +
           std::to_string(kMostUnrolled) + " that are unrolled";
  return "";
}

// Whether a launch can hold the task. If not, the plan gets the reason.
bool can_sink(Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) {
    const PlanNode& node = plan.nodes[at(task.node)];
    if (launch_traits(plan.target(), *node.op, node.on_host).capturable) return true;
    plan.reasons.push_back({std::string(node.op->name) + " is issued by the host", node.where,
                            "its OpDef declares it as not capturable", "one more launch",
                            "give it a CUDA body that only enqueues work on its stream"});
    return false;
  }
  if (task.bodies.empty()) return true;
  const PlanControl& control = plan.controls[at(task.control)];
  Reason reason{"", control.where, "", "a wait for each predicate, and one more launch", ""};
  if (!plan.target().conditional_nodes) {
    reason.why = "this driver has no conditional nodes";
    reason.remedy = "use a driver of CUDA 12.8 or newer";
  } else if (Obstacle obstacle = obstacle_in_body(plan, task); obstacle.op) {
    reason.why = rule_text(obstacle);
    reason.remedy = obstacle.remedy;
  } else {
    return true;
  }
  const bool is_loop = task.kind == TaskKind::loop;
  reason.what = std::string(is_loop                         ? "a loop"
                            : task.kind == TaskKind::branch ? "a branch"
                                                            : "a switch_") +
                " is driven by the host";
  if (is_loop) reason.why += not_unrolled(control);
  plan.reasons.push_back(std::move(reason));
  plan.controls[at(task.control)].reason = static_cast<int>(plan.reasons.size()) - 1;
  return false;
}

// Orders the schedule, or the tasks of a body, so that there are the fewest islands, and in each island the fewest
// changes between host and device.
// From the first task on, all tasks of one kind that are ready run before any task of the other kind. With two kinds
// this gives the least number of changes, because running a task earlier never delays another task.
class Grouping {
 public:
  // `sinks[id]` tells whether a launch can hold task `id` of the sequence.
  Grouping(const Plan& plan, int sequence, const std::vector<bool>& sinks)
      : tasks_(plan.sequences[at(sequence)].tasks), kinds_(plan.tasks.size()) {
    for (int id : tasks_) kinds_[at(id)] = {sinks[at(id)], is_on_host(plan, plan.tasks[at(id)])};
  }

  bool is_uniform() const {
    return std::all_of(tasks_.begin(), tasks_.end(), [&](int id) { return kinds_[at(id)] == kinds_[at(tasks_[0])]; });
  }

  // Returns the ids of the sequence in their new order. Task `last` and those behind it stay at the end; -1: all move.
  std::vector<int> order(const Dependencies& deps, int last) {
    std::vector<int> order = tasks_;
    auto commit = std::find(order.begin(), order.end(), last);
    users_.resize(kinds_.size());
    waits_for_.resize(kinds_.size());
    for (auto id = order.begin(); id != commit; ++id) {
      waits_for_[at(*id)] = deps[at(*id)].size();
      for (int d : deps[at(*id)]) users_[at(d)].push_back(*id);
      if (deps[at(*id)].empty()) ready(*id);
    }
    for (auto id = order.begin(); id != commit; ++id) *id = take();
    return order;
  }

 private:
  struct Kind {
    bool sinks = true;
    bool is_on_host = false;
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  std::set<int>& ready_of(const Kind& kind) { return ready_[kind.sinks ? 1 : 0][kind.is_on_host ? 1 : 0]; }
  void ready(int id) { ready_of(kinds_[at(id)]).insert(id); }

  // Returns the next task: the first ready task of the current kind, else of the current island, else any.
  int take() {
    if (ready_of(now_).empty()) now_.is_on_host = !now_.is_on_host;
    if (ready_of(now_).empty()) now_ = {!now_.sinks, false};
    if (ready_of(now_).empty()) now_.is_on_host = true;
    std::set<int>& candidates = ready_of(now_);
    int id = *candidates.begin();
    candidates.erase(candidates.begin());
    for (int user : users_[at(id)])
      if (--waits_for_[at(user)] == 0) ready(user);
    return id;
  }

  const std::vector<int>& tasks_;  // ids of the tasks of the sequence
  std::vector<Kind> kinds_;        // by task id
  Dependencies users_;
  std::vector<std::size_t> waits_for_;
  std::set<int> ready_[2][2];  // [sinks][is_on_host]; each in the order in which the tasks were created
  Kind now_;
};

// Numbers the tasks in the order of the schedule. A branch or loop comes before the tasks of its bodies.
class Numbering {
 public:
  explicit Numbering(Plan& plan) : plan_(plan) {}

  void run() {
    order_.reserve(plan_.tasks.size());
    collect(plan_.sequences[0]);
    if (order_.size() == plan_.tasks.size() && std::is_sorted(order_.begin(), order_.end())) return;
    new_ids_.resize(plan_.tasks.size());
    std::vector<Task> tasks;
    for (int id : order_) {
      new_ids_[at(id)] = static_cast<int>(tasks.size());
      tasks.push_back(std::move(plan_.tasks[at(id)]));
    }
    plan_.tasks = std::move(tasks);
    for (Sequence& sequence : plan_.sequences) {
      renumber(sequence.tasks);
      for (Island& island : sequence.islands) renumber(island.tasks);
    }
    for (Island& island : plan_.islands) {
      renumber(island.tasks);
      for (Island& part : island.parts) renumber(part.tasks);
    }
  }

 private:
  void collect(const Sequence& sequence) {
    for (int id : sequence.tasks) {
      order_.push_back(id);
      for (int body : plan_.tasks[at(id)].bodies) collect(plan_.sequences[at(body)]);
    }
  }

  void renumber(std::vector<int>& tasks) const {
    for (int& id : tasks) id = new_ids_[at(id)];
  }

  Plan& plan_;
  std::vector<int> order_;    // the old task ids, in the new order
  std::vector<int> new_ids_;  // by old id
};

// Whether an island in a body becomes a launch. One of a single node would save no call. A collective of the device is
// a launch also where it stands alone: other ranks may have more ops there, and it is captured on all ranks or on none.
bool is_worth_a_launch(const Plan& plan, const Island& island) {
  const Task& first = plan.tasks[at(island.tasks[0])];
  return island.tasks.size() > 1 || !first.bodies.empty() || is_exchange(plan, first);
}

// Divides the bodies of a task that the host drives into launches and what the host issues, and likewise the bodies of
// tasks in them. `sinks` is memory for a flag of each task of the plan; those outside of these bodies do not change.
void divide_bodies(Plan& plan, const Task& task, std::vector<bool>& sinks) {
  auto is_sunk = [&](int id) { return sinks[at(id)]; };
  for (int sequence : task.bodies) {
    std::vector<int>& tasks = plan.sequences[at(sequence)].tasks;
    for (int id : tasks) {
      sinks[at(id)] = can_sink(plan, plan.tasks[at(id)]);
      if (!sinks[at(id)]) divide_bodies(plan, plan.tasks[at(id)], sinks);
    }
    if (!std::all_of(tasks.begin(), tasks.end(), is_sunk))
      tasks = Grouping(plan, sequence, sinks).order(dependencies(plan, sequence), -1);
    for (const Island& island : runs_of(tasks, is_sunk))
      if (!is_worth_a_launch(plan, island))
        for (int id : island.tasks) sinks[at(id)] = false;
    if (std::any_of(tasks.begin(), tasks.end(), is_sunk))
      plan.sequences[at(sequence)].islands = runs_of(tasks, is_sunk);
  }
}

// Decides which tasks each launch holds, and thus the final order of the schedule.
void make_islands(Plan& plan) {
  std::vector<bool> sinks(plan.tasks.size());
  for (int id : plan.sequences[0].tasks) {
    const Task& task = plan.tasks[at(id)];
    sinks[at(id)] = can_sink(plan, task);
    if (!sinks[at(id)]) divide_bodies(plan, task, sinks);
  }
  std::vector<int>& schedule = plan.sequences[0].tasks;
  auto is_sunk = [&](int id) { return sinks[at(id)]; };
  Grouping grouping(plan, 0, sinks);
  if (grouping.is_uniform()) {
    plan.islands = runs_of(schedule, is_sunk);
    return;
  }
  const Dependencies deps = dependencies(plan);
  const int commit = first_commit_task(plan);
  const bool has_streams = plan.target().max_streams > static_cast<int>(plan.devices.size());
  schedule = grouping.order(deps, commit);
  plan.islands = runs_of(schedule, is_sunk);
  if (plan.islands.size() > 1) {
    // An island beside a launch runs on a stream of the target.
    auto can_be_beside = [&](const Island& island) {
      return has_streams && !island.sunk && std::all_of(island.tasks.begin(), island.tasks.end(), [&](int id) {
               return device_of(plan, plan.tasks[at(id)]) == 0;
             });
    };
    divide_launch(plan, plan.islands, deps, can_be_beside);
    connect(plan.islands, deps, commit, can_be_beside);
  }
  divide_at_host_ops(plan, deps, commit, has_streams);
  schedule.clear();
  for (const Island& island : plan.islands) schedule.insert(schedule.end(), island.tasks.begin(), island.tasks.end());
}

}  // namespace

void partition(Plan& plan) {
  if (advance_exchanges(plan)) Numbering(plan).run();
  make_islands(plan);
  Numbering(plan).run();
  plan.split_islands = split_islands(plan);
}

}  // namespace graphsink
