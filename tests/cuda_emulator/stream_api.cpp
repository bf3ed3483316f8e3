// Streams and events.
#include <algorithm>
#include <utility>

#include "runtime.h"

namespace emu {
namespace {

// The streams that cudaStreamPerThread means to one thread, by device. They end with the thread; what they were given
// runs all the same.
class ThreadStreams {
 public:
  ThreadStreams() = default;
  ThreadStreams(const ThreadStreams&) = delete;
  ThreadStreams& operator=(const ThreadStreams&) = delete;
  ~ThreadStreams() {
    Runtime& r = runtime();
    const Lock lock(r.mutex);
    for (const auto& [device, stream] : streams_) {
      if (stream->capture != nullptr) leave_capture(r, *stream);
      r.streams.erase(stream.get());
    }
  }

  CUstream_st* get(Runtime& r, int device) {
    std::unique_ptr<CUstream_st>& stream = streams_[device];
    if (stream == nullptr) {
      stream = std::make_unique<CUstream_st>();
      stream->device = device;
      stream->of_thread = true;
      r.streams.insert(stream.get());
    }
    return stream.get();
  }

 private:
  std::map<int, std::unique_ptr<CUstream_st>> streams_;
};

thread_local ThreadStreams thread_streams;

}  // namespace

CUstream_st* find_stream(Runtime& r, cudaStream_t handle) {
  if (handle == cudaStreamPerThread) return thread_streams.get(r, current_device());
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return r.legacy[static_cast<std::size_t>(current_device())].get();
  }
  return r.streams.contains(handle) ? handle : nullptr;
}

void append(Runtime& r, CUstream_st& stream, const OpRef& op, std::vector<OpRef> before) {
  before.push_back(stream.tail);
  if (stream.legacy) {
    for (const cudaStream_t other : r.streams) {
      if (other->is_blocking() && other->device == stream.device) before.push_back(other->tail);
    }
  } else if (stream.is_blocking()) {
    before.push_back(r.legacy[static_cast<std::size_t>(stream.device)]->tail);
  }
  r.executor.submit(op, before);
  stream.tail = op;
}

cudaError_t issue(Runtime& r, Lock& lock, cudaStream_t handle, Work work) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (auto* copy = std::get_if<CopyWork>(&work)) copy->device = stream->device;
  auto* kernel = std::get_if<KernelWork>(&work);
  if (kernel != nullptr && stream->capture != nullptr) {
    kernel->attributes[cudaLaunchAttributePriority].priority = stream->priority;
  }
  const CaptureRef capture = active_capture(*stream);
  // In a graph the edges say so.
  const bool programmatic = capture != nullptr && kernel != nullptr && std::exchange(kernel->programmatic, false);
  auto shared = std::make_shared<const Work>(std::move(work));
  if (capture != nullptr) {
    std::vector<Edge> before = stream->frontier;
    for (Edge& edge : before) {
      if (programmatic && edge.node->type == cudaGraphNodeTypeKernel) {
        edge.data.from_port = cudaGraphKernelNodePortProgrammatic;
        edge.data.type = cudaGraphDependencyTypeProgrammatic;
      }
    }
    stream->frontier = {{add_node(capture->graph, shared, before), {}}};
    return cudaSuccess;
  }
  append(r, *stream, make_op(shared));
  r.executor.run_ahead(lock);
  return cudaSuccess;
}

namespace {

cudaError_t create_stream(Runtime& r, cudaStream_t* out, unsigned flags, int priority) {
  if (out == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
  auto* stream = new CUstream_st;
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  r.streams.insert(stream);
  *out = stream;
  return cudaSuccess;
}

// The checks that synchronizing or querying a stream shares.
cudaError_t check_wait(Runtime& r, CUstream_st& stream) {
  if (const cudaError_t refused = check_capture(r, stream); refused != cudaSuccess) return refused;
  if (const cudaError_t refused = refuse_captured(stream); refused != cudaSuccess) return refused;
  return refuse_unsafe(r);
}

// What waiting for the legacy stream waits for: it is ordered after the blocking streams.
std::vector<OpRef> tails(Runtime& r, CUstream_st& stream) {
  std::vector<OpRef> all{stream.tail};
  if (!stream.legacy) return all;
  for (const cudaStream_t other : r.streams) {
    if (other->is_blocking() && other->device == stream.device) all.push_back(other->tail);
  }
  return all;
}

cudaError_t create_event(Runtime& r, cudaEvent_t* out, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (out == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  const bool is_shared = (flags & cudaEventInterprocess) != 0;
  if (is_shared && (flags & cudaEventDisableTiming) == 0) return cudaErrorInvalidValue;
  auto* event = new CUevent_st;
  event->flags = flags;
  event->device = current_device();
  r.events.insert(event);
  *out = event;
  return cudaSuccess;
}

cudaError_t record_event(Runtime& r, Lock& lock, cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr || !r.events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  if (flags > cudaEventRecordExternal) return cudaErrorInvalidValue;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (flags == cudaEventRecordExternal) {
    if (stream->capture != nullptr) return issue(r, lock, handle, EventWork{event, true});
    return explain(cudaErrorIllegalState, "CU_EVENT_RECORD_EXTERNAL flag is set but stream is not capturing");
  }
  event->capture = active_capture(*stream);
  event->frontier = stream->frontier;
  event->op = nullptr;
  if (event->capture != nullptr) return cudaSuccess;
  event->op = std::make_shared<Op>();
  append(r, *stream, event->op);
  r.executor.run_ahead(lock);
  return cudaSuccess;
}

cudaError_t refuse_captured_event() { return explain(cudaErrorCapturedEvent, "Recorded event not allowed on stream"); }

cudaError_t check_event_wait(Runtime& r, CUevent_st& event) {
  if (event.capture == nullptr) return refuse_unsafe(r);
  invalidate(*event.capture);
  return refuse_captured_event();
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;
using emu::When;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return api("cudaStreamCreate", [&](Runtime& r, Lock&) { return emu::create_stream(r, stream, 0, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api("cudaStreamCreateWithFlags", [&](Runtime& r, Lock&) { return emu::create_stream(r, stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return api("cudaStreamCreateWithPriority",
             [&](Runtime& r, Lock&) { return emu::create_stream(r, stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api("cudaStreamDestroy", When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.streams.contains(handle)) return cudaErrorInvalidResourceHandle;
    if (handle->capture != nullptr && !r.destroy_ends_capture) {
      emu::invalidate(*handle->capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (handle->capture != nullptr) emu::leave_capture(r, *handle);
    // Its operations live in the graph until they have run.
    r.streams.erase(handle);
    delete handle;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api("cudaStreamSynchronize", [&](Runtime& r, Lock& lock) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = emu::check_wait(r, *stream); refused != cudaSuccess) return refused;
    for (const emu::OpRef& tail : emu::tails(r, *stream)) r.executor.wait(lock, tail);
    return r.executor.sticky();
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return api("cudaStreamGetDevice", [&](Runtime& r, Lock&) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (device == nullptr) return cudaErrorInvalidValue;
    // Nobody would expect it of a question, but a GPU refuses it like a wait.
    if (const cudaError_t refused = emu::refuse_captured(*stream); refused != cudaSuccess) return refused;
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api("cudaStreamQuery", [&](Runtime& r, Lock& lock) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = emu::check_wait(r, *stream); refused != cudaSuccess) return refused;
    bool done = true;
    for (const emu::OpRef& tail : emu::tails(r, *stream)) done = r.executor.poll(lock, tail) && done;
    return done ? r.executor.sticky() : cudaErrorNotReady;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return api("cudaEventCreateWithFlags", [&](Runtime& r, Lock&) { return emu::create_event(r, out, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return api("cudaEventCreate", [&](Runtime& r, Lock&) { return emu::create_event(r, out, cudaEventDefault); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (r.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return api("cudaEventRecord",
             [&](Runtime& r, Lock& lock) { return emu::record_event(r, lock, event, handle, cudaEventRecordDefault); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  return api("cudaEventRecordWithFlags",
             [&](Runtime& r, Lock& lock) { return emu::record_event(r, lock, event, handle, flags); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = emu::check_event_wait(r, *event); refused != cudaSuccess) return refused;
    return r.executor.poll(lock, emu::OpRef(event->op)) ? r.executor.sticky() : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = emu::check_event_wait(r, *event); refused != cudaSuccess) return refused;
    r.executor.wait(lock, emu::OpRef(event->op));
    return r.executor.sticky();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api("cudaEventElapsedTime", [&](Runtime& r, Lock&) -> cudaError_t {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    for (const cudaEvent_t event : {start, end}) {
      if (!r.events.contains(event)) return cudaErrorInvalidResourceHandle;
      if (event->capture != nullptr) return emu::refuse_captured_event();  // its capture goes on
      if (event->op == nullptr || (event->flags & cudaEventDisableTiming) != 0) return cudaErrorInvalidResourceHandle;
    }
    if (start->device != end->device) return cudaErrorInvalidResourceHandle;
    if (!start->op->done || !end->op->done) return cudaErrorNotReady;
    const std::chrono::duration<float, std::milli> elapsed = end->op->finished - start->op->finished;
    *milliseconds = elapsed.count();
    return cudaSuccess;
  });
}
