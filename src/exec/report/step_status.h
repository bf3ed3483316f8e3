// Reports of a program's steps to the host: which step failed and why, how far they are, how long they took.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "device/step_times.h"
#include "exec/issue/session.h"
#include "exec/memory/used_variables.h"
#include "ir/graph_data.h"
#include "ir/step_state.h"
#include "ir/system_ops.h"

namespace graphsink {

// A step fails in the step block of its device, where kernels clear `ok`; bodies on the host report in HostStatus,
// which a node of the plan carries over to the step block. The last node of a failed step tells Progress. A failure
// stays until report() has thrown it; meanwhile steps commit nothing.
//
// Used by the program's thread; only what teller() returns may be used by other threads.
class StepStatus {
 public:
  StepStatus(const GraphData& graph, const Session& session, const UsedVariables& variables);
  ~StepStatus();
  StepStatus(const StepStatus&) = delete;
  StepStatus& operator=(const StepStatus&) = delete;

  // `block`: the program's step block, on its target. `running`: where bodies on the host show that they run. Throws
  // OutOfMemory.
  void allocate(StepState* block, RunningCalls& running);
  // Bytes of the host that allocate() takes.
  static std::size_t bytes();

  HostStatus& host() const { return *static_cast<HostStatus*>(host_.get()); }
  Progress& progress() const { return *static_cast<Progress*>(progress_.get()); }
  StepTimes& times() const { return *static_cast<StepTimes*>(times_.get()); }
  // For LaunchParams::acknowledged: report() changes it, and calls `on_acknowledged` then.
  std::uint32_t acknowledged() const { return acknowledged_; }
  void set_on_acknowledged(std::function<void()> on_acknowledged) { on_acknowledged_ = std::move(on_acknowledged); }

  // Called in front of the report of a failed step to a reader of a Variable: `require_ranks` throws Error if a wait
  // for other ranks was given up. A reader is told so unless somebody was: after that, Variables have the values of the
  // last step that was committed, and can be saved.
  void set_require_ranks(std::function<void()> require_ranks) { require_ranks_ = std::move(require_ranks); }
  void note_ranks_told() { are_ranks_told_ = true; }

  // Wait for the program's stream.
  StepState download_block() const;
  // From memory of the device.
  Tensor download(const TensorType& type, const void* address, int device = 0) const;

  // All that steps have told, for a run that is to be repeated.
  struct Saved {
    StepState block;
    Progress progress;
  };
  Saved saved() const { return {download_block(), progress()}; }
  void restore(const Saved& saved);  // takes back what bodies on the host have thrown, too

  // Whether a step failed that report() has not thrown yet, as far as steps have told. Never waits.
  bool has_failed() const;
  // Throws Error, for the first step that failed since the last call. From the next launch on steps may commit again.
  void report(const Where& where);
  // A step that broke off while it was issued has no last node, which would have told of a failure: looks for one.
  // Waits for the program's stream.
  void note_broken_off();

  // Precondition of both: all steps are over, and none had failed before the last run. If a step of the run failed
  // because the result of a node has another size than was planned for: that node, and how many elements it found. If
  // there are several such nodes, the first in the graph is reported, because the others may depend on it.
  struct SizeMiss {
    int node = -1;
    std::int64_t elements = 0;
  };
  std::optional<SizeMiss> size_miss() const;
  // Forgets that failure: the step will run again.
  void forget_size_miss();

  // Whether the last run left outputs: it was issued as a whole, and no failure of it was reported, or only one after
  // which a graph of the caller's has run a step. May wait for the program's stream. Precondition: what failed was
  // reported.
  bool has_outputs() const;
  void set_has_outputs(bool has_outputs) { outputs_ = has_outputs ? Outputs::there : Outputs::none; }

  // Tells other threads, which read Variables, of failed steps.
  std::shared_ptr<VariableWriter> teller() const;

 private:
  class Teller;
  struct Failure {
    explicit Failure(Error why) : error(std::move(why)) {}
    Error error;
    bool is_told = false;  // to a thread that does not use the program
  };

  // The failure that report() has not thrown yet; null: there is none.
  Failure* find(const Where& where);
  // The failure counts as reported.
  void acknowledge();
  // The exception that a body on the host threw, as an Error; empty if none did. Returns it once, and waits for the
  // program's stream.
  std::optional<Thrown> take_exception();

  const GraphData& graph_;
  const Session& session_;
  const UsedVariables& variables_;
  StepState* block_ = nullptr;      // on the target
  Memory host_, progress_, times_;  // memory of the host; the device writes progress_ and times_
  std::optional<Failure> failure_;  // found
  std::uint32_t acknowledged_ = 0;  // failures that report() has thrown, modulo 2^32
  std::function<void()> on_acknowledged_, require_ranks_;
  std::atomic<bool> are_ranks_told_ = false;
  enum class Outputs : std::uint8_t { none, there, lost };  // lost: a failure was reported
  Outputs outputs_ = Outputs::none;
  std::shared_ptr<Teller> teller_;
};

}  // namespace graphsink
