#include "capture/sink_cache_impl.h"

#include <algorithm>
#include <utility>

#include "base/in_capture.h"
#include "base/left_behind.h"
#include "base/trace.h"

namespace graphsink {
namespace {

constexpr std::size_t kMaxFailureReasons = 32;

}  // namespace

LogFunction SinkCache::Impl::until_lost(LogFunction log) const {
  return [to = Log(std::move(log)), is_lost = is_lost_](LogLevel level, std::string_view message) {
    if (is_lost->load()) return;
    level == LogLevel::error ? to.error({message}) : to.warn({message});
  };
}

void SinkCache::Impl::note_lost() {
  for (const auto& [number, device] : devices_)
    if (lost_.empty()) lost_ = device.calls->first_failure();
  is_lost_->store(!lost_.empty());
}

void SinkCache::Impl::run(cudaStream_t stream, const Key& key, Work work, std::int64_t steps, Where where) {
  try {
    run_steps(stream, key, work, steps, where);
  } catch (const Error&) {
    note_lost();
    throw;
  }
}

void SinkCache::Impl::run_steps(cudaStream_t stream, const Key& key, Work work, std::int64_t steps,
                                const Where& where) {
  if (steps < 1) throw Error("sink", where, std::to_string(steps) + " steps", "ask for at least 1");
  ++counts_.calls;
  counts_.steps += static_cast<std::uint64_t>(steps);
  if (is_inside(stream, where)) {
    for (; steps > 0; --steps) {
      work.call(work.function, stream);
      ++counts_.inside;
    }
    return;
  }
  GuestDevice& device = device_of(stream, where);
  const CurrentDevice current(*device.calls);
  Sunk& sunk = find_or_add(stream, device, key);
  struct InUse {
    int& count;
    explicit InUse(int& uses) : count(uses) { ++count; }
    ~InUse() { --count; }
  } in_use(sunk.in_use);
  run_key(sunk, stream, work, steps, where);
  note_use(sunk);
}

void SinkCache::Impl::run_key(Sunk& sunk, cudaStream_t stream, Work work, std::int64_t steps, const Where& where) {
  auto run_as_it_is = [&](std::uint64_t& count) {
    work.call(work.function, stream);
    ++count;
    --steps;
  };
  const bool was_captured = sunk.slot.is_captured();
  while (!sunk.slot.is_captured() && sunk.warm_runs < options_.warm_runs) {
    run_as_it_is(counts_.warm);
    ++sunk.warm_runs;
    if (steps == 0) return;
  }
  const Outcome outcome = sunk.slot.is_captured() ? check(sunk, stream, work)
                          : sunk.is_due()         ? capture(sunk, stream, work)
                                                  : Outcome::failed;
  if (outcome == Outcome::captured) {
    const std::int64_t launched = launch(sunk, stream, steps);
    if (launched > (was_captured ? 0 : 1)) use_of_keys_.call_is_of_use();
    steps -= launched;
  }
  if (steps == 0) return;
  sunk.loop.reset();  // the loop was made of a captured graph that is gone
  if (options_.strict) {
    const CaptureFailed& why = *sunk.slot.failure();
    throw Error("sink", where, "the work of key " + to_string(sunk.key) + " cannot be launched: " + why.problem(),
                why.remedy(), why.code());
  }
  GRAPHSINK_TRACE(fallback, "as it is");
  if (outcome == Outcome::has_run) {
    ++counts_.as_is;
    --steps;
  }
  while (steps > 0) run_as_it_is(counts_.as_is);
}

bool SinkCache::Impl::is_inside(cudaStream_t stream, const Where& where) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaSuccess) {
    if (status != cudaStreamCaptureStatusNone) return true;
    if (!InCapture::here()) return false;
    throw Error("sink", where,
                "run() was called in a function that a SinkCache captures, on a stream that takes no part in that: the "
                "work would be done now, and be missing from every launch",
                "pass the stream that the function is given, or one that waits for an event of it");
  }
  (void)cudaGetLastError();
  const bool is_legacy = stream == nullptr || stream == cudaStreamLegacy;
  if (code == cudaErrorStreamCaptureImplicit && is_legacy) return true;
  std::string problem = describe(code, "cudaStreamIsCapturing");
  if (is_sticky(code)) {
    if (lost_.empty()) lost_ = problem;
    problem = "the device is lost: " + lost_;
  }
  throw Error("sink", where, problem, remedy_for(code), error_code_of(code));
}

// The address of a stream that was destroyed may be that of another one on another device.
Sunk& SinkCache::Impl::find_or_add(cudaStream_t stream, GuestDevice& device, const Key& key) {
  Key signature = key;
  signature.add(static_cast<const void*>(stream)).add(device.calls->device());
  if (Sunk* found = cache_.find(signature)) return *found;
  Sunk& added = cache_.add(std::move(signature), std::make_unique<Sunk>(key, device));
  use_of_keys_.key_is_new();
  trim(&added);
  return added;
}

void SinkCache::Impl::trim(const Sunk* kept) {
  cache_.trim([&](const Sunk& sunk) { return &sunk == kept || sunk.is_busy(); },
              [&](const Sunk& sunk) {
                if (sunk.slot.is_captured()) use_of_keys_.captured_key_is_dropped();
              });
}

void SinkCache::Impl::note_use(const Sunk& sunk) {
  const UseOfKeys::Verdict verdict = use_of_keys_.end_call();
  if (verdict == UseOfKeys::Verdict::none || std::exchange(is_use_noted_, true)) return;
  std::string problem = "each of the last " + std::to_string(UseOfKeys::kWindow * UseOfKeys::kWindowsOfNewKeys) +
                        " calls had a key that the cache did not hold, so nothing that was captured is launched again";
  const char* remedy =
      "keep what changes with each call (a step's number, a new address) in device memory instead of the key; if the "
      "keys do come back later, raise SinkOptions::max_bytes";
  if (verdict == UseOfKeys::Verdict::keys_are_dropped) {
    std::size_t largest = 0;
    cache_.for_each([&](const Sunk& other) { largest = std::max(largest, other.bytes()); });
    problem = "keys are dropped and captured again in turn: what is kept may take " +
              std::to_string(cache_.most_bytes() >> 10) + " KiB, and one key takes up to about " +
              std::to_string(largest >> 10) + " KiB";
    remedy = "raise SinkOptions::max_bytes to what the keys that are used in turn take together, or use fewer keys";
  }
  if (counts_.failures.size() == kMaxFailureReasons) {
    ++counts_.other_failures;
  } else {
    counts_.failures.push_back({to_string(sunk.key), problem, remedy, 1});
  }
  log_.warn({"sink: ", problem, "; remedy: ", remedy});
}

std::size_t SinkCache::Impl::bound_for(GuestDevice& device) {
  constexpr std::size_t kShare = 64, kWithoutAnAnswer = std::size_t{64} << 20;
  const CurrentDevice current(*device.calls);
  std::size_t free = 0, total = 0;
  const cudaError_t code = cudaMemGetInfo(&free, &total);
  if (code == cudaSuccess) return total / kShare;
  (void)cudaGetLastError();
  log_.warn({"sink: what is kept for keys may take 64 MiB, because ", describe(code, "cudaMemGetInfo")});
  return kWithoutAnAnswer;
}

GuestDevice& SinkCache::Impl::device_of(cudaStream_t stream, const Where& where) {
  if (devices_.size() == 1 && devices_.begin()->second.calls->is_only_device()) return devices_.begin()->second;
  int device = 0;
  const cudaError_t code = cudaStreamGetDevice(stream, &device);
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    throw Error("sink", where, describe(code, "cudaStreamGetDevice"), remedy_for(code), error_code_of(code));
  }
  if (const auto known = devices_.find(device); known != devices_.end()) return known->second;
  GuestDevice& opened = devices_.try_emplace(device, device, log_).first->second;
  if (options_.max_bytes == 0) cache_.set_most_bytes(cache_.most_bytes() + bound_for(opened));
  return opened;
}

SinkCache::Impl::Outcome SinkCache::Impl::capture(Sunk& sunk, cudaStream_t stream, Work work) {
  bool has_run = false;
  const bool captured =
      sunk.slot.capture([&] { return as_capture(sunk, [&] { return captured_graph(sunk, stream, work, has_run); }); });
  if (captured) {
    ++counts_.captures;
    node_names_.add(sunk.graph(), to_string(sunk.key));
    trim(nullptr);
    return Outcome::captured;
  }
  sunk.plan_next_attempt();
  note_failure(sunk, *sunk.slot.failure(), kAsItIs);
  return has_run ? Outcome::has_run : Outcome::failed;
}

std::unique_ptr<CapturedGraph> SinkCache::Impl::captured_graph(Sunk& sunk, cudaStream_t stream, Work work,
                                                               bool& has_run) {
  Calls& calls = *sunk.device.calls;
  if (!sunk.launched) {
    calls.check(cudaEventCreateWithFlags(sunk.launched.out(log_), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  const CalledStack called(__builtin_frame_address(0));
  const LegacyStream legacy = options_.watch_legacy_stream ? LegacyStream::watched : LegacyStream::free;
  auto graph =
      std::make_unique<CudaCapturedGraph>(capture_work(sunk.device, stream, legacy, work), CapturedNodes{}, calls);
  has_run = graph->info().bytes == 0;
  if (has_run) {
    throw CaptureFailed("capture", Where(),
                        "the function enqueued nothing on the stream that it was given; what it gave to other streams "
                        "runs as it is",
                        "enqueue on the given stream, or on streams that wait for an event of it");
  }
  graph->require_repeatable();
  graph->require_lasting_memory(called);
  note_pageable_copy(*graph, sunk.key);
  if (options_.check_every > 0) note_addresses(sunk, graph->graph());
  make_executable(*graph, sunk.device);
  return graph;
}

GraphHandle SinkCache::Impl::capture_work(GuestDevice& device, cudaStream_t stream, LegacyStream legacy, Work work) {
  GRAPHSINK_TRACE(capture, "capture");
  const InCapture capturing;
  return device.capture.capture(stream, legacy, [&](cudaStream_t given) { work.call(work.function, given); });
}

void SinkCache::Impl::make_executable(CudaCapturedGraph& graph, GuestDevice& device) {
  if (cache_.bytes() + graph.info().bytes > cache_.most_bytes()) {
    Sunk* old = cache_.oldest([&](const Sunk& sunk) {
      return &sunk.device == &device && sunk.slot.is_captured() &&
             graph.resembles(static_cast<const CudaCapturedGraph&>(sunk.slot.graph())) && !sunk.is_busy();
    });
    if (old) {
      const std::unique_ptr<CapturedGraph> spare = old->slot.take();
      cache_.drop(*old);
      use_of_keys_.captured_key_is_dropped();
      const bool is_updated = graph.take_over(static_cast<CudaCapturedGraph&>(*spare));
      ++(is_updated ? counts_.updates : counts_.update_refusals);
      if (is_updated) return;
    }
  }
  graph.instantiate(device.capture.origin());
  ++counts_.instantiations;
}

void SinkCache::Impl::note_pageable_copy(const CudaCapturedGraph& graph, const Key& key) {
  if (is_pageable_noted_) return;
  const std::string copy = graph.pageable_copy();
  if (copy.empty()) return;
  is_pageable_noted_ = true;
  log_.warn({"sink: key ", to_string(key), ": ", kPageableCopy, copy});
}

void SinkCache::Impl::note_failure(const Sunk& sunk, const CaptureFailed& why, const char* consequence) {
  for (SinkFailure& known : counts_.failures) {
    if (known.problem != why.problem()) continue;
    ++known.count;
    return;
  }
  if (counts_.failures.size() == kMaxFailureReasons) {
    ++counts_.other_failures;
    return;
  }
  counts_.failures.push_back({to_string(sunk.key), why.problem(), why.remedy(), 1});
  log_.warn({"sink: the work of key ", counts_.failures.back().key, consequence, why.problem(), "; remedy: ",
             why.remedy(), consequence == kAsItIs && !sunk.slot.is_refused_for_good() ? kTriedAgain : ""});
}

SinkReport SinkCache::Impl::report() const {
  SinkReport report = counts_;
  report.watches_legacy_stream = options_.watch_legacy_stream || options_.check_every > 0;
  report.evictions = cache_.evicted();
  report.bytes = cache_.bytes();
  report.max_bytes = cache_.most_bytes();
  report.keys = cache_.size();
  cache_.for_each([&](const Sunk& sunk) {
    report.captured += sunk.slot.is_captured();
    report.refused += sunk.slot.is_refused();
  });
  return report;
}

void SinkCache::Impl::write_node_names(const std::string& path, const Where& where) const {
  std::string names;
  cache_.for_each([&](const Sunk& sunk) {
    const std::string key = to_string(sunk.key);
    if (sunk.slot.is_captured()) names += node_names(sunk.slot.graph(), key);
    if (sunk.loop && sunk.loop->is_captured()) names += node_names(sunk.loop->graph(), key);
  });
  graphsink::write_node_names(path, names, where);
}

SinkCache::SinkCache(SinkOptions options, Where where) {
  for (auto [name, number] :
       {std::pair{"warm_runs", options.warm_runs}, std::pair{"check_every", options.check_every}}) {
    if (number < 0)
      throw Error("SinkCache", where, "SinkOptions::" + std::string(name) + " is " + std::to_string(number),
                  "give a number of at least 0");
  }
  impl_ = std::make_unique<Impl>(std::move(options));
}
SinkCache::~SinkCache() {
  impl_.reset();
  LeftBehind::free_all();
}
SinkCache::SinkCache(SinkCache&&) noexcept = default;
SinkCache& SinkCache::operator=(SinkCache&&) noexcept = default;

struct SinkCache::Call : CallOf<Impl> {
  using CallOf::CallOf;
};

SinkCache::Call SinkCache::impl(const Where& where) const {
  LeftBehind::free_all();
  if (impl_) return {*impl_, impl_->one_thread(), "SinkCache", where};
  throw Error("SinkCache", where, "it was moved from", "use the one that it was moved to");
}

void SinkCache::run(cudaStream_t stream, const Key& key, Work work, const SinkRunOptions& options, Where where) {
  impl(where)->run(stream, key, work, options.steps, where);
}
void SinkCache::register_memory(const void* memory, std::size_t bytes) { impl()->register_memory(memory, bytes); }
void SinkCache::forget_memory(const void* memory) { impl()->forget_memory(memory); }
void SinkCache::try_again() { impl()->try_again(); }
void SinkCache::clear() { impl()->clear(); }
SinkReport SinkCache::report() const { return impl()->report(); }
void SinkCache::write_node_names(const std::string& path, Where where) const {
  impl(where)->write_node_names(path, where);
}

}  // namespace graphsink
