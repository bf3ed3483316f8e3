// For the tests of this library: the clock of the mode `automatic`.
#pragma once

#include <utility>

#include "api/program_impl.h"

namespace graphsink {

class ProgramAccess {
 public:
  // From now on `ns(side)` is what each step took that automatic measures, and issuing takes no time.
  static void set_step_clock(Program& program, StepClock ns) { program.impl_->set_step_clock(std::move(ns)); }
};

}  // namespace graphsink
