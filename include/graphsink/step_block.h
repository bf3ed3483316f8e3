// The state of the running step, for bodies that read its number or fail it.
#pragma once

#include <cstdint>
#include <string>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Why a body failed its step. The comments give the meaning of StepBlock::error_index; to_string() makes a sentence of
// both.
enum class StepError : std::int32_t {
  unknown,     // no reason was given
  not_finite,  // position of an element that is infinite or NaN
  index,       // an index that lies outside its axis
  target,      // a target that is not the number of a class
  iterations,  // number of iterations after which a loop was stopped
  body,        // an index that is the number of no body of a switch_
  size,        // the number of elements that were found, for which the result has no room
  stopped,     // number of the stop_when() whose condition held in a step that was committed
  other_rank,  // the rank on which the step failed, and why: the number names both
  other_stop,  // a rank on which a stop_when() held, and not on this one; or, if one held here, -1 - a rank without
  other_step,  // a rank that is at another step, and at which: the number names both
};
// "index 12 lies outside the axis".
std::string to_string(StepError error, std::int64_t index);

// The running step, as far as bodies see it, in device memory. A body that fails its step clears `ok` and sets the
// error fields, as fail_step() of kernel.h does; a CPU body may throw in place of that. Ops that write Variables read
// `ok`, schedules read `step`, and random ops read `step` and `seed`.
struct StepBlock {
  std::int32_t step = 0;   // number of this step, counted from 0: the steps committed so far
  std::uint32_t seed = 0;  // seed of the program; it must follow `step`, because random ops read both as one value
  std::uint32_t ok = 1;    // 0 if this step has failed and must commit nothing
  std::int32_t error_node = -1;          // BodyArgs::id() of the first op that cleared ok, or -1
  std::int32_t error_step = 0;           // number of the step in which it did so
  StepError error = StepError::unknown;  // why
  std::int64_t error_index = 0;          // see StepError
};

}  // namespace graphsink
