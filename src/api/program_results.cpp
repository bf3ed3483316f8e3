// What a Program tells of its steps: failures, records and outputs.
#include <algorithm>
#include <atomic>
#include <utility>

#include "api/program_impl.h"

namespace graphsink {
namespace {

constexpr const char* kRemedy =
    "the step committed nothing; mend its input, or lower the learning rate, and run it again";

}  // namespace

// --- failures

// With the lock of a Variable, and the program held outside of its calls, nothing else uses it meanwhile.
void Program::Impl::Writer::report_failed_step() {
  std::lock_guard lock(mutex_);
  if (!program_) return;
  const RunGate::Held held(*program_->gate_);
  if (program_->gate_->is_used_here()) return program_->report_failed_step(Where());
  Failure* failure = program_->find_failure(Where());  // which stays for the thread that uses the program
  if (!failure || std::exchange(failure->is_told, true)) return;
  throw Error(failure->error);
}

void Program::Impl::Writer::leave() {
  std::lock_guard lock(mutex_);
  program_ = nullptr;
}

void Program::Impl::Writer::add(const Variable& variable) {
  VariableData& data = *variable.data();
  std::lock_guard lock(data.lock);
  std::erase_if(data.writers, [](const auto& writer) { return writer.expired(); });
  data.writers.push_back(weak_from_this());
}

// A step tells the host of its failure at its end. One that broke off has none.
void Program::Impl::note_broken_off_step() {
  const HostStatus& status = host_status();
  StepBlock block = download_block();
  bool is_known = block.acknowledged != acknowledged_;  // an older failure, which the next launch forgets
  if (!status.failed && (block.error_node < 0 || is_known)) return;
  Progress& told = progress();
  told.error_node = status.failed ? status.node : block.error_node;
  told.error_step = block.error_node >= 0 ? block.error_step : block.step;
  told.error = block.error;
  told.error_index = block.error_index;
  told.failed = 1;
}

// What a body threw, if one did. Once.
std::optional<Error> Program::Impl::take_exception() {
  if (device().target().separate_memory) {
    HostStatus& status = host_status();
    std::optional<Error> result;
    if (status.failed) result.emplace(body_error("step", Where(), status.what));
    status.clear();
    return result;
  }
  try {
    device().sync(stream());
    return {};
  } catch (const Error& e) {
    return e;
  }
}

// The failure that the program's thread was not told of yet; null: there is none.
Program::Impl::Failure* Program::Impl::find_failure(const Where& where) {
  if (failure_) return &*failure_;
  Progress& told = progress();
  if (std::atomic_ref(told.failed).load(std::memory_order_acquire) == 0) return nullptr;
  StepError error = std::atomic_ref(told.error).load();
  std::optional<Error> thrown = take_exception();
  if (error != StepError::unknown) thrown.reset();
  std::string problem = (thrown ? thrown->problem() : to_string(error, std::atomic_ref(told.error_index).load())) +
                        ", in step " + std::to_string(std::atomic_ref(told.error_step).load());
  std::string remedy = thrown ? thrown->remedy() + "; the step committed nothing" : kRemedy;
  auto node = static_cast<std::size_t>(std::atomic_ref(told.error_node).load());
  if (node >= graph_.nodes.size()) return &failure_.emplace(Error("step", where, problem, remedy));
  const Node& source = graph_.nodes[node];
  std::string op(source.op->name);
  if (!writes_variables(*source.op, source.inputs.size()))
    return &failure_.emplace(Error(op, source.where, problem, remedy));
  BrokenCommit broken(op, source.where, "the step broke off while it committed: " + problem,
                      "an op that writes Variables must not throw");
  break_variables(broken);
  return &failure_.emplace(broken);
}

// From the next launch on steps may commit again.
void Program::Impl::report_failed_step(const Where& where) {
  if (!find_failure(where)) return;
  Error error = failure_->error;
  failure_.reset();
  std::atomic_ref(progress().failed).store(0);
  ++acknowledged_;
  has_outputs_ = false;
  throw error;
}

void Program::Impl::sync(const Where& where) {
  require_caller("sync", where);
  const RunGate::Inside inside(*gate_);
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  report_failed_step(where);
  require_whole_variables();
}

bool Program::Impl::poll(const Where& where) {
  require_caller("poll", where);
  const RunGate::Inside inside(*gate_);
  if (is_unsettled_ ? !session_.is_done() : !device().is_done(stream())) return false;
  // Steps that broke off say nothing at their end; there is nothing left to wait for.
  if (is_unsettled_ || std::atomic_ref(progress().failed).load(std::memory_order_acquire)) sync(where);
  require_whole_variables();
  return true;
}

// --- records

Program::Impl::Record& Program::Impl::record(std::string_view name, const Where& where) {
  for (Record& record : records_)
    if (record.name == name) return record;
  throw Error("read", where, "no record \"" + std::string(name) + "\"",
              "call graph.record(name, value) before compile()");
}

std::vector<double> Program::Impl::read_record(std::string_view name, const Where& where) {
  (void)record(name, where);
  sync(where);
  return take_record(name, false, where);
}

std::vector<double> Program::Impl::take_record(std::string_view name, bool may_run, const Where& where) {
  Record& taken = record(name, where);
  std::atomic_ref recorded(progress().records);
  std::uint32_t end = recorded.load(std::memory_order_acquire);
  std::uint32_t unread = end - taken.read, count = std::min(unread, taken.capacity);
  std::uint32_t first = end - count;
  std::vector<double> values(count);
  for (std::uint32_t i = 0; i < count; ++i)
    values[i] = std::atomic_ref(taken.ring[(first + i) % taken.capacity]).load(std::memory_order_acquire);
  taken.read = end;
  if (may_run) {
    // Steps that ended meanwhile, and one that has not, may have written over the oldest.
    std::uint32_t oldest = recorded.load(std::memory_order_relaxed) + 1 - taken.capacity;
    auto lost = static_cast<std::int32_t>(oldest - first);
    if (lost > 0) values.erase(values.begin(), values.begin() + std::min<std::int64_t>(lost, count));
  }
  note_lost(taken, unread - static_cast<std::uint32_t>(values.size()));
  return values;
}

void Program::Impl::note_lost(Record& record, std::uint32_t count) {
  if (count > 0 && record.lost == 0) {
    log_.warn({"record \"", record.name, "\": ", std::to_string(count), " values were lost, newer ones overwrote them ",
               "before they were read; read() more often, or give record() a capacity of more than ",
               std::to_string(record.capacity)});
  }
  record.lost += count;
}

std::int64_t Program::Impl::lost_records(std::string_view name, const Where& where) { return record(name, where).lost; }

// --- outputs

Tensor Program::Impl::read_output(std::string_view name, const Where& where) {
  for (const PlanOutput& output : plan().outputs) {
    if (output.name != name) continue;
    return read_output(Value(original_, output.node, output.output), where);
  }
  throw Error("read", where, "no output \"" + std::string(name) + "\"",
              "call graph.output(name, value) before compile()");
}

Tensor Program::Impl::read_output(const Value& value, const Where& where) {
  require_caller("read", where);
  const RunGate::Inside inside(*gate_);
  if (!value.valid() || value.graph() != original_) {
    throw Error("read", where, "the Value belongs to another graph", "pass a Value of the graph that was compiled");
  }
  if (!current_ || !current_->ran_once) throw Error("read", where, "the program has not run yet", "call run() first");
  for (const PlanOutput& output : current_->bound.plan().outputs) {
    if (output.node != value.node() || output.output != value.output()) continue;
    sync(where);
    if (!has_outputs_) {
      throw Error("read", where, "a step of the last run failed, which left no outputs",
                  "mend what failed the step, and run() again");
    }
    return download(output.type, current_->bound.address(output.buffer));
  }
  throw Error("read", where, "the Value is not an output", "call graph.output(name, value) before compile()");
}

}  // namespace graphsink
