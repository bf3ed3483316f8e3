// Reports CPU bodies that do not come back.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "device/running_calls.h"

namespace graphsink {

// Logs a warning for each of `calls` that has been running for `patience`, and again each time that doubles. `calls`,
// and the nodes in it, must outlive it.
class HostWatch {
 public:
  HostWatch(const RunningCalls& calls, std::chrono::milliseconds patience, Log log);
  ~HostWatch();

 private:
  void watch();
  void look(std::chrono::nanoseconds now);

  const RunningCalls& calls_;
  std::chrono::milliseconds patience_;
  Log log_;
  // Per slot: what was reported last, and how long it had been running then.
  struct Reported {
    std::int64_t since = 0;
    std::chrono::nanoseconds age{};
  };
  std::array<Reported, RunningCalls::kSlots> reported_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace graphsink
