#include "device/cpu/queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "base/flush_denormals.h"
#include "base/in_body.h"
#include "base/thread.h"
#include "device/cpu/pause.h"

namespace graphsink {
namespace {

// Starting a thread costs some ten microseconds.
constexpr std::chrono::milliseconds kLongestSleep{100};

}  // namespace

void CpuQueue::Unmap::operator()(CpuTask* tasks) const { munmap(tasks, kCapacity * sizeof(CpuTask)); }

CpuQueue::~CpuQueue() {
  if (fork_mark_.is_in_child()) return;  // its thread is the parent's
  stop_.store(true);
  wake();
  std::atomic<Thread>& state = sleep_->state;
  for (Thread now = state.load(); now != Thread::ended; now = state.load()) state.wait(now);
}

void CpuQueue::start() {
  sleep_->state.store(Thread::awake);
  try {
    // It is detached, so that its stack goes with it when it ends.
    graphsink::Thread([this, kept = sleep_] { work(); }).detach();
  } catch (const std::system_error& e) {
    sleep_->state.store(Thread::ended);
    throw Error("cpu", Where(), std::string("there is no thread for a stream: ") + e.what(),
                "end other threads of this process, or raise the limit on them (ulimit -u)", ErrorCode::unavailable);
  } catch (...) {
    sleep_->state.store(Thread::ended);
    throw;
  }
}

CpuQueue::Thread CpuQueue::wake() {
  Thread seen = Thread::asleep;
  if (sleep_->state.compare_exchange_strong(seen, Thread::awake)) {
    { std::lock_guard lock(sleep_->mutex); }  // it waits by now, or has seen that it is awake
    sleep_->awakened.notify_one();
  }
  return seen;
}

void CpuQueue::push(const CpuTask& task) {
  if (!tasks_) {
    void* mapped =
        mmap(nullptr, kCapacity * sizeof(CpuTask), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    tasks_.reset(static_cast<CpuTask*>(mapped));
  }
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  if (known_done_ + kCapacity <= head) {
    known_done_ = progress_->done();
    if (known_done_ + kCapacity <= head) wait_for(head - kCapacity + 1);
  }
  tasks_[head % kCapacity] = task;
  head_.store(head + 1);  // sequentially consistent: before the look at the state
  if (sleep_->state.load() == Thread::awake || wake() != Thread::ended) return;
  try {
    start();  // there is none yet, or it has ended
  } catch (...) {
    head_.store(head);
    throw;
  }
}

const CpuProgress& CpuQueue::keep_progress_of(const CpuQueue& other) {
  if (std::find(others_.begin(), others_.end(), other.progress_) == others_.end()) {
    if (is_done()) std::erase_if(others_, [](const auto& known) { return known.use_count() == 1; });  // queues gone
    others_.push_back(other.progress_);
  }
  return *other.progress_;
}

void CpuQueue::wait_for_other(const CpuProgress& other, std::uint64_t count) {
  publish();
  if (other.done() >= count) return;
  helpers_.end_work();
  other.wait_for(count);
  helpers_.begin_work();
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

bool CpuQueue::spin_until_pushed(std::uint64_t seen) const {
  for (int i = 0; i < kSpins; ++i) {
    if (head_.load(std::memory_order_acquire) != seen) return true;
    pause();
  }
  return false;
}

bool CpuQueue::sleep_until_pushed(std::uint64_t seen) {
  Sleep& sleep = *sleep_;
  sleep.state.store(Thread::asleep);
  if (head_.load() != seen) {
    sleep.state.store(Thread::awake);
    return true;
  }
  if (!stop_.load()) {
    std::unique_lock lock(sleep.mutex);
    sleep.awakened.wait_for(lock, kLongestSleep, [&] { return sleep.state.load() == Thread::awake; });
  }
  Thread asleep = Thread::asleep;
  if (!sleep.state.compare_exchange_strong(asleep, Thread::ended)) return true;
  sleep.state.notify_all();
  return false;
}

void CpuQueue::work() {
  const InBody bodies(owner_);
  const FlushDenormals denormals(flush_denormals_);  // once for the thread, because a task takes only nanoseconds
  std::uint64_t done = progress_->done();
  do {
    helpers_.begin_work();
    do {
      std::uint64_t head = head_.load(std::memory_order_acquire);
      while (done < head) {
        const CpuTask& task = tasks_[done % kCapacity];
        if (task.run) task.run(task);
        progress_->set_done(++done);
      }
      publish();
    } while (spin_until_pushed(done));
    helpers_.end_work();
  } while (sleep_until_pushed(done));
}

}  // namespace graphsink
