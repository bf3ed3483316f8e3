#include "ir/plan.h"

#include "base/at.h"
#include "passes/passes.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

std::vector<PlanSource> used_sources(const PlannerIr& ir) {
  std::vector<PlanSource> sources;
  for (std::size_t id = 0; id < ir.nodes.size(); ++id) {
    const IrNode& node = ir.nodes[id];
    bool is_written = node.op == &input_op || node.op == &feed_op;
    if (!node.is_live || !(is_written || node.op == &constant_op)) continue;
    std::string name = is_written ? node.attrs.as<InputAttrs>().name : "";
    sources.push_back({ir.number(static_cast<int>(id)), std::move(name), node.outputs[0], node.where});
  }
  return sources;
}

// A line for each result whose size the steps find (select.h).
std::vector<Reason> found_sizes(const PlannerIr& ir) {
  std::vector<Reason> notes;
  for (const IrNode& node : ir.nodes) {
    if (!node.is_live) continue;
    for (ValueRef v : node.inputs) {
      const IrNode& size = ir.node(v);
      if (size.op != &input_op || !size.attrs.as<InputAttrs>().is_result_size) continue;
      const Bucket& bucket = size.attrs.as<InputAttrs>().dims[0].bucket;
      notes.push_back(
          {"the size of a result of " + std::string(node.op->name) + " is found by each step", node.where,
           "it has no upper bound; these are plan and launches for " + std::to_string(size.outputs[0].shape[0]) +
               " rows" + (bucket.is_every_size() ? "" : " (" + to_string(bucket) + ")"),
           "run() waits for its steps, and a step that finds another size runs again", "give it an upper bound"});
    }
  }
  return notes;
}

// Builds the planner's own form of the graph, rewrites it, and lowers it to the nodes and the schedule of the plan.
// Returns what there is to say of it beside the decisions of the passes.
std::vector<Reason> lower_graph(const GraphData& graph, const InputShapes& shapes, const SystemOps& system,
                                const PlanOptions& options, Plan& plan) {
  PlannerIr ir = verify(graph, shapes);
  simplify(ir);
  drop_unused(ir);
  count_iterations(ir);
  place(ir, options, plan);
  unroll(ir, system, options.unroll_loops, plan);
  if (options.fuse) {
    const FusionRules rules(system.rules);
    plan.avoided_copies = avoid_copies(ir, rules);
    fuse(ir, rules);
    if (!options.check_finite) {
      plan.fusion = fuse_elementwise(ir, rules, system, plan);
      const AvoidedCopies more = avoid_copies(ir, rules);  // around groups that become kernels
      plan.avoided_copies.ops += more.ops;
      plan.avoided_copies.bytes += more.bytes;
    }
    join_slices(ir, system);
  }
  plan.sources = used_sources(ir);
  std::vector<Reason> notes = found_sizes(ir);
  lower(ir, system, options, plan);
  return notes;
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
  target.alignment = 256;
  target.takes_further_devices = true;
  target.has_profiled_nodes = true;
  target.host_nodes_in_bodies = false;
  target.launches_programmatically = sm >= kLeastProgrammaticSm;
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
  const std::vector<Reason> notes = lower_graph(data_of(graph, Where()), shapes, system, options, plan);
  coalesce_copies(plan);
  add_costs(plan);
  partition(plan);
  launch_several_steps(plan, options.unrolled_nodes);
  assign_streams(plan);
  if (options.programmatic_launch) choose_programmatic_launches(plan);
  refuse_overflow(plan);
  assign_memory(plan);
  plan.reasons.insert(plan.reasons.end(), notes.begin(), notes.end());
  return plan;
}

}  // namespace graphsink
