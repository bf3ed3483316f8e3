#include "executor.h"

#include <cstdio>
#include <cstdlib>

#include "memory.h"
#include "runtime.h"

namespace emu {
namespace {

thread_local bool has_no_cuda = false;

}  // namespace

bool is_cuda_forbidden() { return has_no_cuda; }
void forbid_cuda_on_this_thread() { has_no_cuda = true; }

void Executor::set_seed(std::uint64_t seed) {
  seed_ = seed;
  random_state_ = seed;
  constexpr unsigned kAhead[] = {0, 30, 80};
  ahead_percent_ = seed == 0 ? 0 : kAhead[seed % 3];
  only_wanted_ = seed % 2 == 0;
}

std::uint64_t Executor::random() {
  random_state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void Executor::submit(const OpRef& op, const std::vector<OpRef>& before) {
  if (sticky_ != cudaSuccess) {
    op->done = true;
    return;
  }
  live_.emplace(op.get(), op);
  for (const OpRef& other : before) {
    if (other == nullptr || other->done) continue;
    op->before.push_back(other);
    other->after.push_back(op);
    ++op->missing;
  }
  if (op->missing == 0) make_ready(op);
}

void Executor::ask_again_after(const OpRef& end, const OpRef& conditional) {
  if (end->done) {
    ready_.push_back(conditional);
    return;
  }
  conditional->before.assign(1, end);
  end->after.push_back(conditional);
  ++conditional->missing;
}

void Executor::make_ready(const OpRef& op) {
  if (op->kind == OpKind::kMarker) {
    complete(op);
  } else {
    ready_.push_back(op);
  }
}

void Executor::complete(const OpRef& op) {
  std::vector<OpRef> finished{op};
  while (!finished.empty()) {
    OpRef current = std::move(finished.back());
    finished.pop_back();
    current->done = true;
    current->finished = std::chrono::steady_clock::now();
    if (current->record != nullptr) current->record(*current);
    current->record = nullptr;
    current->before.clear();
    current->body = nullptr;
    current->expand = nullptr;
    current->launch = nullptr;
    for (const OpRef& next : current->after) {
      if (--next->missing > 0) continue;
      if (next->kind == OpKind::kMarker) {
        finished.push_back(next);
      } else {
        ready_.push_back(next);
      }
    }
    current->after.clear();
    live_.erase(current.get());
  }
}

void Executor::want(const OpRef& op) {
  std::vector<OpRef> todo{op};
  while (!todo.empty()) {
    OpRef current = std::move(todo.back());
    todo.pop_back();
    if (current->done || current->wanted) continue;
    current->wanted = true;
    todo.insert(todo.end(), current->before.begin(), current->before.end());
  }
}

void Executor::count(OpKind kind) {
  executed.kernels += kind == OpKind::kKernel;
  executed.copies += kind == OpKind::kCopy;
  executed.fills += kind == OpKind::kFill;
  executed.host_functions += kind == OpKind::kHost;
  executed.conditionals += kind == OpKind::kConditional;
}

bool Executor::run_one(Lock& lock, bool only_wanted) {
  if (busy_ || sticky_ != cudaSuccess) return false;
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (!only_wanted || ready_[i]->wanted) candidates.push_back(i);
  }
  if (candidates.empty()) return false;
  const std::size_t chosen = candidates[random() % candidates.size()];
  const OpRef op = ready_[chosen];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(chosen));
  count(op->kind);
  if (op->kind == OpKind::kConditional) {
    if (op->expand(op)) complete(op);
  } else if (op->kind == OpKind::kHost) {
    hand_to_host_thread(lock, op);
  } else {
    run_device_op(lock, op);
  }
  return true;
}

void Executor::run_device_op(Lock& lock, const OpRef& op) {
  busy_ = true;
  op->began = std::chrono::steady_clock::now();
  const std::shared_ptr<Launch> launch = op->launch;
  if (launch != nullptr) launch->setters.clear();
  running_launch_ = launch.get();
  lock.unlock();
  cudaError_t result;
  {
    DeviceAccess access;
    result = op->body();
  }
  lock.lock();
  running_launch_ = nullptr;
  busy_ = false;
  if (result != cudaSuccess) {
    set_sticky(result);
  } else if (!op->done) {
    complete(op);
  }
  changed_.notify_all();
}

void Executor::hand_to_host_thread(Lock& lock, const OpRef& op) {
  // Static objects may still wait for the device when the process ends.
  if (stopping_) return run_device_op(lock, op);
  busy_ = true;
  host_op_ = op;
  if (!host_thread_.joinable()) {
    host_thread_ = std::thread([this] { host_thread_main(runtime().mutex); });
    std::atexit([] { runtime().executor.stop_host_thread(); });
  }
  given_.notify_one();
}

void Executor::host_thread_main(std::mutex& mutex) {
  forbid_cuda_on_this_thread();
  Lock lock(mutex);
  for (;;) {
    given_.wait(lock, [this] { return stopping_ || host_op_ != nullptr; });
    if (stopping_) return;
    const OpRef op = std::move(host_op_);
    host_op_ = nullptr;
    if (sticky_ == cudaSuccess) {  // else it is not called
      const std::function<cudaError_t()> body = op->body;
      lock.unlock();
      close_device_memory();
      body();
      lock.lock();
    }
    busy_ = false;
    if (!op->done) complete(op);
    changed_.notify_all();
  }
}

void Executor::stop_host_thread() {
  {
    Lock lock(runtime().mutex);
    stopping_ = true;
    given_.notify_one();
  }
  host_thread_.join();
}

void Executor::wait(Lock& lock, const OpRef& op) {
  if (op == nullptr) return;
  want(op);
  while (!op->done && sticky_ == cudaSuccess) {
    if (run_one(lock, only_wanted_)) continue;
    if (!busy_) {
      std::fputs("cuda emulator: operations wait for each other\n", stderr);
      std::abort();
    }
    changed_.wait(lock);
  }
}

void Executor::wait_all(Lock& lock) {
  while (!live_.empty() && sticky_ == cudaSuccess) {
    for (auto& [key, op] : live_) op->wanted = true;
    if (run_one(lock, only_wanted_)) continue;
    if (busy_) changed_.wait(lock);
  }
}

bool Executor::poll(Lock& lock, const OpRef& op) {
  if (op == nullptr || op->done) return true;
  want(op);
  for (std::uint64_t steps = 1 + random() % 3; steps > 0 && !op->done; --steps) {
    if (!run_one(lock, only_wanted_)) break;
  }
  return op->done;
}

void Executor::run_ahead(Lock& lock) {
  while (ahead_percent_ > 0 && random() % 100 < ahead_percent_) {
    if (!run_one(lock, false)) return;
  }
}

bool Executor::run_beside(Lock& lock) {
  Launch* const launch = running_launch_;
  busy_ = false;
  const bool has_run = run_one(lock, false);
  changed_.wait(lock, [this] { return !busy_; });  // for a host function, or for an operation of another thread
  busy_ = true;
  running_launch_ = launch;
  return has_run;
}

void Executor::cancel_all() {
  if (host_op_ != nullptr) {  // given to the host thread, which has not begun
    host_op_ = nullptr;
    busy_ = false;
  }
  // Operations point at each other in both directions.
  for (auto& [key, op] : live_) {
    op->before.clear();
    op->after.clear();
    op->done = true;
  }
  live_.clear();
  ready_.clear();
  changed_.notify_all();
}

void Executor::set_sticky(cudaError_t code) {
  if (sticky_ == cudaSuccess) sticky_ = code;
  cancel_all();
}

}  // namespace emu
