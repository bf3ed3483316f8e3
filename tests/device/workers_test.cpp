// Threads that work on one launch together.
#include "device/cpu/workers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>
#include <vector>

#include "base/at.h"
#include "base/in_body.h"

namespace graphsink::workers_test {
namespace {

std::ptrdiff_t threads() {
  std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

class WorkersOf : public ::testing::TestWithParam<int> {
 protected:
  Workers workers_{GetParam(), this, true};
};

TEST_P(WorkersOf, EachIsCalledOnceInEachRun) {
  std::vector<int> calls(at(workers_.count()));
  for (int run = 1; run <= 200; ++run) {
    ASSERT_TRUE(workers_.run([&](int worker) { ++calls[at(worker)]; }));
    for (int count : calls) ASSERT_EQ(count, run);
  }
}

// In each round, every worker writes a number, and then reads those of all.
TEST_P(WorkersOf, SeeWhatTheOthersDidBeforeTheyMet) {
  constexpr int kRounds = 300;
  std::vector<int> numbers(at(workers_.count())), sums(at(workers_.count()));
  workers_.run([&](int worker) {
    for (int round = 0; round < kRounds; ++round) {
      numbers[at(worker)] = round + worker;
      workers_.meet();
      sums[at(worker)] += std::accumulate(numbers.begin(), numbers.end(), 0);
      workers_.meet();
    }
  });
  const int n = workers_.count();
  for (int sum : sums) EXPECT_EQ(sum, n * kRounds * (kRounds - 1) / 2 + kRounds * n * (n - 1) / 2);
}

// A loop whose body changes what is decided, without a meeting.
TEST_P(WorkersOf, AgreeOnWhatTheFirstDecides) {
  int left = 500;
  std::vector<int> rounds(at(workers_.count()));
  workers_.run([&](int worker) {
    while (workers_.agree(worker, [&] { return left > 0 ? 0 : -1; }) == 0) {
      ++rounds[at(worker)];
      if (worker == 0) --left;
    }
  });
  for (int count : rounds) EXPECT_EQ(count, 500);
}

TEST_P(WorkersOf, RunBodiesOfTheirOwner) {
  std::vector<const void*> owners(at(workers_.count()));
  const InBody body(this);  // worker 0 is the thread of a queue, which says so for itself
  workers_.run([&](int worker) { owners[at(worker)] = InBody::owner(); });
  for (const void* owner : owners) EXPECT_EQ(owner, this);
}

TEST_P(WorkersOf, AreLentToOneRunAtATime) {
  bool is_lent_twice = true;
  workers_.run([&](int worker) {
    if (worker == 0) is_lent_twice = workers_.run([](int) {});
  });
  EXPECT_FALSE(is_lent_twice);
  EXPECT_TRUE(workers_.run([](int) {}));
}

TEST_P(WorkersOf, HaveNoThreadsAfterAWhileAndGetNewOnes) {
  const std::ptrdiff_t before = threads();
  for (int round = 0; round < 3; ++round) {
    int calls = 0;
    ASSERT_TRUE(workers_.run([&](int worker) {
      if (worker == 0) ++calls;
    }));
    EXPECT_EQ(calls, 1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (threads() > before && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_LE(threads(), before);  // those of the test before may just have ended
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, WorkersOf, ::testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace graphsink::workers_test
