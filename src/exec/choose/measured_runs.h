// Runs whose steps tell how long they took: those in the mode `automatic`, which do what the chooser of the shapes at
// hand says, and those of programs that learn when a capture pays (CapturePolicy).
#pragma once

#include <functional>

#include "exec/issue/program_shapes.h"
#include "exec/issue/step_runner.h"
#include "exec/report/step_status.h"

namespace graphsink {

// Function that says how long a step in this mode took, in ns. If it is empty, the device's measurement counts.
using StepClock = std::function<double(Mode)>;

class MeasuredRuns {
 public:
  MeasuredRuns(const ProgramShapes& shapes, CapturePolicy& policy, StepRunner& runner, const StepStatus& status)
      : shapes_(shapes), policy_(policy), runner_(runner), status_(status) {}

  // In any mode.
  void run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end);
  // Tells the policy and the choosers of all entries what steps took meanwhile. Never waits.
  void read_step_times();
  // For tests: from now on `clock` says what steps took, and issuing and capturing them takes no time.
  void set_step_clock(StepClock clock) {
    step_clock_ = std::move(clock);
    runner_.set_host_clock([] { return 0.0; });
  }

 private:
  void run_automatic(ShapeEntry& entry, std::int64_t first, std::int64_t end);
  void issue_turn(ShapeEntry& entry, const ModeChooser::Turn& turn, std::int64_t first);

  const ProgramShapes& shapes_;
  CapturePolicy& policy_;
  StepRunner& runner_;
  const StepStatus& status_;
  StepClock step_clock_;
  std::uint32_t times_read_ = 0;  // number of the next entry of StepTimes to read, modulo 2^32
};

}  // namespace graphsink
