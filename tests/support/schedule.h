// Returns the schedule of a plan as a list, for tests that compare its tasks.
#pragma once

#include <vector>

#include "ir/plan.h"

namespace graphsink::testing {

inline std::vector<Task> schedule_of(const Plan& plan) {
  std::vector<Task> tasks;
  for (const Task& task : plan.tasks_of(0)) tasks.push_back(task);
  return tasks;
}

}  // namespace graphsink::testing
