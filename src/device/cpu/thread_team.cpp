#include "device/cpu/thread_team.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/at.h"
#include "base/flush_denormals.h"
#include "base/in_body.h"
#include "device/cpu/pause.h"

namespace graphsink {
namespace {

// Starting a thread costs some ten microseconds.
constexpr std::chrono::milliseconds kLongestSleep{100};

}  // namespace

ThreadTeam::ThreadTeam(int size, const void* owner, bool flush_denormals, Log log, std::function<void(int thread)> body)
    : owner_(owner),
      flush_denormals_(flush_denormals),
      log_(std::move(log)),
      body_(std::move(body)),
      threads_(at(size)),
      is_working_(at(size)) {}

ThreadTeam::~ThreadTeam() {
  if (fork_mark_.is_in_child()) {  // the threads are the parent's
    (void)new std::vector<std::thread>(std::move(threads_));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// Holds the mutex.
bool ThreadTeam::start_missing() noexcept {
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    if (is_working_[at(i)]) continue;
    std::thread& thread = threads_[at(i)];
    if (thread.joinable()) thread.join();  // it has decided to end, and needs no lock any more
    try {
      thread = std::thread([this, i, answered = calls_.load()] { work(i, answered); });
    } catch (const std::exception& e) {
      if (!std::exchange(is_logged_, true)) {
        log_.warn(
            {"steps on the CPU run on fewer threads than CompileOptions::threads says, because one cannot be "
             "started: ",
             e.what(), "; end other threads of this process, or raise the limit on them (ulimit -u)"});
      }
      return false;
    }
    is_working_[at(i)] = true;
  }
  return true;
}

bool ThreadTeam::call() noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!start_missing()) return false;
    calls_.store(calls_.load() + 1);
  }
  called_.notify_all();
  return true;
}

bool ThreadTeam::wait_for_call(int thread, int answered) {
  for (int i = 0; i < kSpins; ++i) {
    if (calls_.load(std::memory_order_acquire) != answered) return true;
    pause();
  }
  std::unique_lock lock(mutex_);
  called_.wait_for(lock, kLongestSleep, [&] { return calls_.load() != answered || stops_; });
  if (calls_.load() != answered) return true;
  is_working_[at(thread)] = false;
  return false;
}

void ThreadTeam::work(int thread, int answered) {
  const InBody bodies(owner_);
  const FlushDenormals denormals(flush_denormals_);
  while (wait_for_call(thread, answered)) {
    answered = calls_.load(std::memory_order_acquire);
    body_(thread);
  }
}

}  // namespace graphsink
