// The device's queue: one directed acyclic graph of operations. A stream is its last operation, an event is an
// operation, a graph launch is a group of them. Operations run one at a time, in an order drawn from the seed among
// those that are ready, on the thread that waits; host functions run on a thread of their own, as they do on a real
// device.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "emulator.h"

namespace emu {

using Lock = std::unique_lock<std::mutex>;

enum class OpKind { kMarker, kKernel, kCopy, kFill, kHost, kConditional, kMemory };

// Shared by the operations of one graph launch.
struct GraphMemory;
struct Plan;
struct Launch {
  std::uint32_t graph = 0;  // the id of the exec that tools show
  std::map<cudaGraphConditionalHandle, unsigned> values;
  std::map<cudaGraphConditionalHandle, std::uint64_t> setters;  // who set the value in the kernel that is running
  std::vector<std::shared_ptr<GraphMemory>> freed;              // by its free nodes: stays until they have run
  std::shared_ptr<const Plan> plan;  // with what it allocates: the exec may be destroyed while it runs
};

struct Op;
using OpRef = std::shared_ptr<Op>;

struct Op {
  OpKind kind = OpKind::kMarker;
  std::function<cudaError_t()> body;  // runs without the lock
  std::function<bool(const OpRef&)>
      expand;  // kConditional, with the lock: queues a body, or true when there is none (left)
  std::shared_ptr<Launch> launch;
  std::vector<OpRef> before;
  std::vector<OpRef> after;
  int missing = 0;
  bool done = false;
  bool wanted = false;  // something waits for it
  std::chrono::steady_clock::time_point began, finished;
  std::function<void(const Op&)> record;  // called when it has run; null where no tool wants to know
};

class Executor {
 public:
  // All members need the runtime's lock; those that take it may release it for a while.
  void set_seed(std::uint64_t seed);
  std::uint64_t seed() const { return seed_; }

  // Queues an operation behind `before` (finished and null entries are ignored).
  void submit(const OpRef& op, const std::vector<OpRef>& before);
  // A conditional that has queued a body waits for the end of it and is then expanded again.
  void ask_again_after(const OpRef& end, const OpRef& conditional);

  // Returns when the operation is done or the device has failed.
  void wait(Lock& lock, const OpRef& op);
  void wait_all(Lock& lock);
  // Makes some progress towards the operation and says whether it is done. Never blocks on a host function.
  bool poll(Lock& lock, const OpRef& op);
  // Called after each submission: with some seeds the device is quick and work runs at once.
  void run_ahead(Lock& lock);
  // For the operation that is running: see emulator.h.
  bool run_beside(Lock& lock);

  void cancel_all();
  void stop_host_thread();

  cudaError_t sticky() const { return sticky_; }
  void set_sticky(cudaError_t code);
  void clear_sticky() { sticky_ = cudaSuccess; }

  std::size_t outstanding() const { return live_.size(); }
  Launch* running_launch() const { return running_launch_; }
  Executed executed;

 private:
  void want(const OpRef& op);
  void make_ready(const OpRef& op);
  void complete(const OpRef& op);
  bool run_one(Lock& lock, bool only_wanted);
  void run_device_op(Lock& lock, const OpRef& op);
  void hand_to_host_thread(Lock& lock, const OpRef& op);
  void host_thread_main(std::mutex& mutex);
  void count(OpKind kind);
  std::uint64_t random();

  std::uint64_t seed_ = 0;
  std::uint64_t random_state_ = 0;
  bool only_wanted_ = true;
  unsigned ahead_percent_ = 0;
  cudaError_t sticky_ = cudaSuccess;
  bool busy_ = false;
  bool stopping_ = false;
  Launch* running_launch_ = nullptr;
  OpRef host_op_;
  std::thread host_thread_;
  std::condition_variable given_;    // to the host thread: a function, or the end
  std::condition_variable changed_;  // an operation has run, or all are cancelled
  std::vector<OpRef> ready_;
  std::unordered_map<Op*, OpRef> live_;
};

// True on a thread that runs host functions or destructors of user objects: CUDA calls are refused there.
bool is_cuda_forbidden();
void forbid_cuda_on_this_thread();

}  // namespace emu
