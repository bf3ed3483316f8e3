// Threads of a CPU device that sleep until there is work for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "base/fork_mark.h"
#include "base/log.h"
#include "base/thread.h"

namespace graphsink {

// The threads start with a call and end after a while without one, so that idle programs have no threads.
class ThreadTeam {
 public:
  // Thread i of `size` runs body(i) after each call; calls while it does so are answered together, once. `owner`: of
  // the bodies of ops that run on the threads, for InBody. `flush_denormals`: whether these treat denormals as zeros.
  ThreadTeam(int size, const void* owner, bool flush_denormals, Log log, std::function<void(int thread)> body);
  ~ThreadTeam();  // waits for the threads
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls all threads, which see all that the caller wrote before. Returns false, without a call, if the system has no
  // threads for the team, which is logged the first time. Any thread may call.
  bool call() noexcept;

 private:
  bool start_missing() noexcept;
  void work(int thread, int answered);
  bool wait_for_call(int thread, int answered);
  void leave_core_of_others(int thread) noexcept;

  const void* const owner_;
  const bool flush_denormals_;
  const Log log_;
  const std::function<void(int thread)> body_;

  alignas(64) std::atomic<int> calls_{0};  // so far, modulo 2^32
  std::mutex mutex_;                       // lock for the members below that are not atomic, and for writes of calls_
  std::condition_variable called_;
  std::vector<Thread> threads_;
  // Where the threads, and the thread that called them, were last; -1: not known.
  std::vector<std::atomic<int>> cores_;
  std::atomic<int> core_of_caller_{-1};
  std::vector<bool> is_working_;  // whether the thread exists, and has not decided to end
  bool stops_ = false;
  bool is_logged_ = false;
  ForkMark fork_mark_;
};

}  // namespace graphsink
