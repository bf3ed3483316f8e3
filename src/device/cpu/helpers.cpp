#include "device/cpu/helpers.h"

#include <algorithm>
#include <utility>

namespace graphsink {
namespace {

// A helper that is late, because the system runs something else on its core, leaves ranges to the others.
constexpr int kRangesPerThread = 2;

}  // namespace

// The tiles of a node that is being computed, on the stack of share().
struct Helpers::Job {
  const FunctionRef<void(std::int64_t first, std::int64_t end)>& run;
  const std::int64_t tiles, range;  // how many there are, and how many are taken at once
  Job* next = nullptr;              // in the list
  std::atomic<std::int64_t> taken{0};
  std::atomic<int> helpers{0};  // that use the job; changed while the mutex is held

  bool has_more() const { return taken.load(std::memory_order_relaxed) < tiles; }
  void run_ranges() {
    while (true) {
      const std::int64_t first = taken.fetch_add(range, std::memory_order_relaxed);
      if (first >= tiles) return;
      run(first, std::min(first + range, tiles));
    }
  }
};

Helpers::Helpers(int threads, const void* owner, bool flush_denormals, Log log)
    : count_(threads), team_(threads - 1, owner, flush_denormals, std::move(log), [this](int) { help(); }) {}

void Helpers::share(std::int64_t tiles, FunctionRef<void(std::int64_t first, std::int64_t end)> run) {
  if (streams_.load() >= count_) return run(0, tiles);
  Job job{run, tiles, std::max<std::int64_t>(1, tiles / (count_ * kRangesPerThread))};
  {
    std::lock_guard lock(mutex_);
    job.next = std::exchange(jobs_, &job);
  }
  team_.call();  // without threads, this one does all
  job.run_ranges();
  {
    std::lock_guard lock(mutex_);
    Job** link = &jobs_;
    while (*link != &job) link = &(*link)->next;
    *link = job.next;
  }
  auto have_left = [&] { return job.helpers.load(std::memory_order_acquire) == 0; };
  spin_.wait(have_left, [&] {
    std::unique_lock lock(mutex_);
    left_.wait(lock, have_left);
  });
}

// The job is not destroyed before the helper leaves it.
Helpers::Job* Helpers::join_job() {
  std::lock_guard lock(mutex_);
  Job* job = jobs_;
  while (job != nullptr && !job->has_more()) job = job->next;
  if (job != nullptr) job->helpers.fetch_add(1);
  return job;
}

void Helpers::leave_job(Job& job) {
  {
    std::lock_guard lock(mutex_);
    job.helpers.fetch_sub(1);
  }
  left_.notify_all();
}

void Helpers::help() {
  if (helping_.fetch_add(1) + streams_.load() < count_) {
    while (Job* job = join_job()) {
      job->run_ranges();
      leave_job(*job);
    }
  }
  helping_.fetch_sub(1);
}

}  // namespace graphsink
