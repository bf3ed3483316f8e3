// Memory that a Program takes, and how a Program acts when there is not enough.
#include <algorithm>

#include "api/program_impl.h"
#include "base/at.h"
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
  for (std::size_t i = 0; i < report.further_devices.size(); ++i) {
    std::size_t& arena = report.further_devices[i].arena;
    if (memory_.control()) arena = memory_.arena(static_cast<int>(i) + 1).size_for(arena);
  }
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Variable& variable = plan.variables[i];
    if (!callers_memory_.contains(name_of(variable))) continue;
    const int device = plan.variable_devices[i];
    std::size_t& sum = device == 0 ? report.variables : report.further_devices[at(device - 1)].variables;
    sum -= rounded_block(variable.type().bytes());
  }
  report.further = 0;
  for (const FurtherMemory& device : report.further_devices) report.further += device.bytes();
  report.control = rounded_block(sizeof(Control));
  report.staging = device().staging_bytes() + inputs_.staged_bytes();
  report.status = StepStatus::bytes() + rounded_block(LaunchQueue::kBytes);
  report.invariant_copies = plan.host_invariant_bytes ? rounded_block(plan.host_invariant_bytes) : 0;
  report.host_arena = report.host_arena ? rounded_block(report.host_arena) : 0;
  return report;
}

MemoryReport Program::Impl::memory() {
  prepare_plan();
  return report();
}

// "; cuda:0 needs 3.0 MiB, and 1.0 MiB of 4.0 MiB are free; cuda:1 needs ..", of devices that know their memory.
std::string Program::Impl::rooms_text(const MemoryReport& needs) const {
  std::string text;
  for (int number = 0; number < session_.count(); ++number) {
    Device& device = session_.device(number);
    std::optional<MemoryRoom> room;
    try {
      room = device.room();
    } catch (const Error& e) {
      log_.warn({"how much memory is free is not known: ", e.problem()});
    }
    if (!room) continue;
    const std::size_t bytes = number == 0 ? needs.device_bytes() : needs.further_devices[at(number - 1)].bytes();
    text += "; " + to_string(device.target().id) + " needs " + bytes_text(bytes) + ", and " + bytes_text(room->free) +
            " of " + bytes_text(room->total) + " are free there";
  }
  return text;
}

// Names the largest Variables of the device with this number that could live on another one; nothing where there is
// none.
std::string Program::Impl::movable_text(int number) {
  const bool is_target = number == 0;
  if (is_target && (!device().target().takes_further_devices || cuda_device_count() < 2)) return "";
  const Plan& plan = this->plan();
  std::vector<const Variable*> movable;
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    if (plan.variable_devices[i] == number && !plan.variables[i].data()->is_beside_another)
      movable.push_back(&plan.variables[i]);
  auto larger = [](const Variable* a, const Variable* b) { return a->type().bytes() > b->type().bytes(); };
  std::stable_sort(movable.begin(), movable.end(), larger);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(movable.size(), 3); ++i)
    text += (i ? ", \"" : "\"") + movable[i]->name() + "\" " + bytes_text(movable[i]->type().bytes());
  if (text.empty()) return "";
  return std::string(", or let Variables live on ") +
         (is_target ? "a further device, by the placement on_device(1)" : "the target, by the placement on_device") +
         "; the largest are " + text;
}

// Makes the error for a failed allocation. Its text lists the memory that the plan needs and the largest values.
Error Program::Impl::no_memory(const std::string& what, const std::string& remedy, const Where& where,
                               const OutOfMemory& problem) {
  MemoryReport needs = report();
  std::string text = "no room for " + what + ": " + problem.problem() + "; the program needs " +
                     bytes_text(needs.device_bytes() + needs.further + needs.host_bytes()) +
                     ", its largest values are ";
  std::size_t count = std::min<std::size_t>(needs.largest.size(), 5);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueMemory& value = needs.largest[i];
    std::string place = to_string(value.where);
    text += (i ? ", " : "") + value.name + " " + to_string(value.type) + " " + bytes_text(value.bytes) +
            (place.empty() ? "" : " (" + place + ")");
  }
  int number = 0;  // the device that is full; the host comes behind all devices
  while (number < session_.count() && session_.device(number).target().id != problem.full()) ++number;
  const bool is_host = number == session_.count();
  const std::string machine = problem.full() == cpu() ? "this machine" : to_string(problem.full());
  text += is_host ? "; it needs " + bytes_text(needs.host_bytes()) + " of host memory" : rooms_text(needs);
  return Error("memory of " + (is_host ? "the host" : to_string(problem.full())), where, text,
               remedy + (remedy.empty() ? "" : ", or ") + "end other programs on " + machine +
                   (is_host ? "" : movable_text(number)),
               ErrorCode::out_of_memory);
}

}  // namespace graphsink
