#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "capture/guest_capture.h"
#include "capture/known_memory.h"
#include "capture/node_values.h"
#include "capture/step_loop.h"
#include "device/cuda/captured_graph.h"
#include "device/cuda/target.h"
#include "exec/capture_slot.h"
#include "exec/slot_cache.h"
#include "graphsink/capture.h"

namespace graphsink {
namespace {

constexpr std::size_t kMaxFailureReasons = 32;

// What a failure leads to, for the log.
constexpr const char* kAsItIs = " runs as it is: ";
constexpr const char* kStepByStep = " takes a launch for each step: ";

// What is needed to capture on one device.
struct GuestDevice {
  std::shared_ptr<Calls> calls;
  GuestCapture capture;

  GuestDevice(int device, const Log& log, bool watch_legacy_stream)
      : calls(open_calls(device, log)), capture(calls, watch_legacy_stream) {}
};

// An address in device memory that a captured node was given.
struct GivenAddress {
  std::uintptr_t address = 0;
  std::uint64_t registration = 0;  // 0: CUDA alone knows it
  std::string place;               // "kernel add(int*, int), parameter 0"
};

// What is kept for one key on one stream. An executable graph runs on one stream at a time.
struct Sunk {
  explicit Sunk(Key k) : key(std::move(k)) {}

  Key key;
  GuestDevice* device = nullptr;      // null before the first capture
  CaptureSlot slot;                   // one step
  std::unique_ptr<CaptureSlot> loop;  // several steps; null until a call asks for them
  EventHandle launched;               // recorded after each launch; null before the first capture
  int warm_runs = 0;
  int in_use = 0;  // calls of run() that are under way
  int launches_since_check = 0;
  std::vector<GivenAddress> addresses;  // where launches are checked

  // With what the cache itself keeps: this, its copy of the key, an event.
  std::size_t bytes() const { return slot.bytes() + (loop ? loop->bytes() : 0) + 2 * sizeof(Sunk); }
  CudaCapturedGraph& graph() { return static_cast<CudaCapturedGraph&>(slot.graph()); }

  bool is_busy() const noexcept {
    if (in_use > 0) return true;
    if (!launched) return false;
    const cudaError_t code = cudaEventQuery(launched.get());
    if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
    return code == cudaErrorNotReady;
  }
};

// What fails in `make` is a failed capture, but for what nothing can be run after.
template <class Make>
std::unique_ptr<CapturedGraph> as_capture(const Sunk& sunk, const Make& make) {
  try {
    return make();
  } catch (const CaptureFailed&) {
    throw;
  } catch (const StreamLost&) {
    throw;
  } catch (const Error& e) {
    if (sunk.device && sunk.device->calls->is_lost()) throw;
    throw CaptureFailed(e.op(), e.where(), e.problem(), e.remedy());
  }
}

bool is_known_to_cuda(std::uintptr_t address, Calls& calls) {
  cudaPointerAttributes attributes = {};
  calls.check(cudaPointerGetAttributes(&attributes, reinterpret_cast<const void*>(address)),
              "cudaPointerGetAttributes");
  return attributes.type != cudaMemoryTypeUnregistered;
}

// Every word of the nodes' arguments, structures included, that is an address of memory now.
std::vector<GivenAddress> addresses_in(cudaGraph_t graph, const KnownMemory& memory, Calls& calls) {
  std::vector<GivenAddress> found;
  visit_values(graph, calls, [&](const NodeValue& value) {
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= value.bytes.size(); at += sizeof(std::uintptr_t)) {
      std::uintptr_t address = 0;
      std::memcpy(&address, &value.bytes[at], sizeof address);
      const std::uint64_t registration = memory.find(address);
      if (registration == 0 && (address == 0 || !is_known_to_cuda(address, calls))) continue;
      found.push_back({address, registration, value.node + ", " + value.name});
    }
  });
  return found;
}

bool is_same_shape(const CaptureInfo& a, const CaptureInfo& b) {
  return a.kernels == b.kernels && a.copies == b.copies && a.host_nodes == b.host_nodes &&
         a.empty_nodes == b.empty_nodes && a.edges == b.edges && a.bytes == b.bytes;
}

// CUDA cannot change these in an executable graph, or not all of their arguments.
bool can_be_taken_over(const CaptureInfo& info) {
  return info.conditional_nodes == 0 && info.allocations == 0 && info.frees == 0;
}

void require_repeatable(const CaptureInfo& info) {
  if (info.allocations == info.frees) return;
  throw CaptureFailed("capture", Where(),
                      "it allocates memory in stream order " + std::to_string(info.allocations) +
                          " times and frees it " + std::to_string(info.frees) +
                          " times, so a second launch would find other memory in use",
                      "free in the function what cudaMallocAsync() allocates there, or allocate it before");
}

}  // namespace

class SinkCache::Impl {
 public:
  explicit Impl(SinkOptions options) : options_(std::move(options)), log_(options_.log), cache_(options_.max_bytes) {}

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

 private:
  Sunk& find_or_add(cudaStream_t stream, const Key& key);
  GuestDevice& device_of(cudaStream_t stream);
  // Whether the stream takes part in a capture, so that its work becomes a part of that.
  bool is_inside(cudaStream_t stream) const;
  enum class Outcome : std::uint8_t { captured, failed, has_run };
  Outcome capture(Sunk& sunk, cudaStream_t stream, Work work);
  std::unique_ptr<CapturedGraph> captured_graph(Sunk& sunk, cudaStream_t stream, Work work, bool& has_run);
  GraphHandle capture_work(GuestDevice& device, cudaStream_t stream, Work work);
  // Whether a captured key can be launched, as far as it is time to look.
  Outcome check(Sunk& sunk, cudaStream_t stream, Work work);
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
  void note_failure(const Sunk& sunk, const CaptureFailed& why, const char* consequence);

  SinkOptions options_;
  Log log_;
  std::map<int, GuestDevice> devices_;
  SlotCache<Key, Sunk> cache_;  // by key and stream
  KnownMemory memory_;
  SinkReport counts_;
  bool is_capturing_ = false;
};

void SinkCache::Impl::run(cudaStream_t stream, const Key& key, Work work, std::int64_t steps, Where where) {
  if (steps < 1) throw Error("sink", where, std::to_string(steps) + " steps", "ask for at least 1");
  ++counts_.calls;
  counts_.steps += static_cast<std::uint64_t>(steps);
  auto run_as_it_is = [&](std::uint64_t& count) {
    work.call(work.function, stream);
    ++count;
    --steps;
  };
  if (is_inside(stream)) {
    while (steps > 0) run_as_it_is(counts_.inside);
    return;
  }
  Sunk& sunk = find_or_add(stream, key);
  struct InUse {
    int& count;
    explicit InUse(int& uses) : count(uses) { ++count; }
    ~InUse() { --count; }
  } in_use(sunk.in_use);
  while (!sunk.slot.is_captured() && sunk.warm_runs < options_.warm_runs) {
    run_as_it_is(counts_.warm);
    ++sunk.warm_runs;
    if (steps == 0) return;
  }
  const Outcome outcome = sunk.slot.is_captured()  ? check(sunk, stream, work)
                          : sunk.slot.is_refused() ? Outcome::failed
                                                   : capture(sunk, stream, work);
  if (outcome == Outcome::captured) steps -= launch(sunk, stream, steps);
  if (steps == 0) return;
  sunk.loop.reset();  // of a captured graph that is gone
  if (options_.strict) {
    const CaptureFailed& why = *sunk.slot.failure();
    throw Error("sink", where, "the work of key " + to_string(key) + " cannot be launched: " + why.problem(),
                why.remedy());
  }
  GRAPHSINK_TRACE(fallback, "as it is");
  if (outcome == Outcome::has_run) {
    ++counts_.as_is;
    --steps;
  }
  while (steps > 0) run_as_it_is(counts_.as_is);
}

bool SinkCache::Impl::is_inside(cudaStream_t stream) const {
  if (is_capturing_) return true;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  // No stream, or the legacy stream while another thread captures a blocking stream: the function meets the same error.
  (void)cudaGetLastError();
  return true;
}

Sunk& SinkCache::Impl::find_or_add(cudaStream_t stream, const Key& key) {
  Key signature = key;
  signature.add(static_cast<const void*>(stream));
  if (Sunk* found = cache_.find(signature)) return *found;
  Sunk& added = cache_.add(std::move(signature), std::make_unique<Sunk>(key));
  cache_.trim([&](const Sunk& sunk) { return &sunk == &added || sunk.is_busy(); });
  return added;
}

GuestDevice& SinkCache::Impl::device_of(cudaStream_t stream) {
  int device = 0;
  const cudaError_t code = cudaStreamGetDevice(stream, &device);
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    throw CaptureFailed("capture", Where(), describe(code, "cudaStreamGetDevice"), "pass a stream that exists");
  }
  return devices_.try_emplace(device, device, log_, options_.watch_legacy_stream).first->second;
}

SinkCache::Impl::Outcome SinkCache::Impl::capture(Sunk& sunk, cudaStream_t stream, Work work) {
  bool has_run = false;
  const bool captured =
      sunk.slot.capture([&] { return as_capture(sunk, [&] { return captured_graph(sunk, stream, work, has_run); }); });
  if (captured) {
    ++counts_.captures;
    cache_.trim([](const Sunk& other) { return other.is_busy(); });
    return Outcome::captured;
  }
  note_failure(sunk, *sunk.slot.failure(), kAsItIs);
  return has_run ? Outcome::has_run : Outcome::failed;
}

std::unique_ptr<CapturedGraph> SinkCache::Impl::captured_graph(Sunk& sunk, cudaStream_t stream, Work work,
                                                               bool& has_run) {
  sunk.device = &device_of(stream);
  Calls& calls = *sunk.device->calls;
  const CurrentDevice current(calls);
  if (!sunk.launched) {
    calls.check(cudaEventCreateWithFlags(sunk.launched.out(log_), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  auto graph = std::make_unique<CudaCapturedGraph>(capture_work(*sunk.device, stream, work), calls);
  has_run = graph->info().bytes == 0;
  if (has_run) {
    throw CaptureFailed("capture", Where(),
                        "the function enqueued nothing on the stream that it was given; what it gave to other streams "
                        "runs as it is",
                        "enqueue on the given stream, or on streams that wait for an event of it");
  }
  require_repeatable(graph->info());
  if (options_.check_every > 0) sunk.addresses = addresses_in(graph->graph(), memory_, calls);
  make_executable(*graph, *sunk.device);
  return graph;
}

GraphHandle SinkCache::Impl::capture_work(GuestDevice& device, cudaStream_t stream, Work work) {
  GRAPHSINK_TRACE(capture, "capture");
  struct Capturing {
    bool& flag;
    explicit Capturing(bool& is_capturing) : flag(is_capturing) { flag = true; }
    ~Capturing() { flag = false; }
  } capturing(is_capturing_);
  return device.capture.capture(stream, [&](cudaStream_t given) { work.call(work.function, given); });
}

SinkCache::Impl::Outcome SinkCache::Impl::check(Sunk& sunk, cudaStream_t stream, Work work) {
  if (options_.check_every <= 0 || ++sunk.launches_since_check < options_.check_every) return Outcome::captured;
  sunk.launches_since_check = 0;
  ++counts_.checks;
  Calls& calls = *sunk.device->calls;
  try {
    const CurrentDevice current(calls);
    require_living_addresses(sunk);
    const GraphHandle now = capture_work(*sunk.device, stream, work);
    const std::string change = difference(sunk.graph().graph(), now.get(), calls);
    if (change.empty()) return Outcome::captured;
    sunk.slot.refuse(CaptureFailed("capture", Where(), "what the function enqueues has changed: " + change,
                                   "put what changes into the key, or keep it in device memory"));
  } catch (const StreamLost&) {
    throw;
  } catch (const Error& e) {
    if (calls.is_lost()) throw;
    sunk.slot.drop(CaptureFailed(e.op(), e.where(), e.problem(), e.remedy()));
  }
  note_failure(sunk, *sunk.slot.failure(), kAsItIs);
  return Outcome::failed;
}

void SinkCache::Impl::require_living_addresses(const Sunk& sunk) const {
  for (const GivenAddress& given : sunk.addresses) {
    const bool is_alive = given.registration > 0 ? memory_.find(given.address) == given.registration
                                                 : is_known_to_cuda(given.address, *sunk.device->calls);
    if (is_alive) continue;
    throw CaptureFailed("capture", Where(),
                        given.place + " is an address of memory that is not alive any more: " +
                            to_string(Key(reinterpret_cast<const void*>(given.address))),
                        "put the pointer into the key, or keep the memory as long as the key is used");
  }
}

void SinkCache::Impl::make_executable(CudaCapturedGraph& graph, GuestDevice& device) {
  const CaptureInfo info = graph.info();
  if (can_be_taken_over(info) && cache_.bytes() + info.bytes > cache_.most_bytes()) {
    Sunk* old = cache_.oldest([&](const Sunk& sunk) {
      return sunk.device == &device && sunk.slot.is_captured() && is_same_shape(sunk.slot.graph().info(), info) &&
             !sunk.is_busy();
    });
    if (old) {
      GraphExecHandle exec = old->graph().release_exec();
      cache_.drop(*old);
      const bool is_updated = graph.take_over(std::move(exec));
      ++(is_updated ? counts_.updates : counts_.update_refusals);
      if (is_updated) return;
    }
  }
  graph.instantiate(device.capture.origin());
  ++counts_.instantiations;
}

std::int64_t SinkCache::Impl::launch(Sunk& sunk, cudaStream_t stream, std::int64_t steps) {
  GRAPHSINK_TRACE(launch, "launch");
  std::int64_t launched = steps > 1 ? launch_loop(sunk, stream, steps) : 0;
  while (launched < steps && sunk.slot.is_captured()) launched += launch_step(sunk, stream);
  return launched;
}

std::int64_t SinkCache::Impl::launch_loop(Sunk& sunk, cudaStream_t stream, std::int64_t steps) {
  if (!sunk.loop) sunk.loop = std::make_unique<CaptureSlot>();
  CaptureSlot& loop = *sunk.loop;
  if (loop.is_refused()) return 0;
  if (!loop.is_captured()) {
    Calls& calls = *sunk.device->calls;
    const bool captured = loop.capture([&] {
      const CurrentDevice current(calls);
      return as_capture(sunk, [&]() -> std::unique_ptr<CapturedGraph> {
        return StepLoop::make(sunk.graph(), sunk.device->capture.origin(), calls);
      });
    });
    if (!captured) {
      note_failure(sunk, *loop.failure(), kStepByStep);
      return 0;
    }
    cache_.trim([](const Sunk& other) { return other.is_busy(); });
  }
  const char* call = nullptr;
  const cudaError_t code = static_cast<StepLoop&>(loop.graph()).launch(stream, steps, call);
  if (code != cudaSuccess) {
    drop(sunk, loop, code, call, kStepByStep);
    return 0;
  }
  ++counts_.loops;
  note_launch(sunk, stream);
  return steps;
}

std::int64_t SinkCache::Impl::launch_step(Sunk& sunk, cudaStream_t stream) {
  if (const cudaError_t code = cudaGraphLaunch(sunk.graph().exec(), stream); code != cudaSuccess) {
    drop(sunk, sunk.slot, code, "cudaGraphLaunch", kAsItIs);
    return 0;
  }
  note_launch(sunk, stream);
  return 1;
}

void SinkCache::Impl::note_launch(Sunk& sunk, cudaStream_t stream) {
  ++counts_.launches;
  // Without the event the key may be dropped while it runs, which CUDA allows.
  if (cudaEventRecord(sunk.launched.get(), stream) != cudaSuccess) (void)cudaGetLastError();
}

void SinkCache::Impl::drop(Sunk& sunk, CaptureSlot& slot, cudaError_t code, const char* call, const char* consequence) {
  if (is_sticky(code)) sunk.device->calls->fail(code, call);
  (void)cudaGetLastError();
  slot.drop(CaptureFailed("capture", Where(), describe(code, call),
                          "see this error in the documentation of the CUDA runtime"));
  note_failure(sunk, *slot.failure(), consequence);
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
  log_.warn(
      {"sink: the work of key ", counts_.failures.back().key, consequence, why.problem(), "; remedy: ", why.remedy()});
}

SinkReport SinkCache::Impl::report() const {
  SinkReport report = counts_;
  report.evictions = cache_.evicted();
  report.bytes = cache_.bytes();
  report.keys = cache_.size();
  cache_.for_each([&](const Sunk& sunk) {
    report.captured += sunk.slot.is_captured();
    report.refused += sunk.slot.is_refused();
  });
  return report;
}

SinkCache::SinkCache(SinkOptions options, Where) : impl_(std::make_unique<Impl>(std::move(options))) {}
SinkCache::~SinkCache() = default;
SinkCache::SinkCache(SinkCache&&) noexcept = default;
SinkCache& SinkCache::operator=(SinkCache&&) noexcept = default;

SinkCache::Impl& SinkCache::impl(const Where& where) const {
  if (impl_) return *impl_;
  throw Error("SinkCache", where, "it was moved from", "use the one that it was moved to");
}

void SinkCache::run(cudaStream_t stream, const Key& key, Work work, const SinkRunOptions& options, Where where) {
  impl(where).run(stream, key, work, options.steps, where);
}
void SinkCache::register_memory(const void* memory, std::size_t bytes) { impl().register_memory(memory, bytes); }
void SinkCache::forget_memory(const void* memory) { impl().forget_memory(memory); }
void SinkCache::try_again() { impl().try_again(); }
void SinkCache::clear() { impl().clear(); }
SinkReport SinkCache::report() const { return impl().report(); }

}  // namespace graphsink
