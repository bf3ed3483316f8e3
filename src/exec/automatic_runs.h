// Runs in the mode `automatic`: issues what the chooser of the shapes at hand says, and tells it what steps took.
#pragma once

#include <functional>

#include "exec/program_shapes.h"
#include "exec/step_runner.h"
#include "exec/step_status.h"

namespace graphsink {

// What a step took, in ns. Empty: what the device measured.
using StepClock = std::function<double(Mode)>;

class AutomaticRuns {
 public:
  AutomaticRuns(const ProgramShapes& shapes, StepRunner& runner, const StepStatus& status)
      : shapes_(shapes), runner_(runner), status_(status) {}

  void run(ShapeEntry& entry, std::int64_t steps);
  // Tells the choosers of all entries what steps took meanwhile. Never waits.
  void read_step_times();
  // For tests: from now on `clock` says what steps took, and issuing them takes no time.
  void set_step_clock(StepClock clock) { step_clock_ = std::move(clock); }

 private:
  void issue_turn(ShapeEntry& entry, const ModeChooser::Turn& turn, std::int64_t first);

  const ProgramShapes& shapes_;
  StepRunner& runner_;
  const StepStatus& status_;
  StepClock step_clock_;
  std::uint32_t times_read_ = 0;  // of StepTimes
};

}  // namespace graphsink
