#include <array>
#include <span>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// Whether an operand has no elements, so that the op may launch nothing. The tables of feeds and records do not count:
// a step without any begins and ends with a kernel, too.
bool has_empty_operands(const Plan& plan, const PlanNode& node) {
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const Storage storage = node.operands[i] < 0 ? Storage::arena : plan.buffers[at(node.operands[i])].storage;
    const bool is_table =
        storage == Storage::feed_table || storage == Storage::feed_strides || storage == Storage::record_ring;
    if (!is_table && node.types[i].bytes() == 0) return true;
  }
  return false;
}

// Whether all that a task enqueues are kernels that wait for those in front of them: at least one.
bool waits(const Plan& plan, const Task& task) {
  if (task.kind != TaskKind::call || is_on_host(plan, task)) return false;
  const PlanNode& node = plan.nodes[at(task.node)];
  return node.op->traits.kernels_wait && !has_empty_operands(plan, node) &&
         plan.devices[at(node.device)].target.launches_programmatically;
}

// A kernel that is launched programmatically may begin before the one in front has ended, and then waits for that to
// end. That one has waited, too, or was launched as usual. So whatever comes before both has ended as well, and the
// order is that of kernels which are launched one after the other. A kernel that also waits for another stream, or is
// the first on its stream or in a body, is launched as usual; so are those that decide branches and loops.
void choose(Plan& plan, std::span<const int> tasks) {
  std::array<bool, kMaxStreams> ends_in_kernel{};  // by stream: that is all the next task on it waits for
  for (int id : tasks) {
    const Task& task = plan.tasks[at(id)];
    for (const Fork& fork : task.forks) ends_in_kernel[at(fork.stream)] = false;
    bool& is_behind_kernel = ends_in_kernel[at(task.stream)];
    if (!task.after.empty()) is_behind_kernel = false;
    if (waits(plan, task)) {
      plan.nodes[at(task.node)].programmatic =
          is_behind_kernel ? ProgrammaticLaunch::all : ProgrammaticLaunch::all_but_first;
      if (is_behind_kernel) ++plan.programmatic.nodes;
      is_behind_kernel = true;
      continue;
    }
    is_behind_kernel = false;
    for (int body : task.bodies) choose(plan, plan.sequences[at(body)].tasks);
  }
}

}  // namespace

void choose_programmatic_launches(Plan& plan) {
  if (plan.target().runs_cpu_bodies()) return;
  plan.programmatic.is_on = plan.target().launches_programmatically;
  if (!plan.programmatic.is_on)
    plan.programmatic.obstacle = "it takes compute capability 9.0, of the device and of the code it runs";
  auto choose_in = [&](const std::vector<Island>& islands) {
    for (const Island& island : islands)
      if (island.sunk) choose(plan, island.tasks);
  };
  choose_in(plan.islands);
  for (const Sequence& body : plan.sequences) choose_in(body.islands);
}

}  // namespace graphsink
