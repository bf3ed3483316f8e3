// Threads that sleep until there is work for them.
#include "device/cpu/thread_team.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/in_body.h"
#include "device/cpu/helpers.h"
#include "device/cpu/workers.h"

namespace graphsink {
namespace {

// While it lives, the process gets no new threads: a stack would take all the addresses there are.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

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

TEST(ThreadTeams, WithoutThreadsTheFirstCallSaysSo) {
  std::vector<std::string> messages;
  const Log log([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
  Workers workers(3, this, true, log);
  Helpers helpers(3, this, true, log);
  {
    NoThreads none;
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
}  // namespace graphsink
