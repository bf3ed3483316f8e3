// What a Program is made of.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/inputs.h"
#include "base/fork_mark.h"
#include "base/in_body.h"
#include "device/device.h"
#include "device/step_times.h"
#include "exec/bound_plan.h"
#include "exec/capture_slot.h"
#include "exec/host_watch.h"
#include "exec/launch_queue.h"
#include "exec/mode_chooser.h"
#include "exec/run_gate.h"
#include "exec/session.h"
#include "exec/slot_cache.h"
#include "exec/variable.h"
#include "graphsink/program.h"
#include "ir/graph_data.h"

namespace graphsink {

// What the host and the steps of a program tell each other, in one piece of device memory.
struct Control {
  StepBlock block;
  FeedTable feeds;
  std::uint32_t next_launch = 0;  // LaunchRing::next
};

// What a program keeps for one set of shapes of its inputs.
struct ShapeEntry {
  ShapeEntry(std::size_t number, std::shared_ptr<const Plan> plan, std::vector<Prepared> nodes,
             const Addresses& addresses, Devices devices);

  std::size_t number;  // in the cache of the program
  BoundPlan bound;
  bool ran_once = false;
  std::uint64_t last_launch = 0;  // LaunchQueue::pushed() then
  // Captured after the first step. Of the islands of the plan, those that the host drives remain as they are.
  std::vector<CaptureSlot> islands, split_islands;
  CaptureSlot loop;     // many steps in one launch
  ModeChooser chooser;  // of run(automatic)
  // For the argument audit: what each kernel of an op was given when it was captured last, and ops with a warning.
  std::map<std::pair<const BoundNode*, std::size_t>, Arguments> arguments;
  std::set<const BoundNode*> warned;

  std::vector<CaptureSlot>& slots_of(Mode mode) { return mode == split_sink ? split_islands : islands; }
  // Whether every island of that mode that can be captured is.
  bool is_captured(Mode mode) const;
  // An estimate of all memory that goes with these shapes.
  std::size_t bytes() const;
};

// What a step took, in ns.
using StepClock = std::function<double(Mode)>;

class Program::Impl {
 public:
  Impl(const Graph& graph, const CompileOptions& options, const Where& where);
  ~Impl();
  // Before the destructor: waits for all work. Returns false if some may still be running, and using what this owns.
  bool finish() noexcept;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Plan& plan();  // for the shapes written last
  PlanFacts facts() const;
  void write(const Value& input, const TensorType& type, const void* data, bool shape_is_known, const Where& where);
  MemoryReport memory();
  void bind(const Where& where);
  void run(Mode mode, const RunOptions& options, const Where& where);
  void sync(const Where& where);
  bool poll(const Where& where);
  std::vector<double> take_record(std::string_view name, bool may_run, const Where& where);
  std::vector<double> read_record(std::string_view name, const Where& where);
  std::int64_t lost_records(std::string_view name, const Where& where);
  Tensor read_output(std::string_view name, const Where& where);
  Tensor read_output(const Value& value, const Where& where);
  void set_seed(std::uint32_t seed) { params_.seed = seed; }
  std::int64_t steps(const Where& where);
  void set_steps(std::int64_t steps, const Where& where);
  Counters counters() const;
  AutomaticReport automatic_report();
  void set_step_clock(StepClock clock) { step_clock_ = std::move(clock); }
  std::optional<CaptureInfo> captured(bool several_steps) const;
  std::size_t arena_bytes() const { return memory_[0].arena->size(); }
  const Target& target() const { return device().target(); }
  std::vector<Variable> variables() const;

 private:
  // A Variable, kept alive.
  struct Used {
    Variable variable;
    std::shared_ptr<DeviceVariable> home;
    bool is_written = false;    // by the program
    std::uint64_t version = 0;  // when take_variables() last saw it
  };
  // By address, which is the order in which every program locks them.
  using UsedVariables = std::map<const VariableData*, Used>;

  // Through which Variable::read() asks the program for a failed step. May outlive the program.
  class Writer : public VariableWriter, public std::enable_shared_from_this<Writer> {
   public:
    explicit Writer(Impl& program) : program_(&program) {}
    void report_failed_step() override;
    void add(const Variable& variable);  // from now on reads of it ask
    void leave();                        // the program ends

   private:
    std::mutex mutex_;
    Impl* program_;
  };
  struct Failure {
    explicit Failure(Error why) : error(std::move(why)) {}
    Error error;
    bool is_told = false;  // to a thread that does not use the program
  };
  struct Record {
    std::string name;
    double* ring = nullptr;
    std::uint32_t capacity = 0;
    std::uint32_t read = 0;  // values taken so far, or lost; modulo 2^32
    std::int64_t lost = 0;
  };

  Device& device(int number = 0) const { return session_.device(number); }
  Stream& stream() const { return session_.stream(); }
  // Those on which a step is issued, per stream of the plan.
  Streams streams(Mode mode) {
    return streams(mode.width == Mode::Width::one_stream ? Session::Spread::serial : Session::Spread::parallel);
  }
  Streams streams(Session::Spread spread) {
    return session_.streams_for(current_->bound.plan().stream_devices, spread);
  }
  Plan make_current_plan() const;
  void prepare_plan();
  void watch_host_ops();
  // Whether the entry must stay in the cache: it is the current one, or a launch of it may still be running.
  bool is_busy(const ShapeEntry& entry) const;
  void trim_shapes();
  // After `problem`: waits for all work, and gives up what is kept for other shapes. False if there is none.
  bool drop_other_shapes(const std::string& problem);
  HostWatch* watch() { return watch_ ? &*watch_ : nullptr; }
  MemoryReport report();  // its workspaces are those of the ops prepared so far
  // What `make` returns. Where there is no memory for it, other shapes are dropped and `make` is called once more; if
  // that does not help, throws an Error that names `what`, and what the program needs.
  template <class Make>
  auto allocate(const std::string& what, const std::string& remedy, const Where& where, Make&& make);
  Error out_of_memory(const std::string& what, const std::string& remedy, const Where& where,
                      const std::string& problem);
  void allocate_status(const Where& where);
  void allocate_records(const Where& where);
  DeviceAddresses further_addresses(const PlanDevice& needs, int number, const Where& where);
  Addresses addresses(const Plan& plan, const Where& where);
  void bring_variables(const Plan& plan, const Where& where);
  void upload_constants(const Plan& plan, const Where& where);
  // Brings the program inside, after all that others have done with its Variables so far.
  void enter_run(std::optional<RunGate::Inside>& inside);
  void take_variables();
  // Throws Error, having changed nothing, if the run cannot be.
  void require_run(Mode mode, std::int64_t steps, const Where& where);
  void issue_run(Mode mode, std::int64_t steps, const Where& where);
  // The program's stream goes on behind what the caller's stream was given so far.
  void wait_for_caller(void* stream, const Where& where);
  // Gives the device the addresses of the feeds' slices, if they are others than before.
  void upload_feed_table();
  // Writes the parameters of the launch, or of the live begin, that the caller issues next.
  void push_params(std::int64_t first_slice, std::int64_t end_slice);
  Control* control() const { return static_cast<Control*>(control_.get()); }  // an address of the device
  const Used& used(const Variable& variable) const { return variables_.at(variable.data().get()); }
  std::uint64_t version_of(const Buffer& source);  // an input, or a Variable as take_variables() found it
  void refresh_hoisted();
  void run_interactive(Mode mode, std::int64_t first, std::int64_t end);
  void run_sunk(Mode mode, std::int64_t first, std::int64_t end);
  void launch_islands(Mode mode, std::int64_t step);
  bool is_one_launch(Mode mode, std::int64_t steps) const;  // of several steps
  bool is_captured(Mode mode, std::int64_t steps) const;
  // These return false, with a warning that says what happens `otherwise`, if the device cannot capture what `issue`
  // does. Nothing is lost then.
  bool capture(CaptureSlot& slot, Mode mode, FunctionRef<void(Streams)> issue, const char* otherwise);
  bool capture_islands(Mode mode);
  bool capture_loop(Mode mode);
  // Automatic.
  void run_automatic(std::int64_t steps);
  void issue_turn(const ModeChooser::Turn& turn, std::int64_t first);
  void read_step_times();
  StepTimes& step_times() const { return *static_cast<StepTimes*>(step_times_.get()); }
  // Guards.
  struct State {
    std::vector<Tensor> variables;  // of the plan
    StepBlock block;
    Progress progress;
  };
  State state();
  void set_state(const State& state);
  std::vector<std::pair<std::string, Tensor>> results(std::uint32_t first_record);
  void poison();
  bool is_audited(Mode mode);  // a run in this mode, the next one
  void run_audited(Mode mode, std::int64_t steps, const Where& where);
  void audit_arguments(const CapturedGraph& graph);
  void warn_of_argument(const BoundNode* node, const std::string& problem);

  // Throws Error in a child of fork(), and in the body of an op of this program.
  void require_caller(const char* call, const Where& where) const;
  Progress& progress() const { return *static_cast<Progress*>(progress_.get()); }
  HostStatus& host_status() const { return *static_cast<HostStatus*>(host_status_.get()); }
  Record& record(std::string_view name, const Where& where);
  void note_lost(Record& record, std::uint32_t count);
  void note_broken_off_step();
  std::optional<Error> take_exception();
  Failure* find_failure(const Where& where);
  // Throws Error for the first step that failed since the last report.
  void report_failed_step(const Where& where);
  void require_whole_variables();
  void break_variables(const BrokenCommit& why);
  void settle();
  StepBlock download_block();
  Tensor download(const TensorType& type, const void* address);

  ForkMark fork_mark_;
  CompileOptions options_;
  Log log_;
  GraphData graph_;                      // the snapshot
  std::shared_ptr<GraphData> original_;  // whose Values name inputs and outputs
  Session session_;
  std::shared_ptr<Transfer> transfer_;  // of the Variables that come to the device with this program
  // What all plans share on a device: where their values are, and the StepBlock of a further device.
  struct DeviceMemory {
    std::unique_ptr<Arena> arena;
    Memory block;
  };
  std::vector<DeviceMemory> memory_;  // per device
  Memory control_;                    // Control, on the target
  LaunchQueue launches_;
  std::optional<FeedTable> feeds_{FeedTable{}};  // what the device has; empty: unknown, an upload failed
  Memory record_ring_;                           // of the host, written by the device, as is progress_
  Memory progress_;
  Memory host_status_;
  Memory step_times_;                                            // of the host, written by the device
  std::map<std::pair<int, int>, Memory> constants_;              // by device and node
  UsedVariables variables_;                                      // of all plans
  std::shared_ptr<RunGate> gate_ = std::make_shared<RunGate>();  // known to the Variables
  std::uint64_t taken_epoch_ = 0;                                // of gate_, when take_variables() succeeded last
  std::optional<Inputs> inputs_;
  SlotCache<InputShapes, ShapeEntry> shapes_;
  bool has_said_full_ = false;                     // that shapes_ is full
  bool has_captured_ = false;                      // since shapes_ was trimmed last
  ShapeEntry* current_ = nullptr;                  // for the shapes written last, if they are bound
  std::shared_ptr<const Plan> unbound_;            // else their plan, once it is made,
  std::optional<std::vector<Prepared>> prepared_;  // and what its nodes chose
  LaunchParams params_;
  std::vector<Record> records_;
  std::shared_ptr<Writer> told_by_reads_ = std::make_shared<Writer>(*this);  // known to the Variables it writes
  std::optional<Failure> failure_;                                           // found, and to be reported
  std::uint32_t acknowledged_ = 0;                                           // failures that were reported
  bool has_outputs_ = false;                                                 // the last run left some
  std::uint32_t step_times_read_ = 0;
  StepClock step_clock_;  // empty: the device's
  RunningCalls running_calls_;
  std::optional<HostWatch> watch_;  // once a plan has ops on the host or loops; gone before what it looks at
  std::uint64_t fallbacks_ = 0;
  std::int64_t sunk_runs_ = 0;
  bool is_unsettled_ = false;  // issuing failed half-way: some streams may be busy that stream() does not wait for
};

template <class Make>
auto Program::Impl::allocate(const std::string& what, const std::string& remedy, const Where& where, Make&& make) {
  try {
    try {
      return make();
    } catch (const OutOfMemory& e) {
      if (!drop_other_shapes(e.problem())) throw;
      return make();
    }
  } catch (const OutOfMemory& e) {
    throw out_of_memory(what, remedy, where, e.problem());
  } catch (const std::bad_alloc&) {
    throw out_of_memory(what, remedy, where, "the host is out of memory");
  }
}

}  // namespace graphsink
