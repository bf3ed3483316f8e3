// Threads that help streams with the tiles of their nodes.
#include "device/cpu/helpers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "base/at.h"
#include "base/in_body.h"

namespace graphsink::helpers_test {
namespace {

void add_to(std::vector<int>& calls, std::int64_t first, std::int64_t end) {
  for (std::int64_t i = first; i < end; ++i) ++calls[static_cast<std::size_t>(i)];  // no two ranges have the same tile
}

class HelpersOf : public ::testing::TestWithParam<int> {
 protected:
  Helpers helpers_{GetParam(), this, true};
};

TEST_P(HelpersOf, EachTileRunsOnce) {
  helpers_.begin_work();
  for (std::int64_t tiles : {1, 2, 7, 1000}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<int> calls(static_cast<std::size_t>(tiles));
      helpers_.share(tiles, [&](std::int64_t first, std::int64_t end) { add_to(calls, first, end); });
      ASSERT_EQ(calls, std::vector<int>(static_cast<std::size_t>(tiles), 1));
    }
  }
  helpers_.end_work();
}

// Each range waits until as many run as there are threads.
TEST_P(HelpersOf, AllThreadsTakePart) {
  helpers_.begin_work();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived = 0;
    std::atomic<bool> are_together = true;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    helpers_.share(100, [&](std::int64_t, std::int64_t) {
      ++arrived;
      while (arrived < helpers_.threads() && are_together) {
        if (std::chrono::steady_clock::now() > deadline) are_together = false;
        std::this_thread::yield();
      }
    });
    ASSERT_TRUE(are_together);
  }
  helpers_.end_work();
}

TEST_P(HelpersOf, RunBodiesOfTheirOwner) {
  const InBody body(this);  // the thread of a queue says so for itself
  std::atomic<int> strangers = 0;
  helpers_.share(100, [&](std::int64_t, std::int64_t) {
    if (InBody::owner() != this) ++strangers;
  });
  EXPECT_EQ(strangers, 0);
}

TEST_P(HelpersOf, DoNotComeIfStreamsHaveAllThreads) {
  for (int i = 0; i < helpers_.threads(); ++i) helpers_.begin_work();
  std::set<std::thread::id> threads;  // unguarded: the calls are on this thread
  helpers_.share(1000, [&](std::int64_t, std::int64_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
  for (int i = 0; i < helpers_.threads(); ++i) helpers_.end_work();
}

TEST_P(HelpersOf, AreAsManyAsStreamsLeave) {
  const int streams = std::max(1, helpers_.threads() - 1);
  for (int i = 0; i < streams; ++i) helpers_.begin_work();
  std::atomic<int> inside = 0, most = 0;
  helpers_.share(100, [&](std::int64_t, std::int64_t) {
    const int now = ++inside;
    int before = most;
    while (before < now && !most.compare_exchange_weak(before, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --inside;
  });
  EXPECT_LE(most, helpers_.threads() - streams + 1);
  for (int i = 0; i < streams; ++i) helpers_.end_work();
}

// Streams begin and end work at any time.
TEST_P(HelpersOf, SeveralStreamsShareAtTheSameTime) {
  std::vector<std::thread> streams;
  std::vector<int> wrong(4);
  for (int stream = 0; stream < 4; ++stream) {
    streams.emplace_back([&, stream] {
      for (int round = 0; round < 100; ++round) {
        helpers_.begin_work();
        for (int node = 0; node < 5; ++node) {
          std::vector<int> calls(static_cast<std::size_t>(10 + stream));
          helpers_.share(10 + stream, [&](std::int64_t first, std::int64_t end) { add_to(calls, first, end); });
          if (calls != std::vector<int>(calls.size(), 1)) ++wrong[at(stream)];
        }
        helpers_.end_work();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& stream : streams) stream.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

INSTANTIATE_TEST_SUITE_P(Counts, HelpersOf, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace graphsink::helpers_test
