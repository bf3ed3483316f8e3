// Calls of a Program for other layers of this library and for its tests.
#pragma once

#include "base/one_thread.h"
#include "exec/choose/measured_runs.h"
#include "graphsink/program.h"

namespace graphsink {

class ProgramAccess {
 public:
  // For functions that call the program several times: until what this returns is gone, other threads are refused, also
  // between two calls. Throws Error while another thread is in a call of the program.
  static Held hold(const Program& program, const Where& where);

  // For the tests, the clock of the mode `automatic`: from now on `ns(side)` is what each step took that it measures,
  // and issuing takes no time.
  static void set_step_clock(Program& program, StepClock ns);
};

}  // namespace graphsink
