// Finds the buffers that tasks read and write, and the earlier tasks that each must follow, because of these buffers or
// of effects on the host.
#include <algorithm>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

void add_node(const Plan& plan, int index, Touched& touched) {
  const PlanNode& node = plan.nodes[at(index)];
  auto operands = static_cast<int>(node.operands.size());
  for (int i = 0; i < operands; ++i) {
    int buffer = node.operands[at(i)];
    if (buffer < 0) continue;
    bool is_view = std::any_of(node.op->views.begin(), node.op->views.end(),
                               [&](Alias view) { return node.inputs + view.output == i; });
    if (is_view) continue;
    bool writes = i >= node.inputs || access_of(*node.op, at(i), at(node.inputs)) == Access::write;
    (writes ? touched.writes : touched.reads).push_back(buffer);
  }
}

void add_task(const Plan& plan, const Task& task, Touched& result) {
  if (task.kind == TaskKind::call) {
    // Any op may report in the step block of its device. Because every op counts as a writer of the block, the copies
    // of the block come before the first op and after the last one.
    if (int device = device_of(plan, task); device > 0) result.writes.push_back(plan.devices[at(device)].step_block);
    return add_node(plan, task.node, result);
  }
  if (task.source >= 0) {
    result.reads.push_back(task.source);
    const Buffer& source = plan.buffers[at(task.source)];
    if (source.storage == Storage::step && source.device > 0)  // part of a step block
      result.reads.push_back(plan.devices[at(source.device)].step_block);
  }
  if (task.destination >= 0) result.writes.push_back(task.destination);
  for (int sequence : task.bodies)
    for (const Task& inner : plan.tasks_of(sequence)) add_task(plan, inner, result);
}

// Tells whether the task or one of its bodies has an effect on the host that the graph does not show.
bool has_effect(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) return plan.nodes[at(task.node)].op->traits.host_effect;
  for (int sequence : task.bodies)
    for (const Task& inner : plan.tasks_of(sequence))
      if (has_effect(plan, inner)) return true;
  return false;
}

}  // namespace

Dependencies dependencies(const Plan& plan, int sequence) {
  const std::vector<int>& schedule = plan.sequences[at(sequence)].tasks;
  Dependencies result(plan.tasks.size());
  std::vector<int> writer(plan.buffers.size(), -1);
  std::vector<std::vector<int>> readers(plan.buffers.size());
  int last_effect = -1;
  Touched t;
  for (int id : schedule) {
    auto& deps = result[at(id)];
    t = touched(plan, plan.tasks[at(id)], std::move(t));
    for (int buffer : t.reads) {
      if (writer[at(buffer)] >= 0) deps.push_back(writer[at(buffer)]);
      readers[at(buffer)].push_back(id);
    }
    for (int buffer : t.writes) {
      if (writer[at(buffer)] >= 0) deps.push_back(writer[at(buffer)]);
      for (int reader : readers[at(buffer)]) deps.push_back(reader);
      writer[at(buffer)] = id;
      readers[at(buffer)].clear();
    }
    if (has_effect(plan, plan.tasks[at(id)])) {
      if (last_effect >= 0) deps.push_back(last_effect);
      last_effect = id;
    }
    if (is_last_of_all(plan, plan.tasks[at(id)]))
      deps.insert(deps.end(), schedule.begin(), std::find(schedule.begin(), schedule.end(), id));
    std::erase(deps, id);
    if (sequence == 0 && id != schedule[0] && deps.empty()) deps.push_back(schedule[0]);
    std::sort(deps.begin(), deps.end());
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
  }
  return result;
}

int first_commit_task(const Plan& plan) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  std::size_t first = schedule.size() - 1;  // the end of the step
  while (first > 0) {
    const Task& task = plan.tasks[at(schedule[first - 1])];
    if (task.kind != TaskKind::call) break;
    const PlanNode& node = plan.nodes[at(task.node)];
    bool commits = writes_variables(*node.op, at(node.inputs));
    bool checks_others = node.id < 0 && node.op->traits.host_effect;  // checks the host or the further devices
    if (!commits && !checks_others) break;
    --first;
  }
  return schedule[first];
}

bool is_last_of_all(const Plan& plan, const Task& task) {
  return task.kind == TaskKind::call && plan.nodes[at(task.node)].is_last_of_all;
}

int first_end_task(const Plan& plan) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  const int commit = first_commit_task(plan);
  return *std::find_if(schedule.begin(), schedule.end(),
                       [&](int id) { return id == commit || is_last_of_all(plan, plan.tasks[at(id)]); });
}

Touched touched(const Plan& plan, const Task& task, Touched reused) {
  reused.reads.clear();
  reused.writes.clear();
  add_task(plan, task, reused);
  return reused;
}

}  // namespace graphsink
