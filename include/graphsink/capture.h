// SinkCache: sinks code that knows nothing of graphsink. Your function enqueues work on a CUDA stream; its work is
// captured once for each key and launched in one call from then on.
//
//   gs::SinkCache sinks;
//   for (...) sinks.run(stream, gs::Key{batch, length}, [&](cudaStream_t s) { forward(s); backward(s); update(s); });
//   std::cout << sinks.report();
//
// A launch repeats what was captured: the same kernels with the same arguments, grids and addresses. Whatever the
// function chooses on the host must therefore be in the key: shapes, flags, and pointers that may change. A number that
// is passed to a kernel by value (a learning rate, a step counter) keeps the value it had when the work was captured:
// keep such numbers in device memory, or put them into the key.
//
// Training data in device memory whose address never changes: see StreamLoader (stream_loader.h).
//
// Needs a build with CUDA. This header needs no CUDA toolkit.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/key.h"
#include "graphsink/log.h"
#include "graphsink/stream.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// Options of a SinkCache.
struct SinkOptions {
  // Bounds what is kept for keys, as SinkReport::bytes counts it. The least recently used keys are dropped first; a key
  // whose last launch has not ended is kept even where the bound is exceeded. 0: a sixty-fourth of the memory of each
  // device that the cache is used on.
  std::size_t max_bytes = 0;
  // The number of calls with a key that run as they are before one is captured. They load kernels and let libraries
  // allocate, which a capture does not allow. Libraries that do so in more calls need more of them.
  int warm_runs = 1;
  // run() throws Error where a capture fails, before any of the work has run. Otherwise the call runs as it is.
  bool strict = false;
  // Finds work that the function gives to the legacy default stream by mistake. Where nobody watches, such work runs
  // once, at the capture, and is missing from every launch. With this, CUDA refuses it during a capture
  // (cudaErrorStreamCaptureImplicit), and the call runs as it is. But CUDA refuses it to the other threads of the
  // process as well, cudaMemcpy() included, and what they do breaks the capture: so switch it on for a trial, or where
  // no other thread uses CUDA. The captures of check_every always watch. So does CUDA by itself where the stream that
  // run() is given was made without cudaStreamNonBlocking.
  bool watch_legacy_stream = false;
  // Guards against values that a captured graph keeps and the function would choose anew. At every Nth launch of a key
  // the function is captured once more, without running its work, and the arguments, grids and addresses of all nodes
  // are compared with those of the first capture; the legacy stream is watched meanwhile. If one differs (a learning
  // rate that was passed by value), the key is refused and the report names the kernel, the parameter and its bytes;
  // the launches before it used the old value. Addresses of memory that is not alive any more are found as well, see
  // register_memory(). 0: never. Structures that are passed by value should have no uninitialised bytes between their
  // members. Bodies of conditional nodes are not compared.
  int check_every = 0;
  // Receives the reason of each failure once, and once that the cache is of little use: keys are dropped and captured
  // again in turn, or do not return. Empty: spdlog's default logger.
  LogFunction log{};
};

// Options of one call of SinkCache::run().
struct SinkRunOptions {
  // Repeats the function's work so many times, as if run() was called so often, but as one launch where CUDA can hold
  // the work in a loop. It cannot if the work has host functions, memory that is allocated in stream order or
  // conditional nodes: then each step is a launch, and the report says why. Steps of a key that is not captured yet run
  // and are captured one by one, so the function must enqueue the same work each time. Different calls with a key may
  // ask for different numbers. At least 1.
  std::int64_t steps = 1;
};

// A reason why work was not captured, not launched, or not launched in a loop, or why captures do not pay.
struct SinkFailure {
  std::string key;          // the first key that met it
  std::string problem;      // names the first CUDA call that failed, as far as CUDA tells
  std::string remedy;       // advice: what the user can do about it
  std::uint64_t count = 0;  // how often it was met, by all keys
};

// Report of a SinkCache: counts of its work so far, and the keys that it holds. A call of run() has one step, or
// SinkRunOptions::steps.
struct SinkReport {
  std::uint64_t calls = 0;     // calls of run()
  std::uint64_t steps = 0;     // steps of all these calls
  std::uint64_t warm = 0;      // steps that ran as they are, because their key was new
  std::uint64_t as_is = 0;     // steps that ran as they are for one of the failures below
  std::uint64_t inside = 0;    // steps on a stream that was being captured: their work became a part of that capture
  std::uint64_t launches = 0;  // launches of one step, or of several in a loop
  std::uint64_t loops = 0;     // launches of several steps
  std::uint64_t captures = 0;  // captures that succeeded
  std::uint64_t checks = 0;    // checks of launches, see SinkOptions::check_every
  // Whether work that the function gives to the legacy stream by mistake is found: with
  // SinkOptions::watch_legacy_stream or check_every.
  bool watches_legacy_stream = false;
  std::uint64_t instantiations = 0;  // executable graphs that were made
  // Executable graphs that were taken over from a key that was about to be dropped, by changing the arguments of its
  // kernels.
  std::uint64_t updates = 0;
  std::uint64_t update_refusals = 0;  // attempts to do so that CUDA refused: a graph was made in place of each
  std::uint64_t evictions = 0;        // keys that were dropped
  std::size_t keys = 0;               // that the cache holds now
  std::size_t captured = 0;           // those of them that are captured
  std::size_t refused = 0;            // those whose capture has failed three times, or whose work has changed
  // Memory that the keys take together: an estimate of 112 KiB for each captured graph and 2.5 KiB for each node of it,
  // because CUDA does not say (see CaptureInfo::bytes), and what the cache itself keeps for each key.
  std::size_t bytes = 0;
  std::size_t max_bytes = 0;          // the bound of `bytes`; 0 before the first call where the device decides
  std::vector<SinkFailure> failures;  // the first 32 different ones
  std::uint64_t other_failures = 0;   // how often others were met
};
// @{
// A table for people.
std::string to_string(const SinkReport& report);
std::ostream& operator<<(std::ostream& out, const SinkReport& report);
// @}

// Threads: a SinkCache is used by one thread at a time: a call throws Error while another thread is in one. Different
// ones are independent, and may capture at once.
//
// Lifetime: what the function enqueues (memory, kernels, handles of libraries) must exist as long as the key may be
// launched. A launch copies from and to the same host memory as the capture, and gives host functions the same address:
// a capture that was given a local variable of the function is refused, and a copy of other pageable memory is logged
// once. The destructor and clear() do not wait for launches that are under way, which end as usual; only for loops
// (SinkRunOptions::steps) the destructor waits.
class SinkCache {
 public:
  // Throws Error in a build without CUDA.
  explicit SinkCache(SinkOptions options = {}, Where where = Where::current());
  ~SinkCache();
  // @{
  // One that was moved from holds nothing: every call on it throws Error.
  SinkCache(SinkCache&&) noexcept;
  SinkCache& operator=(SinkCache&&) noexcept;
  // @}

  // Enqueues the work of `enqueue` on `stream`, once: by calling it, or by launching what it enqueued when it was last
  // called with this key and this stream. If it throws when it is called as it is, the exception passes through.
  //
  // `enqueue` is called with the stream to use, whose device is the current one meanwhile. It may fork to other streams
  // by events, if it joins them again, and call cuBLAS, CUB, NCCL and cudaLaunchHostFunc. It may be called twice in one
  // call of run(), if the first was a capture that failed. Nothing that the first gave to the given stream has run
  // then. But what it did on the host is done twice (a loss that is appended to a list, a counter), and so is work for
  // a stream that it forked to after the call that broke the capture: the reason says so where that may be. A function
  // that ends the process at an error of CUDA, or loops until a value arrives, does so in the capture, too.
  //
  // All its work must go to the given stream or to forks of it: what it gives to a stream that does not take part runs
  // at the capture and is missing from every launch. Where that is a call of this library (run() of a Program or of a
  // SinkCache), the call throws Error, and so the capture fails. Work that other threads give to the stream during a
  // capture becomes a part of it, and every launch repeats it.
  //
  // An event that the function records is a part of the capture: outside, after a launch, CUDA refuses to wait for it
  // or to measure with it. Record events for others after run(), or with cudaEventRecordExternal while the stream
  // captures.
  //
  // During a capture, the given stream is `stream`. For the legacy default stream (nullptr), which CUDA does not
  // capture, it is a stream of the cache, and the launch goes to the legacy stream.
  //
  // A capture fails if the function allocates or frees memory by cudaMalloc() or cudaFree(), waits for the device, a
  // stream or an event, uses the legacy stream while that is watched, waits for an event from before the call, begins a
  // capture, or throws. Then the call runs as it is. After three failures the key is refused: it is tried again after 8
  // calls, after 16 more, and so on, and by try_again(). Where a check finds that the work has changed, it is refused
  // until try_again().
  //
  // The function's return value is dropped. Throws Error in strict mode where a capture fails, for less than one step,
  // for a stream that does not exist, where a CUDA error has ended the process's context, with the first such error
  // that the cache has seen, and for a cache that was moved from, as do all members.
  template <class Enqueue>
  requires std::invocable<Enqueue&, cudaStream_t>
  void run(cudaStream_t stream, const Key& key, Enqueue&& enqueue, const SinkRunOptions& options = {},
           Where where = Where::current()) {
    using Function = std::remove_reference_t<Enqueue>;
    if constexpr (std::is_function_v<Function>) {
      run(stream, key, &enqueue, options, where);
    } else {
      run(stream, key,
          Work{const_cast<void*>(static_cast<const void*>(std::addressof(enqueue))),
               [](void* function, cudaStream_t s) { (void)(*static_cast<Function*>(function))(s); }},
          options, where);
    }
  }

  // For SinkOptions::check_every: says that these bytes of device memory are alive until forget_memory(). An address of
  // registered memory that a captured node was given must lie in the same registration at each check. An address that
  // was in no registration must still be one that CUDA knows, which tells nothing of memory that an allocator of your
  // own, or cudaFreeAsync(), keeps for later.
  void register_memory(const void* memory, std::size_t bytes);
  // Ends the registration that begins at this address, if there is one: call it before the memory is freed.
  void forget_memory(const void* memory);

  // Refused keys are captured again by their next calls, after what was wrong with them has changed.
  void try_again();
  // Drops all keys but those whose last launch has not ended.
  void clear();
  SinkReport report() const;  // counts so far; waits for nothing
  // Writes names for what profilers show of captured keys: see Program::write_node_names(). Instead of an op each line
  // has the key. A key that took over the executable graph of another one (SinkReport::updates) has no lines: profilers
  // show its kernels under the ids of the first key.
  void write_node_names(const std::string& path, Where where = Where::current()) const;

 private:
  struct Work {
    void* function;
    void (*call)(void* function, cudaStream_t stream);
  };
  void run(cudaStream_t stream, const Key& key, Work work, const SinkRunOptions& options, Where where);

  class Impl;
  struct Call;
  Call impl(const Where& where = {}) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace graphsink
