#include "device/cpu/queue.h"

#include <algorithm>

#include "base/in_body.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphsink {
namespace {

// Sleeping and waking costs microseconds, a task tens of nanoseconds: look for work this often first.
constexpr int kSpins = 1000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

CpuQueue::~CpuQueue() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  push({});  // wakes it
  thread_.join();
}

void CpuQueue::push(const CpuTask& task) {
  if (!thread_.joinable()) {
    tasks_.resize(kCapacity);
    thread_ = std::thread([this] { work(); });
  }
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (head >= kCapacity && progress_->done() + kCapacity <= head) wait_for(head - kCapacity + 1);
  tasks_[head % kCapacity] = task;
  head_.store(head + 1);  // sequentially consistent: before the look at queue_sleeps_
  if (queue_sleeps_.load() != 0) {
    queue_sleeps_.store(0);
    queue_sleeps_.notify_one();
  }
}

const CpuProgress& CpuQueue::keep_progress_of(const CpuQueue& other) {
  if (std::find(others_.begin(), others_.end(), other.progress_) == others_.end()) {
    if (is_done()) std::erase_if(others_, [](const auto& known) { return known.use_count() == 1; });  // queues gone
    others_.push_back(other.progress_);
  }
  return *other.progress_;
}

void CpuProgress::wait_for(std::uint64_t count) const {
  for (int i = 0; i < kSpins; ++i) {
    if (done() >= count) return;
    pause();
  }
  waiters_.fetch_add(1);
  while (true) {
    int epoch = wake_ups_.load();
    if (done_.load() >= count) break;
    wake_ups_.wait(epoch);
  }
  waiters_.fetch_sub(1);
}

void CpuProgress::publish() {
  done_.fetch_add(0);  // orders the write of done_ before the look at waiters_, as a fence would
  if (waiters_.load() == 0) return;
  wake_ups_.fetch_add(1);
  wake_ups_.notify_all();
}

void CpuQueue::sleep_until_pushed(std::uint64_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (head_.load(std::memory_order_acquire) != seen) return;
    pause();
  }
  queue_sleeps_.store(1);
  if (head_.load() == seen) queue_sleeps_.wait(1);
  queue_sleeps_.store(0);
}

void CpuQueue::work() {
  const InBody bodies;
  std::uint64_t done = 0;
  while (true) {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (done < head) {
      const CpuTask& task = tasks_[done % kCapacity];
      if (task.run) task.run(task);
      progress_->set_done(++done);
    }
    publish();
    if (stop_.load()) return;
    sleep_until_pushed(done);
  }
}

}  // namespace graphsink
