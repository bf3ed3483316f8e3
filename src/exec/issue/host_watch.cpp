#include "exec/issue/host_watch.h"

#include <algorithm>

#include "ir/bound_node.h"

namespace graphsink {

namespace {
std::string milliseconds(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + " ms";
}
}  // namespace

HostWatch::HostWatch(const RunningCalls& calls, const LaunchQueue& launches, std::string loops,
                     std::chrono::milliseconds patience, Log log, WatchedRanks ranks)
    : calls_(calls),
      launches_(launches),
      loops_(std::move(loops)),
      patience_(patience),
      log_(std::move(log)),
      ranks_(std::move(ranks)),
      ranks_of_run_(ranks_.wait),
      thread_([this] { watch(); }) {}

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
  std::chrono::nanoseconds patience = ranks_.wait ? ranks_.wait->patience() : patience_;
  if (patience_.count() > 0) patience = std::min<std::chrono::nanoseconds>(patience, patience_);
  auto pause = std::max<std::chrono::nanoseconds>(patience / 4, std::chrono::milliseconds(1));
  // Ranks give up at nearly the same time, so that they hear from each other.
  if (ranks_.wait) pause = std::min<std::chrono::nanoseconds>(pause, std::chrono::seconds(1));
  while (!changed_.wait_for(lock, pause, [&] { return is_over_; })) look(RunningCalls::now());
}

void HostWatch::look_at_launches(std::chrono::nanoseconds now) {
  std::int64_t wait = waits_since_.load(std::memory_order_relaxed);
  if (wait == 0 || loops_.empty()) return;
  std::uint32_t begun = launches_.taken();
  if (wait != seen_.wait || begun != seen_.begun) seen_ = {wait, begun, now, {}};
  auto age = now - seen_.since;
  if (age < std::max(2 * seen_.reported, std::chrono::nanoseconds(patience_))) return;
  seen_.reported = age;
  log_.warn({"no launch has ended for ", milliseconds(age), ", and the program waits for one; its loops: ", loops_,
             "; give one that may not end WhileOptions::max_iterations"});
}

// `wait` identifies the wait; 0: there is none.
bool HostWatch::has_waited_too_long(Exchanges& seen, std::int64_t wait, std::chrono::nanoseconds now) const {
  const std::uint32_t begun = launches_.taken();
  auto& progress = const_cast<Progress&>(*ranks_.progress);  // which is only read
  const std::uint32_t committed = std::atomic_ref(progress.records).load();
  const std::int32_t failed = std::atomic_ref(progress.slice).load();
  const bool has_moved = begun != seen.begun || committed != seen.committed || failed != seen.failed;
  if (wait == 0 || wait != seen.wait || has_moved) {
    seen = {wait, begun, committed, failed, now};
    return false;
  }
  return now - seen.since >= ranks_.wait->patience();
}

bool HostWatch::has_asked_too_long() {
  return ranks_.wait && has_waited_too_long(asked_, static_cast<std::int64_t>(launches_.pushed()), RunningCalls::now());
}

void HostWatch::set_run(std::shared_ptr<const RankWait> ranks, std::string how) {
  const std::lock_guard lock(run_mutex_);
  ranks_of_run_ = std::move(ranks);
  how_it_runs_ = std::move(how);
}

void HostWatch::give_up() const {
  std::unique_lock lock(run_mutex_);
  const std::shared_ptr<const RankWait> ranks = ranks_of_run_;
  const std::string how = how_it_runs_;
  lock.unlock();
  ranks->give_up(how);
}

void HostWatch::look_at_ranks(std::chrono::nanoseconds now) {
  if (!ranks_.wait) return;
  std::int64_t wait = waits_since_.load(std::memory_order_relaxed);
  if (wait == 0 && ranks_.gate != nullptr) wait = ranks_.gate->awaited_since();
  if (has_waited_too_long(exchanges_, wait, now)) give_up();
}

void HostWatch::look(std::chrono::nanoseconds now) {
  look_at_ranks(now);
  if (patience_.count() == 0) return;
  look_at_launches(now);
  for (std::size_t i = 0; i < RunningCalls::kSlots; ++i) {
    const BoundNode* node = calls_.slots[i].node.load(std::memory_order_acquire);
    std::int64_t since = calls_.slots[i].since.load(std::memory_order_relaxed);
    if (!node) continue;
    Reported& reported = reported_[i];
    auto age = now - std::chrono::nanoseconds(since);
    auto next = reported.since == since ? 2 * reported.age : std::chrono::nanoseconds(patience_);
    if (age < next) continue;
    reported = {since, age};
    log_.warn({node->op->name, " (", to_string(node->where), ") has been running on the host for ", milliseconds(age),
               ", and its step waits for it"});
  }
}

}  // namespace graphsink
