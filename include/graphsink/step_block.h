// The state of the running step, for bodies that read its number or fail it.
#pragma once

#include <cstdint>
#include <string>

#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

struct StepTimes;

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
};
// "index 12 lies outside the axis".
std::string to_string(StepError error, std::int64_t index);

// The state of the running step, in device memory; each Program has one. A body that fails its step clears `ok` and
// sets the error fields. Ops that write Variables read `ok`, schedules read `step`, and random ops read `step` and
// `seed`. All else is for the plan's own begin and end nodes.
struct StepBlock {
  std::int32_t step = 0;       // number of this step, counted from 0: the steps committed so far
  std::uint32_t seed = 0;      // seed of the program; it must follow `step`, because random ops read both as one value
  std::uint32_t ok = 1;        // 0 if this step has failed and must commit nothing
  std::int32_t slice = 0;      // which slice of the feeds this step reads
  std::int32_t end_slice = 1;  // the slice at which the launch ends, not included
  bool more = false;           // another step follows in this launch: the predicate of the loop over steps
  std::uint8_t unused[3] = {};
  std::int32_t error_node = -1;          // BoundNode::id of the first node that cleared ok, or -1
  std::int32_t error_step = 0;           // number of the step in which it did so
  StepError error = StepError::unknown;  // why
  std::uint32_t records = 0;       // steps whose records were stored so far, modulo 2^32: the position in the rings
  std::int64_t error_index = 0;    // see StepError
  StepTimes* times = nullptr;      // where end_step stores the duration of the step; null: durations are not wanted
  std::uint64_t tag = 0;           // stored with the duration
  std::int64_t began = 0;          // when this step could begin, in ns of the device's clock
  std::uint32_t timed = 0;         // durations stored so far, modulo 2^32
  std::uint32_t acknowledged = 0;  // failed steps reported to the user when the launch was issued, modulo 2^32
  // The first node whose result has another size than the plan was made for (select.h), or -1, and the number of
  // elements that it found. The program plans for that size, and runs the step again.
  std::int32_t size_node = -1;
  std::int64_t size = 0;
};

}  // namespace graphsink
