#include "device/cuda/guest_capture.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/thrown.h"
#include "device/cuda/error_log.h"
#include "device/device.h"

namespace graphsink {
namespace {

// A handle of the legacy stream: it cannot be captured.
bool is_legacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

bool is_capturing(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

bool is_empty(cudaGraph_t graph, Calls& calls) {
  std::size_t nodes = 0;
  calls.check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
  return nodes == 0;
}

constexpr const char* kBrokenByAnother = "another thread has broken the capture: no call of this thread failed before";

constexpr const char* kMayHaveRunTwice = "; what the function gave to other streams after that call may have run twice";

// By the names of the runtime's codes and of the driver's, whose log names the latter.
std::string remedy_for(std::string_view problem) {
  static constexpr std::array<std::array<std::string_view, 3>, 7> kRemedies = {{
      {kBrokenByAnother, kBrokenByAnother,
       "during a capture let no other thread wait for the device (cudaDeviceSynchronize), nor use the legacy stream, "
       "which cudaMemcpy() does, too, where SinkOptions::watch_legacy_stream or check_every watches it or the stream "
       "of run() was made without cudaStreamNonBlocking"},
      {"cudaGraphLaunch", "cuGraphLaunch",
       "CUDA captures no launch of a graph: let the function enqueue what the graph was made of, or add the graph to "
       "the capture as a child graph node (cudaGraphAddNode, cudaStreamUpdateCaptureDependencies)"},
      {"cudaErrorStreamCaptureImplicit", "CAPTURE_IMPLICIT",
       "enqueue on the stream that the function is given, not on the default stream"},
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

// After a capture that failed: removes the error that it left behind as the thread's last one. An error from before
// that it has replaced is told to the log, because CUDA lets nobody set the last error.
void forget_failure(cudaError_t pending, const Log& log) {
  if (cudaPeekAtLastError() == pending) return;
  const bool is_replaced = cudaGetLastError() != cudaSuccess && pending != cudaSuccess;
  if (!is_replaced) return;
  log.warn({"sink: ", cudaGetErrorName(pending),
            ", an error of CUDA from before the call that nobody had read (cudaGetLastError), is gone: a capture that "
            "failed has replaced it, and CUDA lets nobody set it again"});
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

GuestCapture::GuestCapture(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

GuestCapture::~GuestCapture() = default;

StreamHandle& GuestCapture::open(LegacyStream legacy) {
  StreamHandle& origin = origins_[static_cast<std::size_t>(legacy)];
  const unsigned flags = legacy == LegacyStream::watched ? cudaStreamDefault : cudaStreamNonBlocking;
  if (!origin) {
    calls_->check(cudaStreamCreateWithFlags(origin.out(calls_->log), flags), "cudaStreamCreateWithFlags");
  }
  if (!event_) {
    calls_->check(cudaEventCreateWithFlags(event_.out(calls_->log), cudaEventDisableTiming),
                  "cudaEventCreateWithFlags");
  }
  return origin;
}

cudaError_t GuestCapture::link(cudaStream_t earlier, cudaStream_t later) noexcept {
  if (earlier == later) return cudaSuccess;
  const cudaError_t code = cudaEventRecord(event_.get(), earlier);
  return code != cudaSuccess ? code : cudaStreamWaitEvent(later, event_.get(), cudaEventWaitDefault);
}

GraphHandle GuestCapture::end(StreamHandle& origin, cudaStream_t stream, Failed& failed) {
  GraphHandle graph;
  failed.note(cudaStreamEndCapture(origin.get(), graph.out(calls_->log)), "cudaStreamEndCapture");
  if (!failed || is_sticky(failed.code)) return graph;
  if (is_capturing(origin.get())) graph = {};
  if (is_capturing(origin.get())) (void)cudaStreamEndCapture(origin.get(), graph.out(calls_->log));
  if (is_capturing(origin.get())) origin = {};  // its destruction ends the capture
  if (is_capturing(stream)) {
    throw StreamLost("capture", Where(),
                     "the capture of a stream cannot be ended: " + describe(failed.code, failed.call),
                     "restart the process");
  }
  return {};
}

GraphHandle GuestCapture::capture(cudaStream_t stream, LegacyStream legacy, FunctionRef<void(cudaStream_t)> enqueue) {
  StreamHandle& origin = open(legacy);
  const cudaStream_t given = is_legacy(stream) ? origin.get() : stream;
  const cudaError_t pending = cudaPeekAtLastError();  // from before, which nobody has read
  const ErrorLog log(calls_->log);
  calls_->check(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");

  std::optional<Thrown> exception;
  Failed failed;
  // CUDA's log says most: many calls fail after the first one that was refused, and only the last one's code is kept.
  auto refused_call = [&] {
    const std::string logged = log.cause(failed.code);
    if (!logged.empty() || !failed) return logged;
    const std::string seen = describe(failed.code, failed.call);
    const bool by_another = failed.code == cudaErrorStreamCaptureInvalidated && log.is_heard();
    return by_another ? kBrokenByAnother + ("; " + seen) : seen;
  };
  std::string refused, run_twice;
  failed.note(link(origin.get(), given), "cudaStreamWaitEvent");
  if (!failed) {
    try {
      enqueue(given);
    } catch (...) {
      exception = thrown();
    }
    // Where the code is that of the error from before, the log tells whether a call has failed with it again.
    const cudaError_t last = cudaPeekAtLastError();
    if (last != pending || log.has(last)) failed.note(last, "a call in the function");
    if (exception) refused = refused_call();  // failures from here on may be consequences of the exception
    const cudaError_t joined = link(given, origin.get());
    failed.note(joined, "cudaEventRecord");
    // A stream that waits for an event of a broken capture does not join it: what it is given runs.
    if (joined == cudaErrorStreamCaptureInvalidated) run_twice = kMayHaveRunTwice;
  }
  GraphHandle graph = end(origin, given, failed);
  // A function with a capture of its own may give up quietly where CUDA refuses that: then it has not done its work.
  if (!failed && log.has(cudaErrorIllegalState) && is_empty(graph.get(), *calls_)) {
    failed.note(cudaErrorIllegalState, "cudaStreamBeginCapture");
    run_twice = kMayHaveRunTwice;
  }
  if (!failed && !exception) return graph;
  forget_failure(pending, calls_->log);
  if (is_sticky(failed.code)) calls_->fail(failed.code, failed.call);
  if (!exception) refuse(refused_call() + run_twice);
  const std::string text = std::string("the function threw: ") + exception->problem;
  if (!refused.empty()) refuse(text + "; before that, a call of CUDA failed: " + refused + run_twice);
  throw CaptureFailed("capture", Where(), text, exception->remedy);
}

}  // namespace graphsink
