// Reports CPU bodies that do not come back, and launches with loops that do not end.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.h"
#include "base/thread.h"
#include "device/running_calls.h"
#include "exec/issue/launch_queue.h"
#include "exec/memory/run_gate.h"
#include "ir/agreement.h"
#include "ir/system_ops.h"

namespace graphsink {

// The ranks of collectives on a device, if there are any, and how far the steps are.
struct WatchedRanks {
  std::shared_ptr<const RankWait> wait = nullptr;
  const Progress* progress = nullptr;  // written by the device
  const RunGate* gate = nullptr;       // the program's: says since when a read of a Variable waits for its steps
};

// Logs a warning for each of `calls` that has been running for `patience`, and again each time that doubles. Likewise
// for a program with loops, while one of its calls waits and no launch has begun for so long. Gives up the wait for
// other ranks while one of its calls waits, or a read of one of its Variables, no launch has begun, and no step has
// ended as long as their patience lasts. `calls`, the nodes in it, and `launches` must outlive it.
class HostWatch {
 public:
  // `loops`: names the loops of a step, for a message; "" if there are none. A patience of 0 is that of a program whose
  // ops and loops nobody watches.
  HostWatch(const RunningCalls& calls, const LaunchQueue& launches, std::string loops,
            std::chrono::milliseconds patience, Log log, WatchedRanks ranks = {});
  ~HostWatch();

  // For the program's thread, which asks from time to time whether the steps have ended, and has seen that they have
  // not: whether that was so, with no launch given or begun and no step ended, as long as the ranks' patience lasts.
  bool has_asked_too_long();

  // For the program's thread: whose steps it issues from now on, and how, for people, such as "in mode sink".
  void set_run(std::shared_ptr<const RankWait> ranks, std::string how);
  // Gives up the wait for these ranks. Any thread may call it.
  void give_up() const;

  // The program's thread waits for launches, or issues them, while one lives. `watch` may be null. May be nested.
  class Wait {
   public:
    explicit Wait(HostWatch* watch)
        : watch_(watch && (!watch->loops_.empty() || watch->ranks_.wait) ? watch : nullptr) {
      if (watch_) outer_ = watch_->waits_since_.exchange(RunningCalls::now().count(), std::memory_order_relaxed);
    }
    ~Wait() {
      if (watch_) watch_->waits_since_.store(outer_, std::memory_order_relaxed);
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    HostWatch* watch_;
    std::int64_t outer_ = 0;
  };

 private:
  void watch();
  void look(std::chrono::nanoseconds now);
  void look_at_launches(std::chrono::nanoseconds now);
  void look_at_ranks(std::chrono::nanoseconds now);
  struct Exchanges;
  bool has_waited_too_long(Exchanges& seen, std::int64_t wait, std::chrono::nanoseconds now) const;

  const RunningCalls& calls_;
  const LaunchQueue& launches_;
  const std::string loops_;
  std::chrono::milliseconds patience_;
  Log log_;
  const WatchedRanks ranks_;
  std::atomic<std::int64_t> waits_since_{0};  // RunningCalls::now() in ns; 0: the program's thread does not wait
  // Launches as they were seen last: the wait, how many had begun and since when, and the age that was reported last.
  struct Launches {
    std::int64_t wait = 0;
    std::uint32_t begun = 0;
    std::chrono::nanoseconds since{}, reported{};
  } seen_;
  // Exchanges as they were seen last: the wait, launches that had begun, steps that were committed, where the last
  // failed one was in its launch, and since when.
  struct Exchanges {
    std::int64_t wait = 0;
    std::uint32_t begun = 0, committed = 0;
    std::int32_t failed = 0;
    std::chrono::nanoseconds since{};
  } exchanges_, asked_;  // the latter for the program's thread
  // Per slot: what was reported last, and how long it had been running then.
  struct Reported {
    std::int64_t since = 0;
    std::chrono::nanoseconds age{};
  };
  std::array<Reported, RunningCalls::kSlots> reported_{};
  mutable std::mutex run_mutex_;
  std::shared_ptr<const RankWait> ranks_of_run_;  // see set_run()
  std::string how_it_runs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  Thread thread_;
};

}  // namespace graphsink
