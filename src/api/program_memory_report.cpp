// Memory that a Program takes, and how a Program acts when there is not enough.
#include <algorithm>

#include "api/program_impl.h"
#include "passes/explain.h"
#include "passes/plan_queries.h"

namespace graphsink {

// Drops everything that is kept for other input shapes, to free memory. Returns false if there is nothing to drop.
bool Program::Impl::give_up_memory(const std::string& problem) {
  const ShapeEntry* current = shapes_.current();
  const std::size_t others = shapes_.size() - (current ? 1 : 0);
  // Other ranks would go on to launch what this one has given up.
  if (others == 0 || rank_wait_) return false;
  log_.warn({"memory is short (", problem, "): ", bytes_text(shapes_.bytes() - (current ? current->bytes() : 0)),
             " that are kept for ", count_text(others, "other set"),
             " of input shapes are given up; shapes that come back are planned and captured again"});
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  runs_.read_step_times();
  shapes_.drop_others();
  return true;
}

MemoryReport Program::Impl::report() {
  const Plan& plan = this->plan();
  MemoryReport report = memory_report(plan, facts(), inputs_.feed_bytes(plan));
  if (memory_.control()) report.arena = memory_.arena(0).size_for(report.arena);
  report.inputs = inputs_.input_bytes(plan);
  for (const Variable& variable : plan.variables)
    if (callers_memory_.contains(name_of(variable))) report.variables -= rounded_block(variable.type().bytes());
  report.control = rounded_block(sizeof(Control));
  report.staging = device().staging_bytes() + inputs_.staged_bytes();
  report.status = StepStatus::bytes() + rounded_block(LaunchQueue::kBytes);
  report.invariant_copies = plan.host_invariant_bytes ? rounded_block(plan.host_invariant_bytes) : 0;
  report.host_arena = report.host_arena ? rounded_block(report.host_arena) : 0;
  return report;
}

MemoryReport Program::Impl::memory() {
  prepare_plan(Where());
  return report();
}

// Makes the error for a failed allocation. Its text lists the memory that the plan needs and the largest values.
Error Program::Impl::no_memory(const std::string& what, const std::string& remedy, const Where& where,
                               const std::string& problem) {
  MemoryReport needs = report();
  std::string text = "no room for " + what + ": " + problem + "; the program needs " +
                     bytes_text(needs.device_bytes() + needs.host_bytes()) + ", its largest values are ";
  std::size_t count = std::min<std::size_t>(needs.largest.size(), 5);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueMemory& value = needs.largest[i];
    std::string place = to_string(value.where);
    text += (i ? ", " : "") + value.name + " " + to_string(value.type) + " " + bytes_text(value.bytes) +
            (place.empty() ? "" : " (" + place + ")");
  }
  return Error("memory of " + to_string(device().target().id), where, text, remedy, ErrorCode::out_of_memory);
}

}  // namespace graphsink
