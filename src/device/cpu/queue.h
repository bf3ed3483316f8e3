// An in-order queue of tasks with its own thread: the CPU's stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_mark.h"
#include "device/cpu/captured.h"
#include "device/cpu/helpers.h"
#include "device/device.h"

namespace graphsink {

// An entry of a queue: the queue's thread calls `run` with it. It is plain data, so that pushing allocates nothing.
// Each has a cache line of its own, because one is written while the thread reads the one before.
struct alignas(64) CpuTask {
  void (*run)(const CpuTask& task) = nullptr;
  const void* first = nullptr;
  void* second = nullptr;
  std::uint64_t number = 0;
};

// How many tasks the thread of a queue has done. Shared with queues that wait for it, which may outlive the queue.
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

// Used by one producer at a time. The thread starts with a push and ends after a while without work, so that idle
// programs have no threads.
class CpuQueue : public Stream {
 public:
  // `owner`: of the bodies that run on it, for InBody. `flush_denormals`: whether they treat denormals as zeros.
  // `helpers`: with whom it shares the tiles of nodes.
  CpuQueue(const void* owner, bool flush_denormals, Helpers& helpers)
      : owner_(owner), flush_denormals_(flush_denormals), helpers_(helpers) {}
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
  // Called by a task, on this queue's thread: wakes those that wait for the tasks before it.
  void publish() { progress_->publish(); }
  // Called by a task, on this queue's thread: waits until another queue has done `count` tasks.
  void wait_for_other(const CpuProgress& other, std::uint64_t count);
  Helpers& helpers() const { return helpers_; }

  // Where work goes while this stream is capturing, else nullptr.
  CpuItems* captured = nullptr;

 private:
  static constexpr std::uint64_t kCapacity = 8192;
  enum class Thread { awake, asleep, ended };  // asleep: or about to check for tasks a last time
  // Shared with the thread, whose last action is to set `ended`: the queue may be destroyed right after that.
  struct Sleep {
    alignas(64) std::atomic<Thread> state{Thread::ended};
    std::mutex mutex;  // mutex of the condition variable `awakened`
    std::condition_variable awakened;
  };

  void start();
  // The function of the thread. It returns after sleep_until_pushed() returned false, because there was no work for a
  // long time or the queue is being destroyed, and then uses nothing of the queue.
  void work();
  bool spin_until_pushed(std::uint64_t seen) const;  // returns false if nothing was pushed for a while
  bool sleep_until_pushed(std::uint64_t seen);
  Thread wake();  // returns what it was

  struct Unmap {
    void operator()(CpuTask* tasks) const;
  };
  std::unique_ptr<CpuTask[], Unmap> tasks_;         // kCapacity of them; those that were never pushed take no memory
  alignas(64) std::atomic<std::uint64_t> head_{0};  // tasks pushed; written by the producer
  // For the producer: what progress_ said when it was asked last. Asking for each task would take the cache line that
  // the thread writes for each task.
  std::uint64_t known_done_ = 0;
  // Not in the cache line of head_: the thread reads these for each task, and every push takes that line from it.
  alignas(64) const std::shared_ptr<Sleep> sleep_ = std::make_shared<Sleep>();
  std::shared_ptr<CpuProgress> progress_ = std::make_shared<CpuProgress>();
  std::vector<std::shared_ptr<const CpuProgress>> others_;  // progress of queues that this one has waited for
  std::atomic<bool> stop_{false};
  const void* owner_;
  const bool flush_denormals_;
  Helpers& helpers_;
  ForkMark fork_mark_;
};

}  // namespace graphsink
