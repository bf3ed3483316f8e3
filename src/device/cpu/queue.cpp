#include "device/cpu/queue.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

// Sleeping and waking costs microseconds, a task tens of nanoseconds: look for work this often first.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

CpuQueue::CpuQueue() : tasks_(kCapacity) {}

CpuQueue::~CpuQueue() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  push({});  // wakes it
  thread_.join();
}

void CpuQueue::push(const CpuTask& task) {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (head >= kCapacity) wait_for(head - kCapacity + 1);
  tasks_[head % kCapacity] = task;
  head_.store(head + 1, std::memory_order_release);
  head_.notify_one();
}

void CpuQueue::wait_for(std::uint64_t count) const {
  for (int i = 0; i < kSpins; ++i) {
    if (done_.load(std::memory_order_acquire) >= count) return;
    pause();
  }
  waiting_.fetch_add(1);
  for (std::uint64_t done = done_.load(); done < count; done = done_.load()) done_.wait(done);
  waiting_.fetch_sub(1);
}

void CpuQueue::work() {
  std::uint64_t done = 0;
  while (true) {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    for (int i = 0; head == done && i < kSpins; ++i) {
      pause();
      head = head_.load(std::memory_order_acquire);
    }
    if (head == done) {
      head_.wait(head);
      continue;
    }
    while (done < head) {
      const CpuTask& task = tasks_[done % kCapacity];
      if (task.run) task.run(task);
      ++done;
      // Sequentially consistent with waiting_: either the sleeper sees the new count or we see the sleeper.
      done_.store(done);
      if (waiting_.load() > 0) done_.notify_all();
    }
    if (stop_.load()) return;
  }
}

}  // namespace graphsink
