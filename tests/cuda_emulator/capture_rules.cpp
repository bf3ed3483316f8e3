// Which calls a capture in progress forbids, and what waiting for events means under capture.
#include <algorithm>

#include "runtime.h"

namespace emu {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

constexpr const char* kBesideLegacy =
    "Call cannot be made against CU_STREAM_LEGACY while a blocking stream in the same context is capturing";

bool same_edge(const Edge& a, const Edge& b) { return a.node == b.node; }

// A captured event was recorded in a capture that is over, or never to succeed.
cudaError_t wait_for_dead_capture(CUstream_st& stream) {
  const CaptureRef own = active_capture(stream);
  if (own == nullptr) {
    return explain(cudaErrorInvalidValue,
                   "Event is not valid. This can be related to a graph capture that is no longer running");
  }
  invalidate(*own);
  return cudaErrorStreamCaptureIsolation;
}

cudaError_t wait_for_captured(Runtime& r, CUstream_st& stream, CUevent_st& event) {
  if (event.capture->ended || event.capture->invalid) return wait_for_dead_capture(stream);
  if (stream.legacy) {
    if (legacy_is_busy(r, stream)) explain(cudaErrorStreamCaptureImplicit, kBesideLegacy);
    invalidate(*event.capture);
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream.capture == nullptr) {
    stream.capture = event.capture;
    stream.frontier.clear();
    event.capture->streams.push_back(&stream);
  } else if (stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    return cudaErrorStreamCaptureMerge;
  }
  for (const Edge& edge : event.frontier) {
    const auto known = std::find_if(stream.frontier.begin(), stream.frontier.end(),
                                    [&](const Edge& other) { return same_edge(edge, other); });
    if (known == stream.frontier.end()) stream.frontier.push_back(edge);
  }
  return cudaSuccess;
}

cudaError_t wait_event(Runtime& r, CUstream_st& stream, CUevent_st& event) {
  if (stream.capture != nullptr && stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (event.capture != nullptr) return wait_for_captured(r, stream, event);
  if (const cudaError_t refused = check_capture(r, stream); refused != cudaSuccess) return refused;
  if (event.op == nullptr) return cudaSuccess;  // never recorded
  if (const CaptureRef capture = active_capture(stream)) {
    invalidate(*capture);
    return cudaErrorStreamCaptureIsolation;
  }
  append(r, stream, std::make_shared<Op>(), {event.op});
  return cudaSuccess;
}

}  // namespace

CaptureRef active_capture(CUstream_st& stream) { return stream.capture; }

void reset_capture_mode() { thread_mode = cudaStreamCaptureModeGlobal; }

void invalidate(Capture& capture) { capture.invalid = true; }

void invalidate_all(Runtime& r) {
  for (const CaptureRef& capture : r.captures) invalidate(*capture);
}

cudaError_t refuse_unsafe(Runtime& r) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t code = cudaSuccess;
  for (const CaptureRef& capture : r.captures) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool other = thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!own && !other) continue;
    invalidate(*capture);
    if (code == cudaSuccess) {
      explain(cudaErrorStreamCaptureUnsupported,
              std::string("API call conflicts with a stream capture sequence initiated from ") +
                  (own ? "the calling thread" : "another thread"));
    }
    code = cudaErrorStreamCaptureUnsupported;
  }
  return code;
}

cudaError_t refuse_captured(CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaSuccess;
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  invalidate(*stream.capture);
  return cudaErrorStreamCaptureUnsupported;
}

namespace {

// A blocking stream that the capture has joined, on the device of this legacy stream.
bool blocks(const Capture& capture, const CUstream_st& legacy) {
  return std::any_of(capture.streams.begin(), capture.streams.end(), [&](cudaStream_t captured) {
    return captured->is_blocking() && captured->device == legacy.device;
  });
}

}  // namespace

bool legacy_is_busy(const Runtime& r, const CUstream_st& stream) {
  return stream.legacy && std::any_of(r.captures.begin(), r.captures.end(),
                                      [&](const CaptureRef& capture) { return blocks(*capture, stream); });
}

cudaError_t refuse_legacy(const Runtime& r, const CUstream_st& stream) {
  return legacy_is_busy(r, stream) ? explain(cudaErrorStreamCaptureImplicit, kBesideLegacy) : cudaSuccess;
}

cudaError_t check_capture(Runtime& r, CUstream_st& stream) {
  if (stream.capture != nullptr && stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  const cudaError_t refused = refuse_legacy(r, stream);
  if (refused == cudaSuccess) return cudaSuccess;
  for (const CaptureRef& capture : r.captures) {
    if (blocks(*capture, stream)) invalidate(*capture);
  }
  return refused;
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", [&](Runtime&, Lock&) -> cudaError_t {
    if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) {
      return cudaErrorInvalidValue;
    }
    std::swap(emu::thread_mode, *mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", [&](Runtime& r, Lock& lock) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr || !r.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (flags > cudaEventWaitExternal) return cudaErrorInvalidValue;
    if (flags == cudaEventWaitExternal) {
      if (const cudaError_t refused = emu::check_capture(r, *stream); refused != cudaSuccess) return refused;
      if (stream->capture == nullptr) return cudaErrorIllegalState;
      return emu::issue(r, lock, handle, emu::EventWork{event, false});
    }
    const cudaError_t code = emu::wait_event(r, *stream, *event);
    if (code == cudaSuccess && stream->capture == nullptr) r.executor.run_ahead(lock);
    return code;
  });
}
