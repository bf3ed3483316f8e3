// Reports of a Program on its steps: failures, records, outputs and counters.
#include <limits>
#include <utility>

#include "api/program_impl.h"

namespace graphsink {

void Program::Impl::sync(const Where& where) {
  require_issuer("sync", where);
  wait_and_report(where);
}

void Program::Impl::log_failed_step(const Where& where) {
  require_issuer("log_failed_step", where);
  log_failure([&] { wait_and_report(where); });
}

void Program::Impl::wait_and_report(const Where& where) {
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  runner_.note_all_over();
  turn_.leave();
  require_ranks();
  status_.report(where);
  variables_.require_whole();
}

bool Program::Impl::poll(const Where& where) {
  require_issuer("poll", where);
  const RunGate::Inside inside(variables_.gate());
  const bool is_done = [&] {
    const HostWatch::Wait waits(watch());  // the software device may be at work meanwhile
    return is_unsettled_ ? session_.is_done() : device().is_done(stream());
  }();
  // Before the first run, only uploads of initial values are under way.
  if (!is_done && runner_.launches().pushed() > 0) {
    if (!rank_wait_ || !watch_ || !watch_->has_asked_too_long()) return false;
    watch_->give_up();
    sync(where);  // throws Error
  }
  require_ranks();
  // Steps that broke off do not signal their end, but all work is done here. So sync() does not wait.
  if (is_unsettled_ || status_.has_failed()) sync(where);
  turn_.leave();
  variables_.require_whole();
  return true;
}

std::int64_t Program::Impl::steps(const Where& where) {
  require_issuer("steps", where);
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  return status_.download_block().step;
}

void Program::Impl::set_steps(std::int64_t steps, const Where& where) {
  require_issuer("set_steps", where);
  if (steps < 0 || steps > std::numeric_limits<std::int32_t>::max())
    throw Error("set_steps", where, std::to_string(steps) + " steps", "give a number from 0 to 2^31 - 1");
  const RunGate::Inside inside(variables_.gate());
  sync(where);
  auto step = static_cast<std::int32_t>(steps);
  device().upload(stream(), &memory_.control()->block.step, &step, sizeof step);
  end_call({});
}

void Program::Impl::take_record(std::string_view name, bool may_run, const GetValues& get, const Where& where) {
  records_.take(name, status_.progress().records, may_run, get, where);
}

void Program::Impl::read_record(std::string_view name, const GetValues& get, const Where& where) {
  require_issuer("records", where);
  records_.require(name, where);
  sync(where);
  take_record(name, false, get, where);
}

Tensor Program::Impl::output(std::string_view name, const Where& where) {
  for (const PlanOutput& output : plan().outputs) {
    if (output.name != name) continue;
    return this->output(Value(original_, output.node, output.output), where);
  }
  throw Error("output", where, "no output \"" + std::string(name) + "\"",
              "call graph.output(name, value) before compile()");
}

Tensor Program::Impl::output(const Value& value, const Where& where) {
  require_issuer("output", where);
  const RunGate::Inside inside(variables_.gate());
  if (!value.valid() || value.graph() != original_) {
    throw Error("output", where, "the Value belongs to another graph", "pass a Value of the graph that was compiled");
  }
  auto find = [&](const Plan& plan) -> const PlanOutput* {
    for (const PlanOutput& output : plan.outputs)
      if (output.node == value.node() && output.output == value.output()) return &output;
    return nullptr;
  };
  if (!find(plan())) {
    throw Error("output", where, "the Value is not an output", "call graph.output(name, value) before compile()");
  }
  const ShapeEntry* entry = shapes_.current();
  if (!entry || !entry->has_run()) throw Error("output", where, "the program has not run yet", "call run() first");
  sync(where);
  if (!status_.has_outputs()) {
    throw Error("output", where,
                "a step of the last run failed, or the run stopped (stop_when()), which left no outputs",
                "run() again; record() keeps the values of all steps that were committed");
  }
  const PlanOutput& output = *find(entry->plan());
  return status_.download(output.type, entry->bound.address(output.buffer));
}

std::vector<Variable> Program::Impl::variables() const {
  std::vector<Variable> variables;
  for (const VariableUse& use : graph_.variables) variables.push_back(use.variable);
  return variables;
}

Counters Program::Impl::counters() const {
  const RunGate::Inside inside(variables_.gate());
  Counters counters = session_.counters();
  counters.fallbacks = runner_.fallbacks();
  counters.cached_shapes = shapes_.size();
  counters.cached_bytes = shapes_.bytes();
  counters.evicted_shapes = shapes_.evicted();
  return counters;
}

AutomaticReport Program::Impl::automatic_report() {
  runs_.read_step_times();
  return shapes_.current() ? shapes_.current()->chooser.report() : AutomaticReport{};
}

std::optional<CaptureInfo> Program::Impl::captured(bool several_steps) const {
  return shapes_.current() ? shapes_.current()->captured(several_steps) : std::nullopt;
}

void Program::Impl::write_node_names(const std::string& path, const Where& where) const {
  std::string names;
  shapes_.for_each_captured([&](const CapturedGraph& graph) { names += node_names(graph); });
  graphsink::write_node_names(path, names, where);
}

}  // namespace graphsink
