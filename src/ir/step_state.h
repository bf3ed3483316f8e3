// StepState: all that a program keeps of the running step, behind the StepBlock that bodies get.
#pragma once

#include <cstdint>

#include "graphsink/step_block.h"

namespace graphsink {

struct StepTimes;

// StepState::error_node after a step at which the run stops: the number of no node.
constexpr std::int32_t kStopNode = 0x7fffffff;

// In device memory, one for each program. The base is for all bodies; the rest is for the plan's own begin and end
// nodes.
struct StepState : StepBlock {
  std::int32_t slice = 0;      // which slice of the feeds this step reads
  std::int32_t end_slice = 1;  // the slice at which the launch ends, not included
  bool more = false;           // another step follows in this launch: the predicate of the loop over steps
  bool stops = false;          // a condition of stop_when() holds, in plans in which ranks compare that
  std::uint8_t unused[2] = {};
  std::uint32_t records = 0;       // steps whose records were stored so far, modulo 2^32: the position in the rings
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

// For a step that failed because a stop_when() held on some ranks alone.
constexpr const char* kStopOfRankRemedy =
    "make the condition from results of collectives, which are equal on all ranks";

// StepBlock::error_index of StepError::other_stop.
constexpr std::int64_t stop_of_rank(int rank, bool held_here) { return held_here ? -1 - rank : rank; }

// For a step that failed because the ranks were at different ones.
constexpr const char* kStepOfRankRemedy =
    "restore() the same checkpoint on all ranks, or give set_steps() the same number on all of them";

// StepBlock::error_index of StepError::other_step.
constexpr std::int64_t step_of_rank(int rank, std::int32_t step) { return std::int64_t{step} << 16 | rank; }

// StepBlock::error_index of a step that failed on another rank: which rank that is, and why it failed there. The index
// of that reason keeps its lowest 40 bits and its sign, and the rank 16 bits.
struct ErrorOfRank {
  int rank = 0;
  StepError error = StepError::unknown;
  std::int64_t index = 0;
};
constexpr std::int64_t packed(const ErrorOfRank& why) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(why.index) << 24 |
                                   (static_cast<std::uint64_t>(why.error) & 0xff) << 16 |
                                   (static_cast<std::uint64_t>(why.rank) & 0xffff));
}
constexpr ErrorOfRank unpacked(std::int64_t error_index) {
  return {static_cast<int>(error_index & 0xffff), static_cast<StepError>(error_index >> 16 & 0xff), error_index >> 24};
}

}  // namespace graphsink
