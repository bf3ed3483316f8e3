#include "capture/guest_capture.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/thrown.h"
#include "capture/error_log.h"
#include "device/device.h"

namespace graphsink {
namespace {

// A handle of the legacy stream: it cannot be captured.
bool is_legacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

bool is_capturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

// By the names of the runtime's codes and of the driver's, whose log names the latter.
std::string remedy_for(std::string_view problem) {
  static constexpr std::array<std::array<std::string_view, 3>, 6> kRemedies = {{
      {"cudaGraphLaunch", "cuGraphLaunch",
       "CUDA captures no launch of a graph: let the function enqueue what the graph was made of, or add the graph to "
       "the "
       "capture as a child graph node (cudaGraphAddNode, cudaStreamUpdateCaptureDependencies)"},
      {"cudaErrorStreamCaptureImplicit", "CAPTURE_IMPLICIT",
       "enqueue on the stream that the function is given, not on the default stream; if the work is another thread's, "
       "switch SinkOptions::watch_legacy_stream off"},
      {"cudaErrorStreamCaptureUnjoined", "CAPTURE_UNJOINED",
       "at the end, let the given stream wait for an event of every stream that the function forked to"},
      {"cudaErrorStreamCaptureIsolation", "CAPTURE_ISOLATION",
       "let the stream wait for events from before the call in front of run(), not in the function"},
      {"cudaErrorIllegalState", "ERROR_ILLEGAL_STATE",
       "begin no capture of the stream in the function: run() captures it"},
      {"cudaErrorStreamCaptureMerge", "CAPTURE_MERGE",
       "use streams in the function that no other capture uses at the same time"},
  }};
  for (const auto& [runtime, driver, remedy] : kRemedies) {
    if (problem.find(runtime) != problem.npos || problem.find(driver) != problem.npos) return std::string(remedy);
  }
  return "the function may only enqueue: allocate, free, wait and query outside of it";
}

[[noreturn]] void refuse(const std::string& problem) {
  throw CaptureFailed("capture", Where(), problem, remedy_for(problem));
}

}  // namespace

// The first failure of several calls.
struct GuestCapture::Failed {
  cudaError_t code = cudaSuccess;
  const char* call = "";

  explicit operator bool() const { return code != cudaSuccess; }
  void note(cudaError_t result, const char* of) {
    if (code != cudaSuccess || result == cudaSuccess) return;
    code = result;
    call = of;
  }
};

GuestCapture::GuestCapture(std::shared_ptr<Calls> calls, bool watch_legacy_stream)
    : calls_(std::move(calls)), watches_legacy_stream_(watch_legacy_stream) {
  open();
}

GuestCapture::~GuestCapture() = default;

void GuestCapture::open() {
  CurrentDevice current(*calls_);
  const unsigned flags = watches_legacy_stream_ ? cudaStreamDefault : cudaStreamNonBlocking;
  if (!origin_) {
    calls_->check(cudaStreamCreateWithFlags(origin_.out(calls_->log), flags), "cudaStreamCreateWithFlags");
  }
  if (!event_) {
    calls_->check(cudaEventCreateWithFlags(event_.out(calls_->log), cudaEventDisableTiming),
                  "cudaEventCreateWithFlags");
  }
}

cudaError_t GuestCapture::link(cudaStream_t earlier, cudaStream_t later) noexcept {
  if (earlier == later) return cudaSuccess;
  const cudaError_t code = cudaEventRecord(event_.get(), earlier);
  return code != cudaSuccess ? code : cudaStreamWaitEvent(later, event_.get(), cudaEventWaitDefault);
}

GraphHandle GuestCapture::end(cudaStream_t stream, Failed& failed) {
  GraphHandle graph;
  failed.note(cudaStreamEndCapture(origin_.get(), graph.out(calls_->log)), "cudaStreamEndCapture");
  if (!failed || is_sticky(failed.code)) return graph;
  if (is_capturing(origin_.get())) graph = {};
  if (is_capturing(origin_.get())) (void)cudaStreamEndCapture(origin_.get(), graph.out(calls_->log));
  if (is_capturing(origin_.get())) origin_ = {};  // its destruction ends the capture
  if (is_capturing(stream)) {
    throw StreamLost("capture", Where(),
                     "the capture of a stream cannot be ended: " + describe(failed.code, failed.call),
                     "restart the process");
  }
  return {};
}

GraphHandle GuestCapture::capture(cudaStream_t stream, FunctionRef<void(cudaStream_t)> enqueue) {
  open();
  const cudaStream_t given = is_legacy(stream) ? origin_.get() : stream;
  const bool had_error = cudaPeekAtLastError() != cudaSuccess;
  const ErrorLog log;
  calls_->check(cudaStreamBeginCapture(origin_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");

  std::optional<Thrown> exception;
  Failed failed;
  // CUDA's log says most: many calls fail after the first one that was refused, and only the last one's code is kept.
  auto refused_call = [&] {
    const std::string logged = log.cause(failed.code);
    return logged.empty() && failed ? describe(failed.code, failed.call) : logged;
  };
  std::string refused;
  failed.note(link(origin_.get(), given), "cudaStreamWaitEvent");
  if (!failed) {
    try {
      enqueue(given);
    } catch (...) {
      exception = thrown();
    }
    if (!had_error) failed.note(cudaPeekAtLastError(), "a call in the function");
    if (exception) refused = refused_call();  // what fails from here on may be its consequence
    failed.note(link(given, origin_.get()), "cudaEventRecord");
  }
  GraphHandle graph = end(given, failed);
  if (!failed && !exception) return graph;
  if (!had_error) (void)cudaGetLastError();
  if (is_sticky(failed.code)) calls_->fail(failed.code, failed.call);
  if (!exception) refuse(refused_call());
  const std::string text = std::string("the function threw: ") + exception->problem;
  if (!refused.empty()) refuse(text + "; before that, a call of CUDA failed: " + refused);
  throw CaptureFailed("capture", Where(), text, exception->remedy);
}

}  // namespace graphsink
