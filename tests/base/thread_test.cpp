// The stack of a Thread.
#include "base/thread.h"

#include <gtest/gtest.h>

#include "default_stack.h"

namespace graphsink::thread_test {
namespace {

using testing::DefaultStack;
using testing::own_stack_bytes;

TEST(Threads, HaveAStackOfTheirOwnUnderASmallLimit) {
  const DefaultStack small(64 << 10);
  std::size_t bytes = 0;
  Thread thread([&] { bytes = own_stack_bytes(); });
  thread.join();
  EXPECT_GE(bytes, Thread::kLeastStack);
}

TEST(Threads, HaveTheStackOfALargerLimit) {
  const DefaultStack large(2 * Thread::kLeastStack);
  std::size_t bytes = 0;
  Thread thread([&] { bytes = own_stack_bytes(); });
  thread.join();
  EXPECT_GE(bytes, 2 * Thread::kLeastStack);
}

TEST(Threads, MoveAsTheThreadsOfTheStandard) {
  int runs = 0;
  Thread thread;
  EXPECT_FALSE(thread.joinable());
  for (int i = 0; i < 3; ++i) {
    thread = Thread([&] { ++runs; });
    EXPECT_TRUE(thread.joinable());
    Thread other = std::move(thread);
    EXPECT_FALSE(thread.joinable());  // NOLINT: it says so of what it was moved from
    other.join();
    EXPECT_FALSE(other.joinable());
  }
  EXPECT_EQ(runs, 3);
}

TEST(Threads, ThatTheSystemHasNotAreAnError) {
  const DefaultStack huge(std::size_t{1} << 60);
  EXPECT_THROW(Thread([] {}), std::system_error);
}

}  // namespace
}  // namespace graphsink::thread_test
