#include "exec/host_watch.h"

#include <algorithm>

namespace graphsink {

HostWatch::HostWatch(const RunningCalls& calls, std::chrono::milliseconds patience, Log log)
    : calls_(calls), patience_(patience), log_(std::move(log)), thread_([this] { watch(); }) {}

HostWatch::~HostWatch() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void HostWatch::watch() {
  std::unique_lock lock(mutex_);
  auto pause = std::max(patience_ / 4, std::chrono::milliseconds(1));
  while (!changed_.wait_for(lock, pause, [&] { return is_over_; })) look(RunningCalls::now());
}

void HostWatch::look(std::chrono::nanoseconds now) {
  for (std::size_t i = 0; i < RunningCalls::kSlots; ++i) {
    const BoundNode* node = calls_.slots[i].node.load(std::memory_order_acquire);
    std::int64_t since = calls_.slots[i].since.load(std::memory_order_relaxed);
    if (!node) continue;
    Reported& reported = reported_[i];
    auto age = now - std::chrono::nanoseconds(since);
    auto next = reported.since == since ? 2 * reported.age : std::chrono::nanoseconds(patience_);
    if (age < next) continue;
    reported = {since, age};
    std::string milliseconds = std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
    log_.warn({node->op->name, " (", to_string(node->where), ") has been running on the host for ", milliseconds,
               " ms, and its step waits for it"});
  }
}

}  // namespace graphsink
