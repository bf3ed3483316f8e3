// Collectives of the target: when they begin, and what may run beside them.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace graphsink {

// Whether the task is a collective whose values the target itself exchanges, without the host.
bool is_exchange(const Plan& plan, const Task& task);

// Orders the schedule so that each collective of the step begins as early as those in front of it allow: first comes
// what the first one needs, and so on. Collectives stay in the order in which they were built. Returns whether the
// order has changed; ids stay as they were.
bool advance_exchanges(Plan& plan);

// By id: whether the task is a collective, if behind one of them the schedule has a task, before the commit, that does
// not depend on it; else none is. Ids ascend along the schedule.
std::vector<bool> exchanges_beside(const Plan& plan, const Dependencies& deps, int commit);

// A collective, and the tasks of other streams that may run while it does, in the order of the schedule.
struct Beside {
  int exchange = -1;
  std::vector<int> tasks;
};
// Returns all collectives of the step. Precondition: tasks have their streams.
std::vector<Beside> beside_exchanges(const Plan& plan);

}  // namespace graphsink
