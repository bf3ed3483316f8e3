// Program::Impl: the parts of a Program, and its private functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/turn_of_program.h"
#include "base/fork_mark.h"
#include "base/function_ref.h"
#include "base/one_thread.h"
#include "exec/capture/capture_policy.h"
#include "exec/capture/node_names.h"
#include "exec/choose/measured_runs.h"
#include "exec/issue/host_watch.h"
#include "exec/issue/program_shapes.h"
#include "exec/issue/session.h"
#include "exec/issue/step_runner.h"
#include "exec/memory/callers_memory.h"
#include "exec/memory/inputs.h"
#include "exec/memory/program_memory.h"
#include "exec/memory/used_variables.h"
#include "exec/report/guards.h"
#include "exec/report/op_clock.h"
#include "exec/report/records.h"
#include "exec/report/step_status.h"
#include "graphsink/program.h"
#include "ir/graph_data.h"

namespace graphsink {

// As memory of the caller is known by: "Variable "w"".
std::string name_of(const Variable& variable);

class Program::Impl final : private Allocator {
 public:
  Impl(const Graph& graph, const CompileOptions& options, const Where& where);
  // Before the destructor: waits for all work that was given to the program's streams. Returns false if some may still
  // be running, and using what this owns.
  bool finish() noexcept;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // See Program.
  const Plan& plan();  // for the shapes written last
  PlanFacts facts() const { return shapes_.facts(); }
  void write(const Value& input, const TensorType& type, const void* data, bool shape_is_known,
             const WriteOptions& options, const Where& where);
  Staged stage(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where);
  void write(const Staged& staged, const Where& where);
  void bind_memory(const Value& value, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                   const Where& where);
  void bind_memory(const Variable& variable, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                   const Where& where);
  MemoryReport memory();
  void bind(const Where& where);
  void run(Mode mode, const RunOptions& options, const Where& where);
  // `self` owns this; the caller's graph keeps it.
  void enqueue(cudaStream_t stream, const std::shared_ptr<Impl>& self, const Where& where);
  void sync(const Where& where);
  void log_failed_step(const Where& where);
  bool poll(const Where& where);
  void take_record(std::string_view name, bool may_run, const GetValues& get, const Where& where);
  void read_record(std::string_view name, const GetValues& get, const Where& where);
  std::int64_t record_capacity(std::string_view name, const Where& where) { return records_.capacity(name, where); }
  std::int64_t lost_records(std::string_view name, const Where& where) { return records_.lost(name, where); }
  Tensor output(std::string_view name, const Where& where);
  Tensor output(const Value& value, const Where& where);
  void set_seed(std::uint32_t seed, const Where& where);
  std::int64_t steps(const Where& where);
  void set_steps(std::int64_t steps, const Where& where);
  Counters counters() const;
  AutomaticReport automatic_report();
  void set_step_clock(StepClock clock) { runs_.set_step_clock(std::move(clock)); }
  std::optional<CaptureInfo> captured(bool several_steps) const;
  void write_node_names(const std::string& path, const Where& where) const;
  std::vector<OpTime> time_ops(std::int64_t steps, const Where& where);
  std::size_t arena_bytes() const { return memory_.arena(0).size(); }
  const Target& target() const { return device().target(); }
  std::vector<Variable> variables() const;
  OneThread& one_thread() { return one_thread_; }
  bool is_in_body() const;  // this thread runs the body of an op of this program

 private:
  Device& device() const { return session_.device(); }
  Stream& stream() const { return session_.stream(); }
  HostWatch* watch() { return watch_ ? &*watch_ : nullptr; }
  Plan make_current_plan() const;
  // Throws Error in a child of fork(), and in the body of an op of this program.
  void require_caller(const char* call, const Where& where) const;
  // The same for calls of which the launches of a captured function would repeat nothing: throws Error in a function
  // that a SinkCache captures, too.
  void require_issuer(const char* call, const Where& where) const;

  // Calls what waits for steps, or reports them. Logs what that throws, and returns false then.
  bool log_failure(FunctionRef<void()> call) noexcept;
  // sync() behind its checks.
  void wait_and_report(const Where& where);

  void allocate_status(const Where& where);
  // Waits for all steps, and forgets all that was bound to addresses. Throws Error if a graph of the caller's uses it.
  void unbind(const Where& where);
  void prepare_plan();
  std::unique_ptr<ShapeEntry> make_entry(const Where& where);
  Addresses addresses(const Plan& plan, const Where& where);
  void watch_host_ops();
  void trim_shapes();
  bool give_up_memory(const std::string& problem) override;
  Error no_memory(const std::string& what, const std::string& remedy, const Where& where,
                  const OutOfMemory& problem) override;
  std::string rooms_text(const MemoryReport& needs) const;
  std::string movable_text(int number);
  MemoryReport report();  // its workspaces are those of the ops prepared so far

  // Throws Error, having changed nothing, if the run cannot be.
  void require_run(const char* call, Mode mode, std::int64_t steps, const Where& where);
  // Throws Error with all reasons unless the whole step is one launch. It points at the line of the first reason that
  // has one.
  void require_whole(const char* call, const char* wanted_by, const Where& where);
  // Throws Error if a wait for other ranks was given up.
  void require_ranks();
  // Throws Error unless a step can become a part of a capture of the caller's.
  void require_enqueue(const Where& where);
  // Throws Error unless time_ops() can measure the steps.
  void require_timeable(const Where& where);
  // Throws Error for a Value of another graph.
  void require_own(const Value& input, const char* call, const Where& where) const;
  Stream& callers_stream(const char* call, cudaStream_t stream, const Where& where);
  // The program's stream goes on behind what the caller's stream was given so far.
  void wait_for_caller(cudaStream_t stream, const Where& where);
  // The same for a write; throws Error for a stream that is being captured.
  void begin_write(cudaStream_t stream, const Where& where);
  // Ends a call that has given work to the program's streams. The caller's `stream` goes on behind that work. Without a
  // stream, this waits on the host if the caller's next use of the results is not ordered with the program's stream: a
  // launch of a graph that holds a step, and with `is_for_caller` any use.
  void end_call(const std::optional<cudaStream_t>& stream, bool is_for_caller = false);
  // Tells the watch how the program runs, for its message if a wait for other ranks is given up.
  void tell_watch(const ShapeEntry& entry, Mode mode);
  void refresh_invariant_copies();
  // Runs steps [first, end of the run) and returns that end. If a step has found that a result has another size than
  // was planned for, selects a plan for that size and returns the number of that step, from which to go on.
  std::int64_t run_from(std::int64_t first, Mode mode, const RunOptions& options, const Where& where);
  // With laps of `clock`, unless it is null.
  void issue_run(Mode mode, std::int64_t first, std::int64_t end, OpClock* clock, const Where& where);
  // Waits for the run; whether a step failed only because of the size of a result. Then the plan for that size is
  // selected, and the failure forgotten.
  bool has_missed_size();
  std::uint32_t committed_steps() const;  // number of steps that have ended and committed, modulo 2^32
  // Throws Error for an op that must not run twice for one step.
  void refuse_effects() const;
  // Waits for all steps, without a word on those that failed.
  void finish_steps();
  // If issuing failed half-way: waits for all streams, so that the program can go on.
  void settle();

  ForkMark fork_mark_;
  OneThread one_thread_;
  const CompileOptions options_;
  const Log log_;
  const GraphData graph_;                      // the snapshot
  const std::shared_ptr<GraphData> original_;  // the caller's graph; its Values name inputs and outputs
  RunningCalls running_calls_;
  Session session_;
  UsedVariables variables_;
  StepStatus status_;
  ProgramMemory memory_;
  CallersMemory callers_memory_;
  Records records_;
  Inputs inputs_;
  const bool has_result_sizes_;     // that depend on data, without an upper bound
  const bool exchanges_on_device_;  // ranks exchange values on the device
  CapturePolicy capture_policy_;
  StepRunner runner_;
  ProgramShapes shapes_;
  MeasuredRuns runs_;
  ArgumentAudit argument_audit_;
  NodeNamesFile node_names_;
  ReplayAudit replay_audit_;
  std::unique_ptr<OpClock> op_clock_;  // clock of the last time_ops(), if that failed: its steps may still be running
  TurnOfProgram turn_{[this] { finish_steps(); }};
  std::shared_ptr<const RankWait> rank_wait_;  // null if the plan that was bound last exchanges on no device
  std::optional<HostWatch> watch_;             // once a plan has ops on the host or loops; gone before what it looks at
  bool is_in_callers_graph_ = false;           // a step was captured by enqueue()
  bool is_unsettled_ = false;  // issuing failed half-way: streams may be busy that stream() does not wait for
  std::pair<const RankWait*, Mode> told_run_{nullptr, automatic};  // the last one of tell_watch()
};

}  // namespace graphsink
