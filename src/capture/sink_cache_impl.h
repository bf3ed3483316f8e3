// SinkCache::Impl: the parts of a SinkCache, and its private functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/one_thread.h"
#include "capture/known_memory.h"
#include "capture/sunk.h"
#include "capture/use_of_keys.h"
#include "exec/capture/node_names.h"
#include "exec/capture/slot_cache.h"
#include "graphsink/capture.h"

namespace graphsink {

class SinkCache::Impl {
 public:
  explicit Impl(SinkOptions options)
      : options_(std::move(options)), log_(until_lost(options_.log)), cache_(options_.max_bytes), node_names_(log_) {}

  void run(cudaStream_t stream, const Key& key, Work work, std::int64_t steps, Where where);
  void register_memory(const void* memory, std::size_t bytes) {
    memory_.add(reinterpret_cast<std::uintptr_t>(memory), bytes);
  }
  void forget_memory(const void* memory) { memory_.remove(reinterpret_cast<std::uintptr_t>(memory)); }
  void try_again() {
    cache_.for_each([](Sunk& sunk) {
      sunk.slot.forget_failures();
      if (sunk.loop) sunk.loop->forget_failures();
    });
  }
  void clear() {
    cache_.clear([](const Sunk& sunk) { return sunk.is_busy(); });
  }
  SinkReport report() const;
  void write_node_names(const std::string& path, const Where& where) const;
  OneThread& one_thread() { return one_thread_; }

 private:
  // Forwards messages until the device is lost. Then every call throws the cause, and what destructors cannot destroy
  // has ended with the context: a message for each object would bury the cause.
  LogFunction until_lost(LogFunction log) const;
  // Remembers the first failure that lost a device, if one has.
  void note_lost();
  void run_steps(cudaStream_t stream, const Key& key, Work work, std::int64_t steps, const Where& where);
  void run_key(Sunk& sunk, cudaStream_t stream, Work work, std::int64_t steps, const Where& where);
  Sunk& find_or_add(cudaStream_t stream, GuestDevice& device, const Key& key);
  // Throws Error if the stream's device cannot be found out. Precondition: the stream takes part in no capture, which
  // would break.
  GuestDevice& device_of(cudaStream_t stream, const Where& where);
  // The share of the device's memory that the keys may take by default.
  std::size_t bound_for(GuestDevice& device);
  // Drops keys until the others are within the bound, but never `kept`, which may be null.
  void trim(const Sunk* kept);
  // At the end of a call: says once that captures do not pay.
  void note_use(const Sunk& sunk);
  // Whether the stream takes part in a capture, so that its work becomes a part of that, or is the legacy stream while
  // another thread captures, when the function meets the error that CUDA has for that. Throws Error if the stream
  // cannot be used or, in a function that is being captured, takes no part in that; and for a device that is lost, with
  // the first failure that the cache has seen.
  bool is_inside(cudaStream_t stream, const Where& where);
  enum class Outcome : std::uint8_t { captured, failed, has_run };
  Outcome capture(Sunk& sunk, cudaStream_t stream, Work work);
  std::unique_ptr<CapturedGraph> captured_graph(Sunk& sunk, cudaStream_t stream, Work work, bool& has_run);
  using LegacyStream = GuestCapture::LegacyStream;
  GraphHandle capture_work(GuestDevice& device, cudaStream_t stream, LegacyStream legacy, Work work);
  // Whether a captured key can be launched, as far as it is time to look.
  Outcome check(Sunk& sunk, cudaStream_t stream, Work work);
  // Notes every word of the nodes' arguments, structures included, that is an address of memory now.
  void note_addresses(Sunk& sunk, cudaGraph_t graph) const;
  void require_living_addresses(const Sunk& sunk) const;
  void make_executable(CudaCapturedGraph& graph, GuestDevice& device);
  // These return the number of steps that were launched. If that is less than `steps`, CUDA refused the next launch, of
  // which nothing has run.
  std::int64_t launch(Sunk& sunk, cudaStream_t stream, std::int64_t steps);
  std::int64_t launch_loop(Sunk& sunk, cudaStream_t stream, std::int64_t steps);
  std::int64_t launch_step(Sunk& sunk, cudaStream_t stream);
  void note_launch(Sunk& sunk, cudaStream_t stream);
  // A launch failed, so the graph is dropped.
  void drop(Sunk& sunk, CaptureSlot& slot, cudaError_t code, const char* call, const char* consequence);
  // Says once that launches copy pageable memory of the host.
  void note_pageable_copy(const CudaCapturedGraph& graph, const Key& key);
  // Consequences of a failure, for the log.
  static constexpr const char *kAsItIs = " runs as it is: ", *kStepByStep = " takes a launch for each step: ";
  static constexpr const char* kTriedAgain =
      "; if only the first calls do this, SinkOptions::warm_runs leaves them out; the key is tried again ever more "
      "rarely, and by try_again()";
  void note_failure(const Sunk& sunk, const CaptureFailed& why, const char* consequence);

  SinkOptions options_;
  std::string lost_;  // the first failure that ended the context; empty as long as it works
  const std::shared_ptr<std::atomic<bool>> is_lost_ = std::make_shared<std::atomic<bool>>(false);
  Log log_;
  std::map<int, GuestDevice> devices_;
  OneThread one_thread_;
  SlotCache<Key, Sunk> cache_;  // by key and stream
  UseOfKeys use_of_keys_;
  bool is_use_noted_ = false, is_pageable_noted_ = false;
  KnownMemory memory_;
  NodeNamesFile node_names_;
  SinkReport counts_;
};

}  // namespace graphsink
