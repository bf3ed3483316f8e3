#include "device/cpu/workers.h"

#include <chrono>
#include <system_error>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "base/in_body.h"
#include "device/cpu/pause.h"

namespace graphsink {
namespace {

// Starting a thread costs some ten microseconds.
constexpr std::chrono::milliseconds kLongestSleep{100};
// In a run, the others are at work, so a worker that waits looks for them for longer, about a quarter of a millisecond,
// before it sleeps.
constexpr int kSpinsInRun = 5 * kSpins;

}  // namespace

Workers::Workers(int count, const void* owner, bool flush_denormals)
    : count_(count),
      owner_(owner),
      flush_denormals_(flush_denormals),
      threads_(at(count - 1)),
      is_working_(at(count - 1)) {}

Workers::~Workers() {
  if (fork_mark_.is_in_child()) {  // the threads are the parent's
    (void)new std::vector<std::thread>(std::move(threads_));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  awakened_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// Holds the mutex.
bool Workers::start_missing() {
  for (int worker = 1; worker < count_; ++worker) {
    if (is_working_[at(worker - 1)]) continue;
    std::thread& thread = threads_[at(worker - 1)];
    if (thread.joinable()) thread.join();  // it has decided to end, and needs no lock any more
    try {
      thread = std::thread([this, worker, runs = runs_.load()] { work(worker, runs); });
    } catch (const std::system_error&) {
      return false;
    }
    is_working_[at(worker - 1)] = true;
  }
  return true;
}

bool Workers::run(FunctionRef<void(int worker)> f) {
  if (is_busy_.exchange(true)) return false;
  {
    std::lock_guard lock(mutex_);
    if (!start_missing()) {
      is_busy_.store(false);
      return false;
    }
    function_ = &f;
    runs_.store(runs_.load() + 1);
  }
  awakened_.notify_all();
  f(0);
  meet();
  is_busy_.store(false);
  return true;
}

void Workers::meet() {
  const int meeting = meetings_.load(std::memory_order_relaxed);  // nobody changes it before this worker has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1);
    meetings_.notify_all();
    return;
  }
  for (int i = 0; i < kSpinsInRun; ++i) {
    if (meetings_.load(std::memory_order_acquire) != meeting) return;
    pause();
  }
  while (meetings_.load(std::memory_order_acquire) == meeting) meetings_.wait(meeting);
}

std::int32_t Workers::agree(int worker, FunctionRef<std::int32_t()> decide) {
  const std::int32_t& decision = decisions_[meetings_.load(std::memory_order_relaxed) & 1];
  if (worker == 0) const_cast<std::int32_t&>(decision) = decide();
  meet();
  return decision;
}

bool Workers::wait_for_run(int worker, int runs) {
  for (int i = 0; i < kSpins; ++i) {
    if (runs_.load(std::memory_order_acquire) != runs) return true;
    pause();
  }
  std::unique_lock lock(mutex_);
  awakened_.wait_for(lock, kLongestSleep, [&] { return runs_.load() != runs || stops_; });
  if (runs_.load() != runs) return true;
  is_working_[at(worker - 1)] = false;
  return false;
}

void Workers::work(int worker, int runs) {
  const InBody bodies(owner_);
  const FlushDenormals denormals(flush_denormals_);
  while (wait_for_run(worker, runs)) {
    ++runs;
    (*function_)(worker);
    meet();
  }
}

}  // namespace graphsink
