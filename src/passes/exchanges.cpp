// Collectives of the target run beside the nodes that need nothing of them: those of the gradients of the last layers,
// for instance, beside the backward pass of the layers before.
#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "base/at.h"
#include "passes/exchanges.h"

namespace graphsink {
namespace {

// By id: the tasks that depend on each one, without those of the end, which depend on all.
std::vector<std::vector<int>> followers(const Plan& plan, const Dependencies& deps) {
  std::vector<std::vector<int>> result(plan.tasks.size());
  const int end = first_end_task(plan);
  for (int id : plan.sequences[0].tasks) {
    if (id == end) break;
    for (int before : deps[at(id)]) result[at(before)].push_back(id);
  }
  return result;
}

// By id: the number, in the order of the schedule, of the first collective that needs the task, or that it is; kNone
// for the other tasks.
constexpr int kNone = std::numeric_limits<int>::max();
std::vector<int> first_needing(const Plan& plan, const std::vector<std::vector<int>>& followers) {
  std::vector<int> result(plan.tasks.size(), kNone);
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  auto number = static_cast<int>(
      std::count_if(schedule.begin(), schedule.end(), [&](int id) { return is_exchange(plan, plan.tasks[at(id)]); }));
  for (auto id = schedule.rbegin(); id != schedule.rend(); ++id) {
    if (is_exchange(plan, plan.tasks[at(*id)])) result[at(*id)] = --number;
    for (int next : followers[at(*id)]) result[at(*id)] = std::min(result[at(*id)], result[at(next)]);
  }
  return result;
}

// Makes the new order. A task that collectives need comes with the first of these. All other tasks keep their places,
// or come as soon as those are there that they depend on. But tasks that wait for a collective, and that no collective
// needs, come behind all collectives, because their stream waits with them.
class Advance {
 public:
  Advance(const Plan& plan, const Dependencies& deps)
      : schedule_(plan.sequences[0].tasks),
        followers_(followers(plan, deps)),
        place_(plan.tasks.size()),
        waits_for_(plan.tasks.size()) {
    const std::vector<int> first = first_needing(plan, followers_);
    for (std::size_t i = 0; i < schedule_.size(); ++i) {
      place_[at(schedule_[i])] = static_cast<int>(i);
      waits_for_[at(schedule_[i])] = deps[at(schedule_[i])].size();
      if (first[at(schedule_[i])] != kNone) needed_.push_back(schedule_[i]);
    }
    std::stable_sort(needed_.begin(), needed_.end(), [&](int a, int b) { return first[at(a)] < first[at(b)]; });
    is_needed_.resize(plan.tasks.size());
    for (int id : needed_) is_needed_[at(id)] = true;
    waits_.resize(plan.tasks.size());
    for (int id : schedule_)
      waits_[at(id)] = is_exchange(plan, plan.tasks[at(id)]) ||
                       std::any_of(deps[at(id)].begin(), deps[at(id)].end(), [&](int d) { return waits_[at(d)]; });
  }

  std::vector<int> order() {
    for (int id : needed_) {
      while (!others_.empty() && others_.top() <= static_cast<int>(order_.size())) put_first(others_);
      put(id);
    }
    while (!others_.empty()) put_first(others_);
    while (!last_.empty()) put_first(last_);
    // The end of the step, whose tasks follow all others.
    for (std::size_t i = order_.size(); i < schedule_.size(); ++i) order_.push_back(schedule_[i]);
    return std::move(order_);
  }

 private:
  using Places = std::priority_queue<int, std::vector<int>, std::greater<>>;

  void put_first(Places& places) {
    const int id = schedule_[at(places.top())];
    places.pop();
    put(id);
  }
  void put(int id) {
    order_.push_back(id);
    for (int next : followers_[at(id)])
      if (--waits_for_[at(next)] == 0 && !is_needed_[at(next)])
        (waits_[at(next)] ? last_ : others_).push(place_[at(next)]);
  }

  const std::vector<int>& schedule_;
  std::vector<std::vector<int>> followers_;
  std::vector<int> place_;  // by id: in the schedule as it is
  std::vector<std::size_t> waits_for_;
  std::vector<int> needed_;      // by collectives, in their new order
  std::vector<bool> is_needed_;  // by id
  std::vector<bool> waits_;      // by id: for a collective
  // Ready tasks that collectives do not need. Those in `last_` wait for a collective.
  Places others_, last_;
  std::vector<int> order_;
};

}  // namespace

bool is_exchange(const Plan& plan, const Task& task) {
  if (task.kind != TaskKind::call || !plan.target().separate_memory) return false;
  const PlanNode& node = plan.nodes[at(task.node)];
  return node.op->traits.agree != nullptr && !node.on_host && node.device == 0 && !node.is_last_of_all;
}

bool advance_exchanges(Plan& plan) {
  std::vector<int>& schedule = plan.sequences[0].tasks;
  if (std::none_of(schedule.begin(), schedule.end(), [&](int id) { return is_exchange(plan, plan.tasks[at(id)]); }))
    return false;
  std::vector<int> order = Advance(plan, dependencies(plan)).order();
  const bool has_moved = order != schedule;
  schedule = std::move(order);
  return has_moved;
}

std::vector<bool> exchanges_beside(const Plan& plan, const Dependencies& deps, int commit) {
  std::vector<bool> is_one(plan.tasks.size());
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  bool has_beside = false;
  for (std::size_t first = 0; first < schedule.size() && schedule[first] < commit; ++first) {
    is_one[at(schedule[first])] = is_exchange(plan, plan.tasks[at(schedule[first])]);
    if (!is_one[at(schedule[first])] || has_beside) continue;
    std::vector<bool> follows(plan.tasks.size());
    follows[at(schedule[first])] = true;
    for (std::size_t i = first + 1; i < schedule.size() && schedule[i] < commit && !has_beside; ++i) {
      const std::vector<int>& before = deps[at(schedule[i])];
      follows[at(schedule[i])] = std::any_of(before.begin(), before.end(), [&](int d) { return follows[at(d)]; });
      has_beside = !follows[at(schedule[i])];
    }
  }
  return has_beside ? is_one : std::vector<bool>(plan.tasks.size());
}

std::vector<Beside> beside_exchanges(const Plan& plan) {
  struct Issued {
    int id, stream, index;
    PerStream complete;  // per stream: that many of its tasks are complete before this one begins
  };
  std::vector<Issued> all;
  std::array<PerStream, kMaxStreams> complete{};
  PerStream issued{};
  const auto wait = [&](int stream, int other) {
    for (std::size_t s = 0; s < complete[at(stream)].size(); ++s)
      complete[at(stream)][s] = std::max(complete[at(stream)][s], complete[at(other)][s]);
    complete[at(stream)][at(other)] = issued[at(other)];
  };
  for (int id : plan.sequences[0].tasks) {
    const Task& task = plan.tasks[at(id)];
    for (const Fork& fork : task.forks) wait(fork.stream, fork.source);
    for (int other : task.after) wait(task.stream, other);
    all.push_back({id, task.stream, issued[at(task.stream)]++, complete[at(task.stream)]});
  }
  std::vector<Beside> result;
  for (const Issued& exchange : all) {
    if (!is_exchange(plan, plan.tasks[at(exchange.id)])) continue;
    Beside found{exchange.id, {}};
    for (const Issued& other : all) {
      const bool is_before = exchange.complete[at(other.stream)] > other.index;
      const bool is_behind = other.complete[at(exchange.stream)] > exchange.index;
      if (other.stream != exchange.stream && !is_before && !is_behind) found.tasks.push_back(other.id);
    }
    result.push_back(std::move(found));
  }
  return result;
}

}  // namespace graphsink
