#include "device/running_calls.h"

#include <gtest/gtest.h>

#include <deque>

namespace graphsink::running_calls_test {
namespace {

TEST(RunningCalls, EachHasASlotAndATimeOfItsOwn) {
  RunningCalls calls;
  BoundNode first, second;
  {
    RunningCall one(&calls, first);
    std::int64_t begun = calls.slots[0].since;
    EXPECT_EQ(calls.slots[0].node, &first);
    EXPECT_GT(begun, 0);
    while (RunningCalls::now().count() == begun) {
    }
    RunningCall other(&calls, second);
    EXPECT_EQ(calls.slots[1].node, &second);
    EXPECT_EQ(calls.slots[0].since, begun) << "a call that begins does not make one that hangs look young";
  }
  EXPECT_EQ(calls.slots[0].node, nullptr);
  EXPECT_EQ(calls.slots[1].node, nullptr);
}

TEST(RunningCalls, MoreThanThereAreSlotsAreNotSeen) {
  RunningCalls calls;
  BoundNode node, late;
  std::deque<RunningCall> running;
  for (std::size_t i = 0; i < RunningCalls::kSlots; ++i) running.emplace_back(&calls, node);
  RunningCall unseen(&calls, late);
  for (const RunningCalls::Slot& slot : calls.slots) EXPECT_EQ(slot.node, &node);
  RunningCall nowhere(nullptr, node);
}

}  // namespace
}  // namespace graphsink::running_calls_test
