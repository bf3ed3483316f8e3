// Gives the steps of a bound plan to the program's streams: op by op, or as launches of what was captured before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/function_ref.h"
#include "base/log.h"
#include "exec/capture/capture_policy.h"
#include "exec/issue/launch_queue.h"
#include "exec/issue/program_shapes.h"
#include "exec/issue/session.h"
#include "exec/memory/program_memory.h"
#include "exec/report/op_clock.h"
#include "exec/report/step_status.h"

namespace graphsink {

// Label of a measured step in StepTimes: its entry, whether it was sunk, and a number of the caller's.
class TimeTag {
 public:
  explicit TimeTag(std::uint64_t value) : value_(value) {}
  // `turn` is below 2^47. Precondition: can_name(entry).
  TimeTag(std::size_t entry, bool is_sunk, std::uint64_t turn)
      : value_(std::uint64_t{entry} << kEntryShift | std::uint64_t{is_sunk} << kSunkShift | turn) {}
  static bool can_name(std::size_t entry) { return entry >> (64 - kEntryShift) == 0; }

  std::uint64_t value() const { return value_; }
  std::size_t entry() const { return value_ >> kEntryShift; }
  bool is_sunk() const { return value_ >> kSunkShift & 1; }
  std::uint64_t turn() const { return value_ & ((std::uint64_t{1} << kSunkShift) - 1); }

 private:
  static constexpr int kEntryShift = 48, kSunkShift = 47;
  std::uint64_t value_;
};

// One per program. The entries that it is given are those of this program, and their Variables were taken
// (UsedVariables). Steps [first, end) are the slices of the feeds that they read. Used by one thread at a time; nothing
// here waits for a step, but where a predicate is to be read.
class StepRunner {
 public:
  // Called with each new capture of an entry.
  using OnCapture = std::function<void(ShapeEntry&, const CapturedGraph&)>;

  // `policy` says when to capture, and is told what captures took.
  StepRunner(Session& session, const StepStatus& status, CapturePolicy& policy, const Log& log, OnCapture on_capture);

  // `control`: the program's, on its target. Throws OutOfMemory.
  void allocate(Control* control);

  void set_seed(std::uint32_t seed) {
    params_.seed = seed;
    update_standing();
  }
  // Before a step is captured with other ranks. `with_room` says for how many sets of input shapes this rank has room;
  // when the ranks have tried to capture a step, `keep` is told the least of their numbers.
  void set_shapes_of_ranks(std::function<std::int64_t()> with_room, std::function<void(std::int64_t)> keep) {
    shapes_with_room_ = std::move(with_room);
    keep_shapes_ = std::move(keep);
  }
  // To be called when StepStatus::acknowledged() has changed, for steps in graphs of the caller's.
  void update_standing() { launches_.set_standing(params_.seed, status_.acknowledged()); }
  // Steps that are given to the device from now on report in `times` how long they took, with a TimeTag of `turn`;
  // null: they do not.
  void set_times(StepTimes* times, std::uint64_t turn = 0) {
    times_ = times;
    turn_ = turn;
  }

  // For tests: how long captures take is measured with `clock`, in ns, from now on.
  void set_host_clock(double (*clock)()) { host_clock_ = clock; }

  // In any mode but automatic. Throws Error, having issued nothing, if other ranks begin to run in another mode.
  void run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end);
  // Steps [first, end) with laps of the clock between tasks, on one stream. Where the whole step of `sink` is one
  // launch, it is captured, so that the device need not wait for the host; else it is issued op by op. Precondition: a
  // step has run.
  void run_timed(ShapeEntry& entry, OpClock& clock, std::int64_t first, std::int64_t end);
  // Makes a step a part of the capture that the caller has begun on `callers`. The captured graph keeps `owner` alive,
  // which owns this runner and all that the step uses. Precondition: the whole step of `sink` is one launch. If it
  // throws, a part of the step may be in the capture.
  void enqueue(ShapeEntry& entry, Stream& callers, std::shared_ptr<void> owner);
  // Whether a run of `steps` steps needs no further capture.
  bool is_captured(const ShapeEntry& entry, Mode mode, std::int64_t steps) const;

  const LaunchQueue& launches() const { return launches_; }
  // After issuing failed half-way, and all work is done: see LaunchQueue::resume().
  void resume() { launches_.resume(); }
  void note_all_over() { launches_.note_all_over(); }
  std::uint64_t fallbacks() const { return fallbacks_; }  // steps of a sunk run that ran op by op after all
  // Whether this rank has captured anything since the last call of forget_captures(), or all ranks have tried to.
  bool has_captured() const { return has_captured_; }
  void forget_captures() { has_captured_ = false; }

 private:
  Device& device() const { return session_.device(); }
  Stream& stream() const { return session_.stream(); }
  // Those on which a step is issued, per stream of the plan.
  Streams streams(const ShapeEntry& entry, Session::Spread spread) {
    return session_.streams_for(entry.plan().stream_devices, spread);
  }
  Streams streams(const ShapeEntry& entry, Mode mode);
  // Before the first run in a mode, all ranks wait for each other, and hear of it if one runs in another mode.
  void agree_on(const ShapeEntry& entry, Mode mode);
  // Whether a step of that mode is launched, as on all ranks.
  bool can_launch(const ShapeEntry& entry, Mode mode) const;
  // Writes the parameters of the launch, or of the live begin, that the caller issues next.
  void push_params(ShapeEntry& entry, bool is_sunk, std::int64_t first_slice, std::int64_t end_slice);
  void run_interactive(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end);
  void run_sunk(ShapeEntry& entry, Mode asked, std::int64_t first, std::int64_t end);
  void launch_islands(ShapeEntry& entry, Mode mode, std::int64_t step);
  // These return false, with a warning that says what happens `otherwise`, if the device cannot capture what `issue`
  // does. Nothing is lost then.
  bool capture(ShapeEntry& entry, CaptureSlot& slot, std::unique_ptr<CapturedGraph> spare, Mode mode,
               FunctionRef<void(Streams)> issue, const char* otherwise);
  bool capture_islands(ShapeEntry& entry, Mode mode);
  // The same on all ranks, where they exchange values on the device: returns true if all of them have captured theirs.
  // `asked` may have nothing to split. Waits for the steps issued so far, and for the ranks. Then all of them drop the
  // same sets of input shapes: one that dropped another set would capture it again alone.
  bool capture_on_all_ranks(ShapeEntry& entry, Mode asked);
  bool capture_loop(ShapeEntry& entry, Mode mode);
  // Runs steps as launches that hold 1, 2, 4, 8 ... steps each, the largest first.
  void launch_unrolled(ShapeEntry& entry, std::int64_t first, std::int64_t end);
  // The same as capture_on_all_ranks() for a launch of several steps. Throws Error on all ranks if theirs have other
  // numbers of steps.
  bool capture_unrolled(ShapeEntry& entry, CaptureSlot& slot, std::int64_t steps);

  Session& session_;
  const StepStatus& status_;
  CapturePolicy& policy_;
  Log log_;
  OnCapture on_capture_;
  std::function<std::int64_t()> shapes_with_room_;
  std::function<void(std::int64_t)> keep_shapes_;
  const bool* more_ = nullptr;  // on the target: StepState::more
  LaunchQueue launches_;
  LaunchParams params_;
  StepTimes* times_ = nullptr;
  std::uint64_t turn_ = 0;
  double (*host_clock_)();
  std::uint64_t fallbacks_ = 0;
  bool has_captured_ = false;
  std::uint8_t known_modes_ = 0;  // a bit for each mode that agree_on() was called for
};

}  // namespace graphsink
