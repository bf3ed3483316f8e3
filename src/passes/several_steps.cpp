// How a run of several steps is launched. One launch of a loop around the step is best: it takes any number of steps,
// and its nodes are there once. Where a library exchanges values with other ranks, its nodes may not stand in a loop;
// then the launch holds the tasks of the step once for each step.
#include <algorithm>
#include <bit>
#include <string>

#include "base/at.h"
#include "passes/exchanges.h"
#include "passes/obstacle.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

constexpr const char *kSeveralLaunches = "several steps take several launches", *kCost = "one launch for each step";

Obstacle first_obstacle(const Plan& plan) {
  for (const Task& task : plan.tasks_of(0))
    if (Obstacle obstacle = obstacle_in_body(plan, task); obstacle.op) return obstacle;
  return {};
}

bool has_exchange(const Plan& plan) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  return std::any_of(schedule.begin(), schedule.end(), [&](int id) { return is_exchange(plan, plan.tasks[at(id)]); });
}

// A power of two, so that ranks whose plans have nearly as many tasks find the same number.
void unroll_steps(Plan& plan, std::size_t most_nodes) {
  const std::size_t tasks = plan.tasks.size();
  plan.unrolled_steps = static_cast<std::int64_t>(std::bit_floor(std::clamp<std::size_t>(most_nodes / tasks, 1, 1024)));
  if (plan.unrolled_steps > 1) return;
  plan.reasons.push_back({kSeveralLaunches, Where(),
                          "collectives of NCCL may not stand in a loop body, and two steps of " +
                              std::to_string(tasks) + " nodes have more than Limits::unrolled_nodes, " +
                              std::to_string(most_nodes),
                          kCost, "raise Limits::unrolled_nodes on all ranks"});
}

}  // namespace

void launch_several_steps(Plan& plan, std::size_t most_nodes) {
  const Obstacle obstacle = first_obstacle(plan);
  const bool is_on_one_device = used_further_devices(plan).empty();
  plan.loop_over_steps =
      sinks_whole(plan) && plan.target().conditional_nodes && is_on_one_device && obstacle.op == nullptr;
  if (!sinks_whole(plan) || plan.loop_over_steps) return;
  if (is_on_one_device && has_exchange(plan)) {
    unroll_steps(plan, most_nodes);
  } else if (!plan.target().conditional_nodes) {
    plan.reasons.push_back({kSeveralLaunches, Where(), "this driver has no conditional nodes", kCost,
                            "use a driver of CUDA 12.8 or newer"});
  } else if (!is_on_one_device) {
    plan.reasons.push_back({kSeveralLaunches, Where(),
                            "the step runs on several devices, and a loop in a launch stays on one", kCost,
                            "remove the placements on_device(1) and so on"});
  } else if (obstacle.is_on_host) {
    plan.reasons.push_back({kSeveralLaunches, Where(), "the step holds host nodes, and a loop in a launch may not",
                            kCost, "give every op a CUDA body"});
  } else {
    plan.reasons.push_back({kSeveralLaunches, obstacle.where, std::string(obstacle.op->name) + " " + obstacle.why,
                            kCost, "give it a CUDA body that only launches kernels"});
  }
}

}  // namespace graphsink
