// PlanSummary: what the planner decided for a program, in numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Explains a decision of the planner, or of a device, that costs the user time.
struct Reason {
  std::string what;    // "hash_tokens runs on the host"
  Where where;         // the user's line; may be empty
  std::string why;     // the rule that forced the decision
  std::string cost;    // cost of the decision in each step
  std::string remedy;  // advice to the user: what to do about it
  int node = -1;       // number of the node in the graph; -1 if it is not about one node
};

// Result of Program::plan(). Program::explain_json() has all that the planner decided.
struct PlanSummary {
  bool sinks_whole = false;      // the whole step is one launch; false, too, while its capture fails
  bool loop_over_steps = false;  // a run of several steps is one launch; false, too, while its capture fails
  // The most steps of a launch that holds the nodes of a step once for each step, because collectives of NCCL may not
  // stand in a loop: a power of two, as Limits::unrolled_nodes allows. A run takes a launch for each power of two that
  // its number of steps is a sum of. 0: there are no such launches, and unless loop_over_steps is set, each step takes
  // launches_per_step.
  std::int64_t unrolled_steps = 0;
  bool has_collectives = false;  // several ranks exchange values in each step
  // Launches for a run of one step in mode sink, once it is captured, without those of bodies that the host drives.
  std::size_t launches_per_step = 0;
  std::size_t islands = 0;      // sets of tasks of which each is one launch, or is issued by the host
  std::size_t nodes = 0;        // calls of ops, with those in bodies and those that the planner added
  std::size_t host_nodes = 0;   // how many of them run on the host, although the device has a memory of its own
  int streams = 1;              // streams that the step runs on, of all its devices together
  std::size_t arena_bytes = 0;  // memory of the target for all values that a step computes
  std::size_t live_bytes = 0;   // the largest sum of values that are needed at the same time
  std::vector<Reason> reasons;  // explanations of what does not sink, and of what costs time
};

}  // namespace graphsink
