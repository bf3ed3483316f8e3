#include "passes/islands.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/at.h"

namespace graphsink {
namespace {

// A launch divided in two: the tasks that the next island waits for, and the rest.
struct Division {
  std::size_t island = 0;
  std::vector<int> first, rest;
  std::size_t work = 0;  // the tasks of the rest that write memory, which views do not
};

Division divide(const Plan& plan, const std::vector<Island>& islands, std::size_t i, const Dependencies& deps) {
  std::vector<bool> is_needed(plan.tasks.size());
  const auto need = [&](int id) {
    for (int d : deps[at(id)]) is_needed[at(d)] = true;
  };
  std::for_each(islands[i + 1].tasks.rbegin(), islands[i + 1].tasks.rend(), need);
  std::for_each(islands[i].tasks.rbegin(), islands[i].tasks.rend(), [&](int id) {
    if (is_needed[at(id)]) need(id);
  });
  Division result;
  result.island = i;
  for (int id : islands[i].tasks) {
    if (!is_needed[at(id)] && !touched(plan, plan.tasks[at(id)]).writes.empty()) ++result.work;
    (is_needed[at(id)] ? result.first : result.rest).push_back(id);
  }
  return result;
}

// Sets Island::starts_beside of all islands.
void mark_starts(std::vector<Island>& islands) {
  for (Island& island : islands) island.starts_beside = false;
  for (const Island& island : islands) {
    if (!island.beside) continue;
    auto last = std::find_if(island.after.rbegin(), island.after.rend(),
                             [&](int before) { return !islands[at(before)].beside; });
    if (last != island.after.rend()) islands[at(*last)].starts_beside = true;
  }
}

}  // namespace

std::vector<Island> runs_of(const std::vector<int>& tasks, FunctionRef<bool(int)> sinks) {
  std::vector<Island> islands;
  for (int id : tasks) {
    if (islands.empty() || islands.back().sunk != sinks(id)) islands.emplace_back().sunk = sinks(id);
    islands.back().tasks.push_back(id);
  }
  return islands;
}

void divide_launch(const Plan& plan, std::vector<Island>& islands, const Dependencies& deps,
                   CanBeBeside can_be_beside) {
  Division best;
  for (std::size_t i = 0; i + 1 < islands.size(); ++i) {
    if (!islands[i].sunk || !can_be_beside(islands[i + 1])) continue;
    Division division = divide(plan, islands, i, deps);
    if (!division.first.empty() && division.work > best.work) best = std::move(division);
  }
  if (best.work == 0) return;
  islands[best.island].tasks = std::move(best.first);
  Island rest;
  rest.tasks = std::move(best.rest);
  islands.insert(islands.begin() + static_cast<std::ptrdiff_t>(best.island) + 1, std::move(rest));
}

void connect(std::vector<Island>& islands, const Dependencies& deps, int commit, CanBeBeside can_be_beside) {
  std::vector<int> island_of(deps.size(), -1);
  bool is_commit = false;
  for (std::size_t i = 0; i < islands.size(); ++i) {
    Island& island = islands[i];
    std::set<int> after;
    for (int id : island.tasks) {
      island_of[at(id)] = static_cast<int>(i);
      for (int d : deps[at(id)])
        if (island_of[at(d)] >= 0) after.insert(island_of[at(d)]);
      is_commit = is_commit || id == commit;
    }
    for (std::size_t before = 0; is_commit && before < i; ++before) after.insert(static_cast<int>(before));
    after.erase(static_cast<int>(i));
    island.after.assign(after.begin(), after.end());
    bool needs_last = i == 0 || after.contains(static_cast<int>(i) - 1);
    island.beside = !needs_last && can_be_beside(island);
  }
  mark_starts(islands);
}

void divide_at_host_ops(Plan& plan, const Dependencies& deps, int commit, bool has_streams) {
  auto is_host_op = [&](int id) { return is_on_host(plan, plan.tasks[at(id)]); };
  auto can_be_beside = [&](const Island& part) { return has_streams && is_host_op(part.tasks[0]); };
  for (Island& island : plan.islands) {
    if (!island.sunk) continue;
    std::vector<Island> parts = runs_of(island.tasks, [&](int id) { return !is_host_op(id); });
    if (parts.size() < 2) continue;
    divide_launch(plan, parts, deps, can_be_beside);
    connect(parts, deps, commit, can_be_beside);
    island.tasks.clear();
    for (const Island& part : parts) island.tasks.insert(island.tasks.end(), part.tasks.begin(), part.tasks.end());
    island.parts = std::move(parts);
  }
}

std::vector<Island> split_islands(const Plan& plan) {
  std::vector<Island> result;
  std::vector<int> first;  // per island of the plan: the index of its first part
  for (const Island& island : plan.islands) {
    first.push_back(static_cast<int>(result.size()));
    std::vector<int> before;  // the parts of the islands that this island waits for
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
  if (result.size() == plan.islands.size()) return {};
  mark_starts(result);
  return result;
}

}  // namespace graphsink
