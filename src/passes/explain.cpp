#include "passes/explain.h"

#include <algorithm>
#include <map>

#include "base/at.h"
#include "base/printable.h"
#include "graphsink/memory.h"
#include "graphsink/mode.h"
#include "graphsink/op.h"
#include "ir/fused.h"
#include "passes/exchanges.h"
#include "passes/passes.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

bool is_host_memory(Storage storage) {
  return storage == Storage::host_arena || storage == Storage::host_constant || storage == Storage::invariant;
}

void count(const Plan& plan, const Task& task, TaskCounts& counts) {
  if (task.kind == TaskKind::call) {
    ++counts.nodes;
    counts.host_nodes += plan.nodes[at(task.node)].on_host;
  } else if (task.kind == TaskKind::copy) {
    ++counts.copies;
    CopyDirection direction = direction_of(plan, task);
    auto& bytes = direction == CopyDirection::to_host         ? counts.to_host_bytes
                  : direction == CopyDirection::to_device     ? counts.to_device_bytes
                  : direction == CopyDirection::within_device ? counts.within_device_bytes
                                                              : counts.between_devices_bytes;
    bytes += plan.buffers[at(task.source)].bytes;
  }
  for (int body : task.bodies)
    for (const Task& inner : plan.tasks_of(body)) count(plan, inner, counts);
}

std::size_t written_variables(const PlanNode& node) {
  std::size_t written = 0;
  for (int i = 0; i < node.inputs; ++i) written += access_of(*node.op, at(i), at(node.inputs)) == Access::write;
  return written;
}

std::string invariant_copies_text(const Plan& plan) {
  std::size_t to_host = 0, to_devices = 0;
  for (const InvariantCopy& copy : plan.invariant_copies) {
    bool is_to_host = direction_of(plan, copy) == CopyDirection::to_host;
    (is_to_host ? to_host : to_devices) += plan.buffers[at(copy.source)].bytes;
  }
  std::string text;
  auto add = [&](std::size_t bytes, const char* way) {
    if (bytes) text += (text.empty() ? "" : ", ") + bytes_text(bytes) + way;
  };
  add(to_host, " to the host");
  add(to_devices, " to further devices");
  return text.empty() ? "" : "invariant copies, made only when the source was written: " + text + "\n";
}

std::string described(const Target& target) {
  const std::string id = to_string(target.id);
  return target.name == id ? id : id + " (" + target.name + ")";
}

// "3 collectives on the device: 1 can run beside others, all_reduce #14 on s1 beside 7 other tasks".
std::string exchanges_text(const Plan& plan) {
  const std::vector<Beside> exchanges = beside_exchanges(plan);
  if (exchanges.empty()) return "";
  constexpr std::size_t kMost = 8;
  std::size_t listed = 0;
  std::string beside;
  for (const Beside& each : exchanges) {
    if (each.tasks.empty() || listed++ >= kMost) continue;
    const Task& task = plan.tasks[at(each.exchange)];
    beside += (beside.empty() ? " " : ", ") + std::string(plan.nodes[at(task.node)].op->name) + " #" +
              std::to_string(each.exchange) + " on s" + std::to_string(task.stream) + " beside " +
              count_text(each.tasks.size(), "other task");
  }
  const std::string text = count_text(exchanges.size(), "collective") + " on the device: ";
  if (listed == 0) return text + "nothing can run beside them\n";
  return text + std::to_string(listed) + " can run beside others," + beside + (listed > kMost ? ", ..." : "") + "\n";
}

// A line for each further device on which Variables live.
std::string variables_text(const Plan& plan) {
  constexpr std::size_t kMost = 8;
  std::map<int, std::vector<std::size_t>> by_device;
  for (std::size_t i : variables_elsewhere(plan)) by_device[plan.variable_devices[i]].push_back(i);
  std::string text;
  for (const auto& [device, variables] : by_device) {
    std::size_t bytes = 0;
    std::string names;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const Variable& variable = plan.variables[variables[i]];
      bytes += rounded_block(variable.type().bytes());
      if (i < kMost) names += (i ? ", \"" : " \"") + variable.name() + "\"";
    }
    text += count_text(variables.size(), "Variable") + " on " + device_name(plan, device) + " (" + bytes_text(bytes) +
            "), because of the placement on_device(" + std::to_string(device) +
            "), their own or their parameter's:" + printable(names) + (variables.size() > kMost ? ", ..." : "") + "\n";
  }
  return text;
}

std::string copies_text(const TaskCounts& counts, const std::string& device) {
  std::string text;
  auto add = [&](std::size_t bytes, const std::string& way) {
    if (bytes) text += (text.empty() ? "copies: " : ", ") + bytes_text(bytes) + " " + way;
  };
  add(counts.to_host_bytes, "to the host");
  add(counts.to_device_bytes, "to " + device);
  add(counts.within_device_bytes, "within " + device);
  add(counts.between_devices_bytes, "between devices");
  return text.empty() ? "" : text + "\n";
}

}  // namespace

std::vector<std::size_t> variables_elsewhere(const Plan& plan) {
  std::vector<std::size_t> elsewhere;
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    if (plan.variable_devices[i] > 0) elsewhere.push_back(i);
  return elsewhere;
}

CopyDirection direction_of(const Plan& plan, int from, int to) {
  const Buffer &source = plan.buffers[at(from)], &destination = plan.buffers[at(to)];
  bool from_host = is_host_memory(source.storage), to_host = is_host_memory(destination.storage);
  if (from_host == to_host)
    return source.device == destination.device ? CopyDirection::within_device : CopyDirection::between_devices;
  return to_host ? CopyDirection::to_host : CopyDirection::to_device;
}

TaskCounts count_tasks(const Plan& plan, const TaskRange& tasks) {
  TaskCounts counts;
  for (const Task& task : tasks) count(plan, task, counts);
  return counts;
}

std::size_t launches_per_step(const std::vector<Island>& islands) {
  return static_cast<std::size_t>(
      std::count_if(islands.begin(), islands.end(), [](const Island& island) { return island.sunk; }));
}

std::size_t launches_of_body(const Plan& plan, int body) {
  std::size_t launches = launches_per_step(plan.sequences[at(body)].islands);
  for (const Task& task : plan.tasks_of(body))
    for (int inner : task.bodies) launches += launches_of_body(plan, inner);
  return launches;
}

const char* name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::call:
      return "call";
    case TaskKind::copy:
      return "copy";
    case TaskKind::branch:
      return "if";
    case TaskKind::choice:
      return "switch";
    case TaskKind::loop:
      return "while";
  }
  return "";
}

std::string name_of_body(TaskKind kind, std::size_t which) {
  if (kind == TaskKind::choice) return "body " + std::to_string(which);
  return kind == TaskKind::loop ? "body" : which == 0 ? "then" : "else";
}

const char* conditional_node(const Plan& plan, const Task& task) {
  if (plan.controls[at(task.control)].reason >= 0) return nullptr;
  return task.kind == TaskKind::loop ? "WHILE" : task.kind == TaskKind::branch ? "IF" : "SWITCH";
}

std::string control_text(const Plan& plan, const Task& task) {
  const char* node = conditional_node(plan, task);
  const int iterations = plan.controls[at(task.control)].iterations;
  std::string text = node ? std::string(node) + " node" : "driven by the host";
  if (iterations < 0) return text;
  text += ", " + count_text(at(iterations), "iteration");
  const int copies = plan.controls[at(task.control)].iterations_in_body;
  return copies == 1 ? text : text + ", " + std::to_string(copies) + " in a run of the body";
}

std::string body_cost_text(const Plan& plan, int body) {
  const TaskCounts counts = count_tasks(plan, plan.tasks_of(body));
  std::string text;
  auto add = [&](std::size_t n, const std::string& what) {
    if (n > 0) text += (text.empty() ? "" : ", ") + what;
  };
  add(counts.nodes, count_text(counts.nodes, "op"));
  add(counts.host_nodes, std::to_string(counts.host_nodes) + " on the host");
  add(counts.copies, std::to_string(counts.copies) + (counts.copies == 1 ? " copy" : " copies"));
  add(counts.to_host_bytes, bytes_text(counts.to_host_bytes) + " to the host");
  add(counts.to_device_bytes, bytes_text(counts.to_device_bytes) + " to " + to_string(plan.target().id));
  const std::size_t launches = launches_of_body(plan, body);
  add(launches, std::to_string(launches) + (launches == 1 ? " launch" : " launches"));
  return text.empty() ? "nothing" : text;
}

std::string island_text(const Island& island) {
  std::string text = island.sunk ? "one launch" : "driven by the host";
  if (island.beside) text += ", beside the islands before it";
  for (std::size_t i = 0; i < island.after.size(); ++i)
    text += (i ? ", " : ", after ") + std::to_string(island.after[i]);
  return text;
}

std::string memory_text(const Plan& plan, int buffer) {
  if (buffer < 0) return "";
  const Buffer& b = plan.buffers[at(buffer)];
  switch (b.storage) {
    case Storage::arena:
      return (b.device > 0 ? device_name(plan, b.device) : "arena") + "+" + std::to_string(b.offset);
    case Storage::host_arena:
      return "host+" + std::to_string(b.offset);
    case Storage::invariant:
      return "invariant+" + std::to_string(b.offset);
    case Storage::invariant_there:
      return device_name(plan, b.device) + " invariant+" + std::to_string(b.offset);
    case Storage::variable:
      return "\"" + plan.variables[at(b.index)].name() + "\"";
    case Storage::record_ring:
      return "records";
    case Storage::input:
      return "input";
    case Storage::constant:
    case Storage::host_constant:
      return "constant";
    default:
      return "step block";
  }
}

std::string result_text(const Plan& plan, const PlanNode& node) {
  if (std::size_t written = written_variables(node)) return "commits " + count_text(written, "variable");
  std::string text;
  for (std::size_t i = at(node.inputs); i < node.operands.size(); ++i) {
    if (i > at(node.inputs) + 1) return text + ", ...";
    bool is_ring = plan.buffers[at(node.operands[i])].storage == Storage::record_ring;
    text += (i > at(node.inputs) ? ", " : "") +
            (is_ring ? count_text(plan.records.size(), "record") : to_string(node.types[i]));
  }
  return text;
}

std::vector<std::string> fused_ops(const PlanNode& node) {
  std::vector<std::string> names;
  if (const auto* group = node.attrs.get_if<FusedAttrs>())
    for (const FusedOp& op : group->ops) names.emplace_back(op.op->name);
  return names;
}

std::string summary_text(const Plan& plan, const PlanFacts& facts) {
  TaskCounts counts = count_tasks(plan);
  std::vector<int> further = used_further_devices(plan);
  std::string device = further.empty() ? to_string(plan.target().id) : "a device";
  std::string text = "plan for " + described(plan.target());
  for (int i : further) text += " and " + described(plan.devices[at(i)].target);
  text += ": " + count_text(counts.nodes, "node") + ", ";
  if (counts.host_nodes) text += std::to_string(counts.host_nodes) + " of them on the host, ";
  if (counts.copies) text += std::to_string(counts.copies) + (counts.copies == 1 ? " copy, " : " copies, ");
  text += count_text(at(plan.streams), "stream") + "; ";
  if (!facts.op_by_op.empty())
    text += "runs op by op, because its capture failed: " + printable(facts.op_by_op) + "; otherwise it ";
  text += "sinks ";
  std::size_t launches = launches_per_step(plan.islands);
  text += sinks_whole(plan)
              ? "whole: "
              : "in parts: " + std::to_string(launches) + " of " + count_text(plan.islands.size(), "island") + ", ";
  text += std::to_string(launches) + (launches == 1 ? " launch per step" : " launches per step");
  const bool has_body_launches = std::any_of(plan.sequences.begin(), plan.sequences.end(),
                                             [](const Sequence& sequence) { return !sequence.islands.empty(); });
  if (has_body_launches) text += " and those of bodies";
  if (!plan.split_islands.empty()) {
    const bool is_launched = facts.split_op_by_op.empty();
    text += ", " + (is_launched ? std::to_string(launches_per_step(plan.split_islands)) : "op by op") + " in " +
            std::string(to_string(split_sink));
    if (!is_launched && facts.op_by_op.empty())
      text += ", because its capture failed: " + printable(facts.split_op_by_op);
  }
  text += plan.loop_over_steps && !facts.is_step_by_step ? ", or per many steps\n" : "\n";
  if (const std::int64_t steps = unrolled_steps(plan, facts); steps > 1)
    text += "up to " + std::to_string(steps) +
            " steps a launch, unrolled, because collectives of NCCL may not stand in a loop body\n";
  text += exchanges_text(plan) + variables_text(plan) + copies_text(counts, device) + invariant_copies_text(plan);
  if (plan.fusion.nodes > 0)
    text += "fused: " + std::to_string(plan.fusion.ops) + " ops in " + count_text(plan.fusion.nodes, "node") + "; " +
            bytes_text(plan.fusion.bytes) + " of their results are not stored\n";
  if (!plan.fusion.obstacle.empty())
    text += "element-wise ops stay separate: " + printable(plan.fusion.obstacle) + "\n";
  if (plan.avoided_copies.ops > 0)
    text += "without copies: " + count_text(plan.avoided_copies.ops, "op") + " that only moved elements; " +
            bytes_text(plan.avoided_copies.bytes) + " are read and written where they are\n";
  if (plan.programmatic.is_on)
    text += "programmatic launch: " + std::to_string(plan.programmatic.nodes) + " of " +
            count_text(counts.nodes, "node") + " (pdl) behind another kernel\n";
  if (!plan.programmatic.obstacle.empty())
    text += "no kernel is launched programmatically: " + plan.programmatic.obstacle + "\n";
  const std::size_t live = live_bytes(plan);
  text += "arena " + bytes_text(plan.devices[0].arena_bytes) + " for " + bytes_text(plan.value_bytes) + " of values, " +
          bytes_text(live) +
          (live > plan.devices[0].arena_bytes ? " live at once without work in place" : " live at once");
  for (int i : further)
    text += "; " + bytes_text(plan.devices[at(i)].arena_bytes + plan.devices[at(i)].invariant_bytes) + " on " +
            device_name(plan, i);
  std::size_t on_host = host_arena_bytes(plan, facts) + plan.host_invariant_bytes;
  if (on_host) text += "; " + bytes_text(on_host) + " on the host";
  text += "\n";
  if (const auto& cache = facts.shape_cache) {
    text += "shape cache: " + count_text(cache->shapes, "set") + " of input shapes, " +
            std::to_string(cache->captured) + " captured, " + bytes_text(cache->bytes) + "; " +
            std::to_string(cache->evicted) + " dropped so far\n";
  }
  return text;
}

std::string reason_text(const Reason& reason) {
  std::string text = reason.what;
  if (std::string where = to_string(reason.where); !where.empty()) text += " (" + where + ")";
  return printable(text + ": " + reason.why + "; cost: " + reason.cost + "; remedy: " + reason.remedy);
}

std::string count_text(std::size_t n, const char* one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); }

}  // namespace graphsink
