#include "device/cpu/workers.h"

#include <utility>

#include "device/cpu/pause.h"

namespace graphsink {
Workers::Workers(int count, const void* owner, bool flush_denormals, Log log)
    : count_(count), threads_(count - 1, owner, flush_denormals, std::move(log), [this](int thread) {
        (*function_)(thread + 1);
        meet();
      }) {}

bool Workers::run(FunctionRef<void(int worker)> f) {
  if (is_busy_.exchange(true)) return false;
  function_ = &f;
  const bool are_there = threads_.call();
  if (are_there) {
    f(0);
    meet();
  }
  is_busy_.store(false);
  return are_there;
}

void Workers::meet() {
  const int meeting = meetings_.load(std::memory_order_relaxed);  // nobody changes it before this worker has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1);
    meetings_.notify_all();
    return;
  }
  for (int i = 0; i < kSpinsAtWork; ++i) {
    if (meetings_.load(std::memory_order_acquire) != meeting) return;
    pause_at_work(i);
  }
  while (meetings_.load(std::memory_order_acquire) == meeting) meetings_.wait(meeting);
}

std::int32_t Workers::agree(int worker, FunctionRef<std::int32_t()> decide) {
  const std::int32_t& decision = decisions_[meetings_.load(std::memory_order_relaxed) & 1];
  if (worker == 0) const_cast<std::int32_t&>(decision) = decide();
  meet();
  return decision;
}

}  // namespace graphsink
