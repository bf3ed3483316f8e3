#include "device/cpu/thread_team.h"

#include <sched.h>

#include <algorithm>
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
constexpr std::chrono::milliseconds kLongestWait{100};

// Moves the calling thread to a core that it may use and that is none of these, if there is one, and then lets it run
// on all again that it may use. Returns the core.
int move_away_from(const cpu_set_t& cores) noexcept {
  cpu_set_t usable, others;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return sched_getcpu();
  CPU_ZERO(&others);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable) && !CPU_ISSET(core, &cores)) CPU_SET(core, &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    (void)sched_setaffinity(0, sizeof usable, &usable);
  return sched_getcpu();
}

}  // namespace

ThreadTeam::ThreadTeam(int size, const void* owner, bool flush_denormals, Log log, std::function<void(int thread)> body)
    : owner_(owner),
      flush_denormals_(flush_denormals),
      log_(std::move(log)),
      body_(std::move(body)),
      threads_(at(size)),
      cores_(at(size)),
      is_working_(at(size)) {
  for (std::atomic<int>& core : cores_) core.store(-1);
}

ThreadTeam::~ThreadTeam() {
  if (fork_mark_.is_in_child()) {  // the threads are the parent's
    (void)new std::vector<Thread>(std::move(threads_));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  called_.notify_all();
  for (Thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

// Holds the mutex.
bool ThreadTeam::start_missing() noexcept {
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    if (is_working_[at(i)]) continue;
    Thread& thread = threads_[at(i)];
    if (thread.joinable()) thread.join();  // it has decided to end, and needs no lock any more
    try {
      thread = Thread([this, i, answered = calls_.load()] { work(i, answered); });
    } catch (const std::exception& e) {
      if (!std::exchange(is_logged_, true)) {
        log_.warn(
            {"steps on the CPU run on fewer threads than Tuning::threads says, because one cannot be "
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
  core_of_caller_.store(sched_getcpu(), std::memory_order_relaxed);
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
  called_.wait_for(lock, kLongestWait, [&] { return calls_.load() != answered || stops_; });
  if (calls_.load() != answered) return true;
  is_working_[at(thread)] = false;
  return false;
}

// The operating system may wake a thread on the core of the one that called it, and leave it there for long, because
// both sleep now and then: they would take turns while another core is idle.
void ThreadTeam::leave_core_of_others(int thread) noexcept {
  int own = sched_getcpu();
  auto is_own = [&](const std::atomic<int>& core) { return core.load(std::memory_order_relaxed) == own; };
  const auto end = cores_.begin() + thread;
  if (own >= 0 && (is_own(core_of_caller_) || std::any_of(cores_.begin(), end, is_own))) {
    cpu_set_t taken;
    CPU_ZERO(&taken);
    auto take = [&](const std::atomic<int>& core) {
      const int number = core.load(std::memory_order_relaxed);
      if (number >= 0 && number < CPU_SETSIZE) CPU_SET(number, &taken);
    };
    take(core_of_caller_);
    std::for_each(cores_.begin(), end, take);
    own = move_away_from(taken);
  }
  cores_[at(thread)].store(own, std::memory_order_relaxed);
}

void ThreadTeam::work(int thread, int answered) {
  const InBody bodies(owner_);
  const FlushDenormals denormals(flush_denormals_);
  while (wait_for_call(thread, answered)) {
    answered = calls_.load(std::memory_order_acquire);
    leave_core_of_others(thread);
    body_(thread);
  }
}

}  // namespace graphsink
