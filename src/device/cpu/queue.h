// An in-order queue of tasks with its own thread: the CPU's stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fork_mark.h"
#include "device/device.h"

namespace graphsink {

struct CpuCapturedItem;
using CpuItems = std::vector<CpuCapturedItem>;

// What a queue holds; `run` is called with the task on the queue's thread. Plain data: pushing allocates nothing. Each
// has a cache line of its own, since one is written while the thread reads the one before.
struct alignas(64) CpuTask {
  void (*run)(const CpuTask& task) = nullptr;
  const void* first = nullptr;
  void* second = nullptr;
  std::uint64_t number = 0;
};

// How far the thread of a queue has come. Shared with the queues that wait for it, which may outlive the queue.
class CpuProgress {
 public:
  std::uint64_t done() const { return done_.load(std::memory_order_acquire); }
  // Any thread may wait.
  void wait_for(std::uint64_t count) const;

  // For the thread of the queue.
  void set_done(std::uint64_t count) { done_.store(count, std::memory_order_release); }
  void publish();  // wakes those that wait

 private:
  alignas(64) std::atomic<std::uint64_t> done_{0};  // tasks done
  mutable std::atomic<int> waiters_{0};             // threads that sleep, or are about to, until wake_ups_ changes
  std::atomic<int> wake_ups_{0};
};

// One producer at a time. The thread starts with a push, and ends when there was nothing to do for a while: programs
// that do not run have none.
class CpuQueue : public Stream {
 public:
  // `owner`: of the bodies that run on it, for InBody.
  explicit CpuQueue(const void* owner) : owner_(owner) {}
  ~CpuQueue() override;
  CpuQueue(const CpuQueue&) = delete;
  CpuQueue& operator=(const CpuQueue&) = delete;

  // Waits while the queue is full.
  void push(const CpuTask& task);
  // Number of tasks pushed so far; with wait_for, any thread may wait for them.
  std::uint64_t pushed() const { return head_.load(std::memory_order_acquire); }
  void wait_for(std::uint64_t count) const { progress_->wait_for(count); }
  bool is_done() const { return progress_->done() >= pushed(); }
  // May outlive the queue.
  std::shared_ptr<const CpuProgress> progress() const { return progress_; }
  // The progress of another queue, for a task of this one that waits for it. It stays alive until that task is done.
  const CpuProgress& keep_progress_of(const CpuQueue& other);
  // Called by a task, on this queue's thread, before it waits for another queue: whoever waits for the tasks before it
  // must not sleep through that.
  void publish() { progress_->publish(); }

  // Where work goes while this stream is capturing, else nullptr.
  CpuItems* captured = nullptr;

 private:
  static constexpr std::uint64_t kCapacity = 8192;
  enum class Thread { awake, asleep, ended };  // asleep: or about to look a last time
  // The thread shares it: the last thing it does is to say that it has ended, when the queue may be gone at once.
  struct Sleep {
    alignas(64) std::atomic<Thread> state{Thread::ended};
    std::mutex mutex;  // of awakened
    std::condition_variable awakened;
  };

  void start();
  // Of the thread. Ends it, and touches nothing of the queue any more, after sleep_until_pushed() returned false: there
  // was nothing to do for a long time, or the queue ends.
  void work();
  bool sleep_until_pushed(std::uint64_t seen);
  Thread wake();  // returns what it was

  struct Unmap {
    void operator()(CpuTask* tasks) const;
  };
  std::unique_ptr<CpuTask[], Unmap> tasks_;         // kCapacity of them; those that were never pushed take no memory
  alignas(64) std::atomic<std::uint64_t> head_{0};  // tasks pushed; written by the producer
  // Not in the cache line of head_: the thread reads these for each task, and every push takes that line from it.
  alignas(64) const std::shared_ptr<Sleep> sleep_ = std::make_shared<Sleep>();
  std::shared_ptr<CpuProgress> progress_ = std::make_shared<CpuProgress>();
  std::vector<std::shared_ptr<const CpuProgress>> others_;  // of queues that this one has waited for
  std::atomic<bool> stop_{false};
  const void* owner_;
  ForkMark fork_mark_;
};

}  // namespace graphsink
