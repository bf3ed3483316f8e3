// Program::time_ops(): how long each op takes.
#include "api/program_impl.h"
#include "base/at.h"
#include "ir/bound_node.h"
#include "ir/count_tiles.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

OpTime describe(const BoundPlan& bound, const Task& task, const OpClock::TaskTime& time) {
  OpTime op;
  op.runs = time.runs;
  op.us = time.ns / 1e3;
  if (task.kind == TaskKind::copy) {
    op.op = "copy";
    op.bytes = 2 * bound.plan().buffers[at(task.source)].bytes;
    op.outputs = {{DType::u8, {static_cast<std::int64_t>(op.bytes / 2)}}};
    return op;
  }
  const BoundNode& node = bound.node(task.node);
  op.op = node.op->name;
  op.where = node.where;
  op.inputs.assign(node.types, node.types + node.inputs);
  op.outputs.assign(node.types + node.inputs, node.types + node.inputs + node.outputs);
  op.bytes = bytes_moved(node);
  op.flops = flops_of(BodyArgs(node));
  return op;
}

}  // namespace

void Program::Impl::require_timeable(const Where& where) {
  const ShapeEntry* entry = shapes_.current();
  if (!entry || !entry->has_run()) {
    throw Error("time_ops", where,
                "the program has not run with these input shapes, and ops load what they need in their first step",
                "call run() once before");
  }
  if (has_result_sizes_) {
    throw Error("time_ops", where,
                "a result has a size that depends on data, for which run() plans anew when it changes",
                "give results whose sizes depend on data upper bounds");
  }
  if (!used_further_devices(entry->plan()).empty()) {
    throw Error("time_ops", where, "the program uses several devices, and each has a clock of its own",
                "compile the graph without CompileOptions::further_devices");
  }
}

std::vector<OpTime> Program::Impl::time_ops(std::int64_t steps, const Where& where) {
  require_run("time_ops", interactive_serial, steps, where);
  require_timeable(where);
  ShapeEntry& entry = *shapes_.current();
  op_clock_ = std::make_unique<OpClock>(entry.plan(), device());
  turn_.take(where);
  {
    std::optional<RunGate::Inside> inside;
    variables_.enter_run(inside);
    inputs_.upload_feed_table(plan(), &memory_.control()->feeds);
    is_unsettled_ = true;
    status_.set_has_outputs(false);
    issue_run(interactive_serial, 0, steps, op_clock_.get(), where);
    is_unsettled_ = false;
    status_.set_has_outputs(true);
  }
  sync(where);
  const std::vector<OpClock::TaskTime> times = op_clock_->times(stream());
  op_clock_.reset();
  std::vector<OpTime> ops;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Task& task = entry.plan().tasks[i];
    if (task.kind == TaskKind::call || task.kind == TaskKind::copy)
      ops.push_back(describe(entry.bound, task, times[i]));
  }
  return ops;
}

}  // namespace graphsink
