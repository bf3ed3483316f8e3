#include "counts.h"

#include <array>
#include <set>

#include "base/at.h"
#include "ir/graph_data.h"
#include "passes/explain.h"
#include "passes/passes.h"
#include "site.h"

namespace graphsink::testing {
namespace {

constexpr std::array kOfPlans{"control: branch",
                              "control: choice",
                              "control: loop",
                              "control: inside control",
                              "node: on the device",
                              "node: fused",
                              "node: of several outputs",
                              "node: reads and writes parts of tensors",
                              "node: view",
                              "plan: of several streams",
                              "plan: several steps a launch",
                              "variable: kept over its commit",
                              "variable: read in the step that writes it"};
constexpr std::array kOfSeparateMemory{"control: driven by the host",
                                       "control: holds a host node",
                                       "control: unrolled",
                                       "copy: invariant, from a Variable",
                                       "copy: invariant, from an input",
                                       "copy: invariant, read in a body",
                                       "copy: made before the loop that reads it",
                                       "copy: to the device",
                                       "copy: to the host",
                                       "node: on the host by choice",
                                       "node: on the host for want of a CUDA body",
                                       "plan: crosses several times each way",
                                       "plan: driven by the host beside a launch",
                                       "plan: driven by the host in a body that it drives",
                                       "plan: in several islands, which split_sink cuts further",
                                       "plan: of three islands or more",
                                       "plan: split, the host beside a launch",
                                       "plan: one launch each step",
                                       "plan: with conditional nodes in launches of bodies",
                                       "plan: with launches of bodies",
                                       "plan: with launches of bodies, and what is issued between"};
constexpr std::array kOfSeveralDevices{"copy: between devices",
                                       "copy: invariant, to a further device",
                                       "node: on a further device",
                                       "plan: with further devices, in several islands",
                                       "variable: committed on a further device",
                                       "variable: on a further device"};
constexpr std::array kOfGraphs{"commit: reads another Variable",
                               "effects: several in a graph",
                               "feed: staged",
                               "feed: written",
                               "gradient: of a branch",
                               "gradient: of a loop",
                               "input: rewritten",
                               "loop: as many iterations as its limit",
                               "loop: denormal counter",
                               "loop: draws in its condition",
                               "loop: entries in its condition",
                               "loop: huge counter",
                               "loop: infinite counter",
                               kOverLimit,
                               "loop: without an iteration",
                               "open: any size",
                               "open: rounded up",
                               "optimizer: a rate of the recipe",
                               "optimizer: of two groups",
                               "record: of several numbers",
                               "size of a result: bound",
                               kFoundSize,
                               kRoundedSize,
                               "switch_: by i32",
                               "switch_: by i64",
                               "switch_: by u8",
                               kNoBody,
                               "variable: frozen, rewritten",
                               "variable: assigned in a body",
                               "variable: assigned a view of another",
                               "variable: read after assign",
                               "variable: two exchanged"};

void count_node(const PlanNode& node, Counts& counts) {
  if (node.id < 0) return;
  bool has_cuda = body_for(*node.op, DeviceKind::cuda) != nullptr;
  ++counts[node.device > 0 ? "node: on a further device"
           : !node.on_host ? "node: on the device"
           : has_cuda      ? "node: on the host by choice"
                           : "node: on the host for want of a CUDA body"];
  counts["node: fused"] += node.op->name.starts_with("matmul_");
  counts["node: reads and writes parts of tensors"] += node.op->name.starts_with("strided_");
  counts["node: of several outputs"] += at(node.inputs) + 1 < node.operands.size();
}

bool holds(const Plan& plan, const Task& task, bool (*is_it)(const Plan&, const Task&)) {
  for (int body : task.bodies)
    for (const Task& inner : plan.tasks_of(body))
      if (is_it(plan, inner) || holds(plan, inner, is_it)) return true;
  return false;
}
bool is_control(const Plan&, const Task& task) { return !task.bodies.empty(); }

void count_task(const Plan& plan, const Task& task, Counts& counts) {
  if (task.kind == TaskKind::copy) {
    CopyDirection direction = direction_of(plan, task);
    counts["copy: to the device"] += direction == CopyDirection::to_device;
    counts["copy: to the host"] += direction == CopyDirection::to_host;
    counts["copy: between devices"] += direction == CopyDirection::between_devices;
    return;
  }
  if (!is_control(plan, task)) return;
  ++counts[task.kind == TaskKind::loop     ? "control: loop"
           : task.kind == TaskKind::choice ? "control: choice"
                                           : "control: branch"];
  counts["control: inside control"] += holds(plan, task, is_control);
  counts["control: holds a host node"] += holds(plan, task, is_on_host);
}

void count_invariant_copies(const Plan& plan, Counts& counts) {
  for (const InvariantCopy& copy : plan.invariant_copies) {
    bool is_input = plan.buffers[at(copy.origin)].storage == Storage::input;
    ++counts[is_input ? "copy: invariant, from an input" : "copy: invariant, from a Variable"];
    counts["copy: invariant, to a further device"] += direction_of(plan, copy) != CopyDirection::to_host;
  }
  std::set<int> copied;  // to the host, in the schedule
  for (const Task& task : plan.tasks_of(0)) {
    if (task.kind == TaskKind::copy && direction_of(plan, task) == CopyDirection::to_host)
      copied.insert(task.destination);
    if (!is_control(plan, task)) continue;
    for (int buffer : touched(plan, task).reads) {
      counts["copy: invariant, read in a body"] += plan.buffers[at(buffer)].storage == Storage::invariant;
      counts["copy: made before the loop that reads it"] += task.kind == TaskKind::loop && copied.contains(buffer);
    }
  }
}

void count_variables(const Plan& plan, Counts& counts) {
  std::vector<bool> is_read(plan.variables.size(), false), is_kept(plan.variables.size(), false);
  auto variable = [&](int buffer) {
    bool is_one = buffer >= 0 && plan.buffers[at(buffer)].storage == Storage::variable;
    return is_one ? plan.buffers[at(buffer)].index : -1;
  };
  for (const PlanNode& node : plan.nodes) {
    for (int i = 0; node.id >= 0 && i < node.inputs; ++i) {
      bool reads = access_of(*node.op, at(i), at(node.inputs)) == Access::read;
      if (int v = variable(node.operands[at(i)]); v >= 0 && reads) is_read[at(v)] = true;
    }
  }
  for (const Task& task : plan.tasks_of(0)) {
    bool copies = task.kind == TaskKind::copy && plan.buffers[at(task.destination)].storage == Storage::arena;
    if (int v = copies ? variable(task.source) : -1; v >= 0) is_kept[at(v)] = true;
  }
  for (std::size_t v = 0; v < plan.variables.size(); ++v) {
    counts["variable: read in the step that writes it"] += is_read[v] && plan.variable_written[v];
    counts["variable: kept over its commit"] += is_kept[v] && plan.variable_written[v];
    counts["variable: on a further device"] += plan.variable_devices[v] > 0;
    counts["variable: committed on a further device"] += plan.variable_devices[v] > 0 && plan.variable_written[v];
  }
}

// Of bodies that the host drives.
void count_body_islands(const Plan& plan, Counts& counts) {
  for (const Sequence& body : plan.sequences) {
    for (const Island& island : body.islands)
      for (const Task& task : plan.tasks_of(island)) {
        if (task.control < 0) continue;
        ++counts[island.sunk ? "plan: with conditional nodes in launches of bodies"
                             : "plan: driven by the host in a body that it drives"];
      }
    counts["plan: with launches of bodies"] += !body.islands.empty();
    counts["plan: with launches of bodies, and what is issued between"] += body.islands.size() > 1;
  }
}

}  // namespace

void count(const Building& building, Counts& counts) {
  for (const auto& [name, n] : building.counts) counts[name] += n;
  auto effects = building.counts.find("effect");
  for (const Building::Fed& fed : building.fed) {
    counts["input: rewritten"] += !fed.is_feed;
    if (fed.is_feed) ++counts[fed.is_staged(0) ? "feed: staged" : "feed: written"];
  }
  for (const Building::State& state : building.states) counts["variable: frozen, rewritten"] += state.is_frozen();
  for (const Node& node : building.graph.data()->nodes) counts["node: view"] += node.op->traits.only_views;
  counts["effects: several in a graph"] += effects != building.counts.end() && effects->second > 1;
}

void count(const Plan& plan, Counts& counts) {
  Counts of_plan;
  count_body_islands(plan, of_plan);
  for (const PlanNode& node : plan.nodes) count_node(node, of_plan);
  for (const Task& task : plan.tasks) count_task(plan, task, of_plan);
  count_invariant_copies(plan, of_plan);
  count_variables(plan, of_plan);
  for (const Island& island : plan.islands) {
    of_plan["control: driven by the host"] += !island.sunk;
    of_plan["plan: driven by the host beside a launch"] |= island.beside;
    for (const Island& part : island.parts) of_plan["plan: split, the host beside a launch"] |= part.beside;
  }
  for (const Reason& reason : plan.reasons) of_plan["control: unrolled"] += reason.what.ends_with("is unrolled");
  of_plan["plan: in several islands, which split_sink cuts further"] +=
      plan.islands.size() > 1 && !plan.split_islands.empty();
  of_plan["plan: of several streams"] += plan.streams > 1;
  of_plan["plan: of three islands or more"] += plan.islands.size() >= 3;
  of_plan["plan: with further devices, in several islands"] +=
      plan.islands.size() > 1 && !used_further_devices(plan).empty();
  ++of_plan[plan.loop_over_steps ? "plan: several steps a launch" : "plan: one launch each step"];
  of_plan["plan: crosses several times each way"] +=
      of_plan["copy: to the device"] > 1 && of_plan["copy: to the host"] > 1;
  for (const auto& [name, n] : of_plan) counts[name] += n;
}

std::vector<std::string> counted(bool separate_memory, bool several_devices) {
  std::vector<std::string> names(kOfPlans.begin(), kOfPlans.end());
  names.insert(names.end(), kOfGraphs.begin(), kOfGraphs.end());
  if (separate_memory) names.insert(names.end(), kOfSeparateMemory.begin(), kOfSeparateMemory.end());
  if (several_devices) names.insert(names.end(), kOfSeveralDevices.begin(), kOfSeveralDevices.end());
  for (const Kind& kind : kinds()) names.push_back("kind: " + std::string(kind.name));
  return names;
}

}  // namespace graphsink::testing
