// Functions that the text, the JSON and the DOT of a plan have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/plan.h"

namespace graphsink {

enum class CopyDirection : std::uint8_t { to_host, to_device, within_device, between_devices };
// Direction of a copy between two buffers.
CopyDirection direction_of(const Plan& plan, int source, int destination);
// Direction of a task that is a copy, or of an invariant copy.
template <class Copy>
CopyDirection direction_of(const Plan& plan, const Copy& copy) {
  return direction_of(plan, copy.source, copy.destination);
}

// Those of Plan::variables that live on further devices.
std::vector<std::size_t> variables_elsewhere(const Plan& plan);

// Counts over tasks and the tasks of their bodies. A task of a body counts once, however often it runs.
struct TaskCounts {
  std::size_t nodes = 0;
  std::size_t host_nodes = 0;  // those of `nodes` that run on the host
  std::size_t copies = 0;
  std::size_t to_host_bytes = 0;
  std::size_t to_device_bytes = 0;
  std::size_t within_device_bytes = 0;
  std::size_t between_devices_bytes = 0;
};
TaskCounts count_tasks(const Plan& plan, const TaskRange& tasks);
inline TaskCounts count_tasks(const Plan& plan) { return count_tasks(plan, plan.tasks_of(0)); }

// The number of launches that one step with these islands takes, without those of bodies that the host drives.
std::size_t launches_per_step(const std::vector<Island>& islands);
// The number of launches of a body that the host drives, and of bodies in it, each of which counts once.
std::size_t launches_of_body(const Plan& plan, int body);

// "call", "copy", "if", "while".
const char* name_of(TaskKind kind);
// "then", "else", "body" or, of a switch_, "body 2".
std::string name_of_body(TaskKind kind, std::size_t which);
// "WHILE", "IF" or "SWITCH"; nullptr if the host drives the branch or loop.
const char* conditional_node(const Plan& plan, const Task& task);
// "WHILE node, 4 iterations", "driven by the host".
std::string control_text(const Plan& plan, const Task& task);
// Cost of one run of a body: "4 ops, 1 on the host, 4 copies, 16 B to the host, 1 launch". Bodies in it count once.
std::string body_cost_text(const Plan& plan, int body);
// "one launch", or "driven by the host, beside the islands before it, after 0".
std::string island_text(const Island& island);
// "arena+256", "cuda:1+256", "\"w1\"", "input"; "" for no buffer.
std::string memory_text(const Plan& plan, int buffer);
// "f32[32], i32[32], ...", "commits 2 variables", "1 record", "".
std::string result_text(const Plan& plan, const PlanNode& node);

// Names of the ops of a node that is a group of fused ops, in order. Empty for other nodes.
std::vector<std::string> fused_ops(const PlanNode& node);

// The first lines of the text: what sinks, which bytes are copied, and how much memory is needed.
std::string summary_text(const Plan& plan, const PlanFacts& facts);
// One line, without a newline at its end.
std::string reason_text(const Reason& reason);

// "1 node", "2 nodes".
std::string count_text(std::size_t n, const char* one);

}  // namespace graphsink
