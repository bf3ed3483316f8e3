#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "profiler.h"

namespace emu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int calls_of_thread = 0;

cudaError_t take_fault(Runtime& r, std::string_view name) {
  for (std::size_t i = 0; i < r.faults.size(); ++i) {
    Fault& fault = r.faults[i];
    if (fault.function != "*" && fault.function != name) continue;
    if (fault.remaining > 1) {
      --fault.remaining;
      continue;
    }
    const cudaError_t code = fault.code;
    if (!fault.forever) r.faults.erase(r.faults.begin() + static_cast<std::ptrdiff_t>(i));
    return code;
  }
  return cudaSuccess;
}

// The runtime asks the driver for the context first, whatever the call.
cudaError_t refuse_host_function() {
  for (int i = 0; i < 2; ++i) {
    explain(cudaErrorNotPermitted, "CUDA driver does not allow certain callbacks to invoke its APIs");
  }
  use_driver_name("cuCtxGetCurrent");
  return cudaErrorNotPermitted;
}

}  // namespace

Runtime::Runtime() {
  const char* devices = std::getenv("GS_EMU_DEVICES");
  set_device_count(devices == nullptr ? 1 : std::max(0, std::atoi(devices)));
  const char* peer_access = std::getenv("GS_EMU_PEERS");
  has_peer_access = peer_access == nullptr || peer_access[0] != '0';
  const char* destroy = std::getenv("GS_EMU_DESTROY_ENDS_CAPTURE");
  destroy_ends_capture = destroy == nullptr || destroy[0] != '0';
  const char* named = std::getenv("GS_EMU_COMPILER");
  compiler = named == nullptr ? "" : named;
  const char* text = std::getenv("GS_EMU_SEED");
  executor.set_seed(text == nullptr ? 0 : std::strtoull(text, nullptr, 10));
  const char* traced = std::getenv("GS_EMU_TRACE");
  trace = traced != nullptr && traced[0] == '1';
  load_injection();
}

// What devices that no longer answer had stays: objects may still name it.
void Runtime::set_device_count(int count) {
  device_count = count;
  for (int device = static_cast<int>(legacy.size()); device < count; ++device) {
    legacy.push_back(std::make_unique<CUstream_st>());
    default_pools.push_back(std::make_unique<CUmemPoolHandle_st>());
    legacy.back()->device = device;
    legacy.back()->legacy = true;
  }
}

Runtime& runtime() {
  static Runtime* const instance = new Runtime;
  return *instance;
}

bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorContained:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

InCall::InCall() noexcept { ++calls_of_thread; }
InCall::~InCall() { --calls_of_thread; }
bool is_in_call() { return calls_of_thread > 0; }

cudaError_t enter_call(Runtime& r, const char* name, When when) {
  ++r.total_calls;
  auto counter = r.calls.find(std::string_view(name));
  if (counter == r.calls.end()) counter = r.calls.emplace(name, 0).first;
  ++counter->second;
  begin_log();
  if (is_cuda_forbidden()) return refuse_host_function();
  if (const cudaError_t fault = take_fault(r, name); fault != cudaSuccess) {
    ++r.injected[name];
    if (is_sticky(fault)) r.executor.set_sticky(fault);
    return fault;
  }
  if (when == When::kAlways || r.executor.sticky() == cudaSuccess) return cudaSuccess;
  return explain(r.executor.sticky(), "Sticky error detected");
}

cudaError_t leave_call(Runtime& r, const char* name, cudaError_t code, When when) {
  if (when == When::kAlways && r.executor.sticky() != cudaSuccess) code = r.executor.sticky();
  if (code != cudaSuccess && code != cudaErrorNotReady) {  // which is an answer, no error
    last_error = code;
    log_error(r, name, code);
  }
  leave_untracked(r, name, code);
  return code;
}

void leave_untracked(Runtime& r, const char* name, int code) {
  end_log(r);
  close_device_memory();
  if (r.trace) std::fprintf(stderr, "cuda emulator: %s = %d\n", name, code);
}

cudaError_t last_error_of_thread(bool clear) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const cudaError_t code = last_error;  // also of a device that has failed: the next call says so again
  if (clear) last_error = cudaSuccess;
  return code;
}

void end_process(const std::string& why) {
  std::fprintf(stderr, "cuda emulator: %s\n", why.c_str());
  std::abort();
}

void not_implemented(const char* name) { end_process(std::string(name) + " is not implemented"); }

void register_kernel(const void* function, const KernelSignature& signature) {
  Runtime& r = runtime();
  const std::lock_guard guard(r.kernel_mutex);
  r.kernels[function].signature = signature;
}

void set_seed(std::uint64_t seed) {
  const Lock lock(runtime().mutex);
  runtime().executor.set_seed(seed);
}

std::uint64_t seed() {
  const Lock lock(runtime().mutex);
  return runtime().executor.seed();
}

void fail(std::string_view function, int nth, cudaError_t code, bool forever) {
  const Lock lock(runtime().mutex);
  runtime().faults.push_back({std::string(function), nth, code, forever});
}

void clear_faults() {
  const Lock lock(runtime().mutex);
  runtime().faults.clear();
}

std::map<std::string, std::size_t> injected() {
  const Lock lock(runtime().mutex);
  return runtime().injected;
}

void release_memory() {
  const Lock lock(runtime().mutex);
  runtime().memory.release_all();
}

void set_peer_access(bool on) {
  const Lock lock(runtime().mutex);
  runtime().has_peer_access = on;
  if (!on) runtime().peers.clear();
}

void set_address_check(bool on) {
  const Lock lock(runtime().mutex);
  runtime().checks_addresses = on;
}

void set_destroy_ends_capture(bool on) {
  const Lock lock(runtime().mutex);
  runtime().destroy_ends_capture = on;
}

void set_device_count(int count) {
  const Lock lock(runtime().mutex);
  runtime().set_device_count(count);
}

std::size_t calls(std::string_view function) {
  const Lock lock(runtime().mutex);
  const auto counter = runtime().calls.find(function);
  return counter == runtime().calls.end() ? 0 : counter->second;
}

std::size_t total_calls() {
  const Lock lock(runtime().mutex);
  return runtime().total_calls;
}

void reset_calls() {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  r.calls.clear();
  r.injected.clear();
  r.total_calls = 0;
  r.executor.executed = Executed();
}

Executed executed() {
  const Lock lock(runtime().mutex);
  return runtime().executor.executed;
}

LiveObjects live_objects() {
  Runtime& r = runtime();
  LiveObjects live;
  live.user_objects = r.user_objects.count_after_destructors();
  const Lock lock(r.mutex);
  for (const cudaStream_t stream : r.streams) live.streams += !stream->of_thread;
  live.events = r.events.size();
  for (const cudaGraph_t graph : r.graphs) live.graphs += graph->owner == nullptr;
  live.execs = r.execs.size();
  live.blas_handles = r.blas_handles.size();
  live.libraries = r.libraries.size();
  live.log_callbacks = r.log_callbacks.size();
  r.memory.count(live);
  return live;
}

std::size_t outstanding() {
  const Lock lock(runtime().mutex);
  return runtime().executor.outstanding();
}

void reset() {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  r.executor.cancel_all();
  r.executor.clear_sticky();
  r.faults.clear();
  while (!r.captures.empty()) {  // the latest first, as it may capture into a body of an earlier one's graph
    const CaptureRef capture = r.captures.back();
    r.captures.pop_back();
    capture->invalid = capture->ended = true;
    for (const cudaStream_t stream : capture->streams) {
      stream->capture = nullptr;
      stream->frontier.clear();
    }
    if (capture->owns_graph) delete capture->graph;
  }
  reset_capture_mode();  // a guard that restores it may have met the sticky error
  r.async_freed.clear();
  r.next_graph = 1;
  r.last_failure.clear();
  last_error = cudaSuccess;
}

std::string last_failure() {
  const Lock lock(runtime().mutex);
  return runtime().last_failure;
}

void set_trace(bool on) {
  const Lock lock(runtime().mutex);
  runtime().trace = on;
}

}  // namespace emu
