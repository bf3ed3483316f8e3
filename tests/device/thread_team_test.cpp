// Threads that sleep until there is work for them.
#include "device/cpu/thread_team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/in_body.h"
#include "default_stack.h"
#include "device/cpu/helpers.h"
#include "device/cpu/workers.h"

namespace graphsink::thread_team_test {
namespace {

TEST(ThreadTeams, AThreadAnswersTheLastCall) {
  std::atomic<int> value = 0, seen[2] = {0, 0};
  ThreadTeam team(2, this, true, {}, [&](int thread) { seen[thread] = value.load(); });
  for (int i = 1; i <= 200; ++i) {
    value = i;
    ASSERT_TRUE(team.call());
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((seen[0] != 200 || seen[1] != 200) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(seen[0], 200);
  EXPECT_EQ(seen[1], 200);
}

cpu_set_t usable_cores() {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  return cores;
}

// A thread that is on the core of its caller leaves it, but may run on all cores again afterwards. One that begins has
// the cores of the thread that starts it.
TEST(ThreadTeams, ThreadsKeepTheCoresThatTheyMayUse) {
  const cpu_set_t all = usable_cores();
  cpu_set_t of_caller = all;
  std::atomic<int> core = -1, answers = 0;
  std::atomic<bool> may_use_all = true;
  ThreadTeam team(1, this, true, {}, [&](int) {
    const cpu_set_t own = usable_cores();
    if (!CPU_EQUAL(&own, &all) && !CPU_EQUAL(&own, &of_caller)) may_use_all = false;
    core = sched_getcpu();
    ++answers;
  });
  for (int call = 1; call <= 50; ++call) {
    if (call > 1) {  // go to where the thread is
      CPU_ZERO(&of_caller);
      CPU_SET(core, &of_caller);
      ASSERT_EQ(sched_setaffinity(0, sizeof of_caller, &of_caller), 0);
    }
    ASSERT_TRUE(team.call());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (answers != call && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    ASSERT_EQ(answers, call);
  }
  EXPECT_TRUE(may_use_all);
}

TEST(ThreadTeams, WithoutThreadsTheFirstCallSaysSo) {
  std::vector<std::string> messages;
  const Log log([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
  Workers workers(3, this, true, log);
  Helpers helpers(3, this, true, log);
  {
    const testing::DefaultStack none(std::size_t{1} << 47);  // as much as there are addresses
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(workers.run([](int) {}));
      std::int64_t tiles = 0;  // on this thread
      helpers.share(100, [&](std::int64_t first, std::int64_t end) { tiles += end - first; });
      EXPECT_EQ(tiles, 100);
    }
    ASSERT_EQ(messages.size(), 2u);  // one for each
    for (const std::string& message : messages) {
      EXPECT_NE(message.find("on fewer threads"), std::string::npos) << message;
      EXPECT_NE(message.find("ulimit -u"), std::string::npos) << message;
    }
  }
  std::atomic<int> calls = 0;
  EXPECT_TRUE(workers.run([&](int) { ++calls; }));
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace graphsink::thread_team_test
