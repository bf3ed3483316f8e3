#include "device/cpu/workers.h"

#include <utility>

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

void Workers::meet(bool is_long_expected) {
  const int meeting = meetings_.load(std::memory_order_relaxed);  // nobody changes it before this worker has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1);
    meetings_.notify_all();
    return;
  }
  auto is_over = [&] { return meetings_.load(std::memory_order_acquire) != meeting; };
  auto sleep = [&] {
    while (!is_over()) meetings_.wait(meeting);
  };
  spin_.wait(is_over, sleep, is_long_expected);
}

std::int32_t Workers::agree(int worker, FunctionRef<std::int32_t()> decide) {
  const std::int32_t& decision = decisions_[meetings_.load(std::memory_order_relaxed) & 1];
  if (worker == 0) const_cast<std::int32_t&>(decision) = decide();
  meet(true);
  return decision;
}

}  // namespace graphsink
