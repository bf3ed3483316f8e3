#include "passes/plan_queries.h"

#include <algorithm>
#include <limits>

#include "base/at.h"

namespace graphsink {

bool sinks_whole(const Plan& plan) { return plan.islands.size() == 1 && plan.islands[0].sunk; }

bool is_on_host(const Plan& plan, const Task& task) {
  return task.kind == TaskKind::call && plan.nodes[at(task.node)].on_host;
}

int device_of(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) {
    const PlanNode& node = plan.nodes[at(task.node)];
    return node.on_host ? 0 : node.device;
  }
  if (task.kind != TaskKind::copy) return 0;
  int destination = plan.buffers[at(task.destination)].device;
  return destination > 0 ? destination : plan.buffers[at(task.source)].device;
}

std::vector<int> used_further_devices(const Plan& plan) {
  std::vector<int> devices;
  for (std::size_t i = 1; i < plan.devices.size(); ++i)
    if (plan.devices[i].step_block >= 0) devices.push_back(static_cast<int>(i));
  return devices;
}

std::string device_name(const Plan& plan, int device) { return to_string(plan.devices[at(device)].target.id); }

std::size_t rounded_block(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) return bytes;  // a larger allocation fails anyway
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

std::vector<int> node_streams(const Plan& plan) {
  std::vector<int> result(plan.nodes.size(), 0);
  auto visit = [&](auto& self, const Task& task, int stream) -> void {
    if (task.node >= 0) result[at(task.node)] = stream;
    for (int body : task.bodies)
      for (const Task& inner : plan.tasks_of(body)) self(self, inner, stream);
  };
  for (const Task& task : plan.tasks_of(0)) visit(visit, task, task.stream);
  return result;
}

Workspaces workspaces(const Plan& plan, const PlanFacts& facts) {
  Workspaces result{std::vector<std::size_t>(at(plan.streams)), std::vector<std::size_t>(at(plan.streams))};
  std::vector<int> stream_of = node_streams(plan);
  for (std::size_t i = 0; i < facts.workspaces.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    std::size_t& most = (node.on_host ? result.host : result.device)[at(stream_of[i])];
    most = std::max(most, facts.workspaces[i]);
  }
  return result;
}

std::size_t host_arena_bytes(const Plan& plan, const PlanFacts& facts) {
  std::size_t bytes = plan.host_arena_bytes;
  for (std::size_t workspace : workspaces(plan, facts).host) bytes += workspace ? rounded_block(workspace) : 0;
  return bytes;
}

std::int64_t unrolled_steps(const Plan& plan, const PlanFacts& facts) {
  return facts.unrolled_steps > 0 ? facts.unrolled_steps : plan.unrolled_steps;
}

}  // namespace graphsink
