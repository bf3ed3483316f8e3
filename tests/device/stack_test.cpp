// The stacks of the threads of a CPU device do not depend on the limit of the process.
#include <gtest/gtest.h>

#include "base/thread.h"
#include "default_stack.h"
#include "device/cpu/queue.h"
#include "device/cpu/workers.h"

namespace graphsink::stack_test {
namespace {

using testing::DefaultStack;
using testing::own_stack_bytes;

TEST(Stacks, OfWorkersAreLargeUnderASmallLimit) {
  const DefaultStack small(64 << 10);
  Workers workers(2, this, true);
  std::size_t bytes = 0;
  ASSERT_TRUE(workers.run([&](int worker) {
    if (worker == 1) bytes = own_stack_bytes();
  }));
  EXPECT_GE(bytes, Thread::kLeastStack);
}

TEST(Stacks, OfQueuesAreLargeUnderASmallLimit) {
  const DefaultStack small(64 << 10);
  Helpers helpers(1, this, true, {});
  CpuQueue queue(this, true, helpers);
  std::size_t bytes = 0;
  queue.push(
      {[](const CpuTask& task) { *static_cast<std::size_t*>(task.second) = own_stack_bytes(); }, nullptr, &bytes});
  queue.wait_for(queue.pushed());
  EXPECT_GE(bytes, Thread::kLeastStack);
}

}  // namespace
}  // namespace graphsink::stack_test
