// Threads that help the streams of a CPU device with the tiles of their nodes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/function_ref.h"
#include "base/log.h"
#include "device/cpu/adaptive_spin.h"
#include "device/cpu/thread_team.h"

namespace graphsink {

// A stream shares the tiles of one node at a time, and several streams may do so at the same time. Nobody waits for a
// helper that has not come yet: the stream's own thread takes the tiles that are left. Streams that have work and
// helpers together are never more threads than the device has.
class Helpers {
 public:
  // `threads` in all, those of streams included, at least 1. The rest as for ThreadTeam.
  Helpers(int threads, const void* owner, bool flush_denormals, Log log = {});
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  int threads() const { return count_; }

  // Calls run(first, end) for ranges that together are [0, tiles), each at most once: on the calling thread, and on
  // helpers, if threads are left for them. Returns when all calls have returned. `run` must not throw.
  void share(std::int64_t tiles, FunctionRef<void(std::int64_t first, std::int64_t end)> run);

  // Between these two, the calling thread is that of a stream with work.
  void begin_work() { streams_.fetch_add(1); }
  void end_work() { streams_.fetch_sub(1); }

 private:
  struct Job;

  Job* join_job();
  void leave_job(Job& job);
  void help();

  const int count_;
  std::atomic<int> streams_{0};   // threads of streams that have work
  std::atomic<int> helping_{0};   // helpers that look for work or do it
  std::mutex mutex_;              // lock for the list jobs_
  Job* jobs_ = nullptr;           // a list of those of which some tiles may not be taken yet
  std::condition_variable left_;  // a helper has left a job
  AdaptiveSpin spin_;             // spin of streams that wait for helpers
  ThreadTeam team_;
};

}  // namespace graphsink
