// Threads that work on one launch together.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/function_ref.h"
#include "base/log.h"
#include "device/cpu/adaptive_spin.h"
#include "device/cpu/thread_team.h"

namespace graphsink {

// Worker 0 is the thread that calls run(); the others are a ThreadTeam.
class Workers {
 public:
  // `count` workers in all, at least 1. The rest as for ThreadTeam.
  Workers(int count, const void* owner, bool flush_denormals, Log log = {});
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return count_; }

  // Calls f(worker) on all workers at the same time, and returns when all calls have returned. Returns false, without
  // a call, if another thread is in run(), or if the system has no threads for the workers.
  bool run(FunctionRef<void(int worker)> f);

  // In f: returns when all workers have called it as often as this one. Writes that a worker made before are seen by
  // all workers afterwards. `is_long_expected`: the workers had very different amounts of work.
  void meet(bool is_long_expected = false);

  // In f: all workers call it, and get what `decide` returns to worker 0, which is the only one that calls it. It is
  // also a meeting.
  std::int32_t agree(int worker, FunctionRef<std::int32_t()> decide);

 private:
  const int count_;
  std::atomic<bool> is_busy_{false};
  const FunctionRef<void(int worker)>* function_ = nullptr;

  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> meetings_{0};  // that are over, modulo 2^32
  // In turns: while a worker may still read one, nobody writes it, because that would take another meeting.
  std::int32_t decisions_[2] = {};
  AdaptiveSpin spin_;   // spin of workers that have arrived and wait
  ThreadTeam threads_;  // threads of workers 1, 2, ...
};

}  // namespace graphsink
