// Counts every operator new of the process, and makes those of a thread fail.
#pragma once

#include <new>

namespace graphsink::testing {

// By all threads since the program began.
long allocations();

// While it lives, one allocation of the thread that made it throws std::bad_alloc: the one behind `number` others,
// without those of the software device.
class FailingAllocation {
 public:
  explicit FailingAllocation(long number);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  bool has_failed() const;
};

}  // namespace graphsink::testing
