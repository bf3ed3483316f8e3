#include "graphsink/program.h"

#include <algorithm>
#include <limits>

#include "api/plan_of.h"
#include "api/program_access.h"
#include "api/program_impl.h"
#include "base/at_line.h"
#include "base/left_behind.h"
#include "passes/plan_queries.h"

namespace graphsink {

Program::Program(const Graph& graph, const CompileOptions& options, Where where)
    : impl_(new Impl(graph, options, where), [](Impl* impl) {
        if (impl->finish()) delete impl;
      }) {}
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&& other) noexcept {
  if (this == &other) return *this;
  close();
  impl_ = std::move(other.impl_);
  return *this;
}
Program::~Program() { close(); }

void Program::close() noexcept {
  // Graphs of the caller's that hold the Impl keep it until they are gone, but the program's own work ends now.
  if (impl_.use_count() > 1) (void)impl_->finish();
  impl_.reset();
  LeftBehind::free_all();
}

Program compile(const Graph& graph, const CompileOptions& options, Where where) {
  LeftBehind::free_all();
  (void)data_of(graph, where);
  auto expect = [&](bool fits, const char* option, auto value, const char* remedy) {
    if (!fits) throw Error("compile", where, std::string(option) + " is " + std::to_string(value), remedy);
  };
  constexpr int kMostThreads = 1024;
  constexpr std::chrono::milliseconds kMostPatience = std::chrono::hours(24 * 36525);
  std::chrono::milliseconds patience = options.limits.host_op_patience;
  expect(options.tuning.capture_after >= 0, "capture_after", options.tuning.capture_after,
         "give a number of steps, or 0 to capture when it pays");
  expect(options.tuning.threads >= 0 && options.tuning.threads <= kMostThreads, "threads", options.tuning.threads,
         "give a number of threads, at most 1024, or 0 for one on each core");
  expect(options.guards.replay_every >= 0, "guards.replay_every", options.guards.replay_every,
         "give a number of runs, or 0 for never");
  expect(patience.count() >= 0 && patience <= kMostPatience, "host_op_patience", patience.count(),
         "give milliseconds, up to 100 years, or 0 for never");
  return at_line(where, [&] { return Program(graph, options, where); });
}

struct Program::Call : CallOf<Impl> {
  using CallOf::CallOf;
};

Program::Call Program::impl(const Where& where) const {
  LeftBehind::free_all();
  return impl_without_wait(where);
}

Program::Call Program::impl_without_wait(const Where& where) const {
  if (!impl_) throw Error("Program", where, "a moved-from Program", "use the Program that it was moved to");
  // A call that a body of its own ops makes is a part of the one that waits for the body.
  return impl_->is_in_body() ? Call(*impl_) : Call(*impl_, impl_->one_thread(), "Program", where);
}

Held ProgramAccess::hold(const Program& program, const Where& where) {
  (void)program.impl(where);  // throws Error unless there may be a call
  const std::shared_ptr<Program::Impl>& impl = program.impl_;
  if (impl->is_in_body()) return {impl, OneThread::Call()};
  return {impl, OneThread::Call(impl->one_thread(), "Program", where)};
}
void ProgramAccess::set_step_clock(Program& program, StepClock ns) { program.impl_->set_step_clock(std::move(ns)); }

const Plan& plan_of(const Program& program) { return program.impl(Where::current())->plan(); }
PlanSummary Program::plan(Where where) const {
  Call program = impl_without_wait(where);
  return summary(program->plan(), program->facts());
}
std::string Program::explain(Where where) const {
  Call program = impl_without_wait(where);
  return program->plan().explain(program->facts());
}
std::string Program::explain_json(Where where) const {
  Call program = impl_without_wait(where);
  return program->plan().explain_json(program->facts());
}
std::string Program::explain_dot(Where where) const { return impl_without_wait(where)->plan().explain_dot(); }

void Program::write(const Value& input, const Tensor& tensor, const WriteOptions& options, Where where) {
  tensor.require_valid("write", where);
  at_line(where, [&] { impl(where)->write(input, tensor.type(), tensor.data(), true, options, where); });
}
void Program::write_raw(const Value& input, DType dtype, const void* data, std::int64_t count,
                        const WriteOptions& options, Where where) {
  at_line(where, [&] { impl(where)->write(input, TensorType{dtype, {count}}, data, false, options, where); });
}

struct StagedSlices::Staged {
  graphsink::Staged slices;
  std::weak_ptr<const void> program;
};
StagedSlices::StagedSlices() = default;
StagedSlices::StagedSlices(StagedSlices&& other) noexcept { *this = std::move(other); }
StagedSlices& StagedSlices::operator=(StagedSlices&& other) noexcept {
  staged_ = std::move(other.staged_);
  type_ = other.type_;
  slices_ = std::exchange(other.slices_, 0);
  stride_ = other.stride_;
  memory_ = std::exchange(other.memory_, nullptr);
  return *this;
}
StagedSlices::~StagedSlices() = default;

void* StagedSlices::address(std::int64_t i, DType dtype, const Where& where) const {
  if (i < 0 || i >= slices_) {
    throw Error("StagedSlices", where, "slice " + std::to_string(i) + " of " + std::to_string(slices_),
                slices_ > 0 ? "number the slices from 0" : "stage() slices, and fill them before write()");
  }
  if (dtype != type_.dtype) {
    throw Error("StagedSlices", where,
                "a slice is " + to_string(type_) + ", asked for as " + std::string(to_string(dtype)),
                "ask for the C++ type of that dtype");
  }
  return memory_ + i * stride_;
}

StagedSlices StagedSlices::take(std::int64_t n, Where where) {
  if (n < 1 || n > slices_) {
    throw Error("StagedSlices", where, "take " + std::to_string(n) + " of " + std::to_string(slices_) + " slices",
                slices_ > 0 ? "take at least one, and at most size()" : "stage() slices, and take some before write()");
  }
  StagedSlices first;
  first.staged_.reset(new Staged(*staged_));
  first.staged_->slices.slices = n;
  first.type_ = type_;
  first.slices_ = n;
  first.stride_ = stride_;
  first.memory_ = memory_;
  if (n == slices_) {
    *this = StagedSlices();
    return first;
  }
  memory_ += n * stride_;
  slices_ -= n;
  staged_->slices.slices = slices_;
  staged_->slices.memory = {staged_->slices.memory, memory_};
  return first;
}

StagedSlices Program::stage(const Value& feed, std::int64_t slices, Where where) {
  return stage_shape(feed, slices, nullptr, where);
}
StagedSlices Program::stage(const Value& feed, std::int64_t slices, const Shape& slice, Where where) {
  return stage_shape(feed, slices, &slice, where);
}
StagedSlices Program::stage_shape(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where) {
  StagedSlices result;
  result.staged_.reset(
      new StagedSlices::Staged{at_line(where, [&] { return impl(where)->stage(feed, slices, slice, where); }), impl_});
  const Staged& staged = result.staged_->slices;
  result.type_ = {feed.dtype(), staged.slice};
  result.slices_ = staged.slices;
  result.stride_ = staged.stride;
  result.memory_ = staged.memory.get();
  return result;
}
void Program::write(StagedSlices&& slices, Where where) {
  Call program = impl(where);
  if (!slices.staged_ || slices.staged_->program.lock() != impl_) {
    throw Error("write", where, slices.staged_ ? "the slices are of another program" : "there are no slices",
                "pass what stage() of this program has returned, once");
  }
  at_line(where, [&] { program->write(slices.staged_->slices, where); });
  slices = StagedSlices();
}

void Program::bind_memory(const Value& value, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                          Where where) {
  impl(where)->bind_memory(value, memory, bytes, std::move(owner), where);
}
void Program::bind_memory(const Variable& variable, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                          Where where) {
  impl(where)->bind_memory(variable, memory, bytes, std::move(owner), where);
}
MemoryReport Program::memory(Where where) {
  return at_line(where, [&] { return impl(where)->memory(); });
}
void Program::bind(Where where) {
  at_line(where, [&] { impl(where)->bind(where); });
}
void Program::run(Mode mode, const RunOptions& options, Where where) {
  at_line(where, [&] { impl(where)->run(mode, options, where); });
}
void Program::enqueue(cudaStream_t stream, Where where) {
  at_line(where, [&] { impl(where)->enqueue(stream, impl_, where); });
}
void Program::sync(Where where) {
  at_line(where, [&] { impl(where)->sync(where); });
}
void Program::log_failed_step(Where where) { impl(where)->log_failed_step(where); }
bool Program::poll(Where where) { return impl_without_wait(where)->poll(where); }
void Program::take_record(std::string_view name, const GetValues& get, Where where) {
  impl_without_wait(where)->take_record(name, true, get, where);
}
void Program::read_record(std::string_view name, const GetValues& get, Where where) {
  impl(where)->read_record(name, get, where);
}
Tensor Program::output(std::string_view name, Where where) {
  return at_line(where, [&] { return impl(where)->output(name, where); });
}
Tensor Program::output(const Value& value, Where where) {
  return at_line(where, [&] { return impl(where)->output(value, where); });
}
void Program::set_seed(std::uint32_t seed, Where where) { impl_without_wait(where)->set_seed(seed, where); }
std::int64_t Program::record_capacity(std::string_view name, Where where) const {
  return impl_without_wait(where)->record_capacity(name, where);
}
std::int64_t Program::lost_records(std::string_view name, Where where) const {
  return impl_without_wait(where)->lost_records(name, where);
}
std::int64_t Program::steps(Where where) { return impl(where)->steps(where); }
void Program::set_steps(std::int64_t steps, Where where) {
  at_line(where, [&] { impl(where)->set_steps(steps, where); });
}
Counters Program::counters(Where where) const { return impl_without_wait(where)->counters(); }
AutomaticReport Program::automatic_report(Where where) { return impl_without_wait(where)->automatic_report(); }
std::optional<CaptureInfo> Program::captured(LaunchOf steps, Where where) const {
  return impl_without_wait(where)->captured(steps == LaunchOf::several_steps);
}
std::vector<OpTime> Program::time_ops(std::int64_t steps, Where where) {
  return at_line(where, [&] { return impl(where)->time_ops(steps, where); });
}
void Program::write_node_names(const std::string& path, Where where) const {
  impl_without_wait(where)->write_node_names(path, where);
}
std::size_t Program::arena_bytes(Where where) const { return impl_without_wait(where)->arena_bytes(); }
const Target& Program::target(Where where) const { return impl_without_wait(where)->target(); }
std::vector<Variable> Program::variables(Where where) const { return impl_without_wait(where)->variables(); }

}  // namespace graphsink
