#include "graphsink/plan.h"

#include "base/at.h"
#include "passes/passes.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

std::vector<PlanSource> used_sources(const PlannerIr& ir) {
  std::vector<PlanSource> sources;
  for (const IrNode& node : ir.nodes) {
    bool is_written = node.op == &input_op || node.op == &feed_op;
    if (!node.is_live || !(is_written || node.op == &constant_op)) continue;
    std::string name = is_written ? node.attrs.as<InputAttrs>().name : "";
    sources.push_back({node.origin, std::move(name), node.outputs[0], node.where});
  }
  return sources;
}

// Builds the planner's own form of the graph, rewrites it, and lowers it to the nodes and the schedule of the plan.
void lower_graph(const GraphData& graph, const InputShapes& shapes, const SystemOps& system, const PlanOptions& options,
                 Plan& plan) {
  PlannerIr ir = verify(graph, shapes);
  simplify(ir);
  place(ir, options, plan);
  if (options.fuse) fuse(ir);
  plan.sources = used_sources(ir);
  lower(ir, system, options, plan);
}

// Throws Error if the sizes of all buffers together exceed 63 bits. Every offset and every total is at most this sum.
void refuse_overflow(const Plan& plan) {
  std::size_t total = 0;
  bool fits = true;
  for (const Buffer& buffer : plan.buffers)
    fits = fits && !__builtin_add_overflow(total, rounded_block(buffer.bytes), &total) && total >> 63 == 0;
  if (fits) return;
  std::string op = "compile";
  Where where;
  std::size_t largest = 0;
  for (const PlanNode& node : plan.nodes) {
    for (const TensorType& type : node.types) {
      if (type.bytes() <= largest) continue;
      largest = type.bytes();
      op = node.op->name;
      where = node.where;
    }
  }
  throw Error(op, where, "the values of the graph take 2^63 bytes or more together; here is the largest",
              "use smaller sizes, or split the graph");
}

}  // namespace

std::string to_string(DeviceId id) { return id.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(id.index); }

std::vector<int> used_further_devices(const Plan& plan) {
  std::vector<int> devices;
  for (std::size_t i = 1; i < plan.devices.size(); ++i)
    if (plan.devices[i].step_block >= 0) devices.push_back(static_cast<int>(i));
  return devices;
}

std::string device_name(const Plan& plan, int device) { return to_string(plan.devices[at(device)].target.id); }

int add_task(Plan& plan, int sequence, Task task) {
  int id = static_cast<int>(plan.tasks.size());
  plan.tasks.push_back(std::move(task));
  plan.sequences[at(sequence)].tasks.push_back(id);
  return id;
}

Target Target::cuda13(int sm) {
  Target target;
  target.id = cuda(0);
  target.name = "CUDA 13 device";
  target.sm = sm;
  target.separate_memory = true;
  target.host_nodes_in_bodies = false;
  return target;
}

Plan make_plan(const Graph& graph, const Target& target, const SystemOps& system, const InputShapes& shapes,
               const PlanOptions& options) {
  Plan plan;
  if (options.further_targets.size() > kMaxFurtherTargets)
    throw Error("compile", Where(), std::to_string(options.further_targets.size()) + " further devices",
                "name at most " + std::to_string(kMaxFurtherTargets));
  plan.devices.push_back({target});
  for (const Target& further : options.further_targets) plan.devices.push_back({further});
  lower_graph(*graph.data(), shapes, system, options, plan);
  add_costs(plan);
  partition(plan);
  assign_streams(plan);
  refuse_overflow(plan);
  assign_memory(plan);
  return plan;
}

}  // namespace graphsink
