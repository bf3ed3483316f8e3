// 1.1: what is always illegal in a capture, and what the capture's own calls refuse.
#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kOwnStream = "1.1 waiting for the capturing stream [issue-sim; query unverified]";
constexpr const char* kCapturedEvent = "1.1 asking a captured event [header; exact codes unverified]";
constexpr const char* kSynchronous = "1.1 synchronous copies and fills use the legacy stream [doc]";
constexpr const char* kLegacy = "1.1 the legacy stream beside a blocking capture [header]";
constexpr const char* kBegin = "1.1 cudaStreamBeginCapture refused [issue-sim; modes issue-hw]";
constexpr const char* kInvalidated = "1.1 operations of an invalidated capture [issue]";
constexpr const char* kStreamDestroy = "1.1 cudaStreamDestroy of a capturing stream [foreign tests]";
constexpr auto kUnsupported = cudaErrorStreamCaptureUnsupported;
constexpr auto kGone = cudaErrorStreamCaptureInvalidated;

Answer lost() { return returns("cudaStreamEndCapture", kGone, Status::kNone); }

using Call = std::function<cudaError_t(Recorder&, cudaStream_t)>;

// A call that names the stream of a relaxed capture and ends it.
Case on_capturing(const char* part, const char* call, const char* row, cudaError_t code, const Call& make) {
  return {std::string(part) + "." + call, row, {returns(call, code, Status::kInvalidated), lost()}, [=](Recorder& r) {
            const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeRelaxed);
            r.call(call, make(r, stream));
            record_end(r, stream);
          }};
}

cudaEvent_t captured_event(Recorder& r, cudaStream_t stream, unsigned flags = cudaEventDisableTiming) {
  const cudaEvent_t event = make_event(r, flags);
  r.need("cudaEventRecord", cudaEventRecord(event, stream));
  return event;
}

std::vector<Case> waiting_cases() {
  return {
      on_capturing("own_stream", "cudaStreamSynchronize", kOwnStream, kUnsupported,
                   [](Recorder&, cudaStream_t stream) { return cudaStreamSynchronize(stream); }),
      on_capturing("own_stream", "cudaStreamQuery", kOwnStream, kUnsupported,
                   [](Recorder&, cudaStream_t stream) { return cudaStreamQuery(stream); }),
      on_capturing("captured_event", "cudaEventQuery", kCapturedEvent, cudaErrorCapturedEvent,
                   [](Recorder& r, cudaStream_t stream) { return cudaEventQuery(captured_event(r, stream)); }),
      on_capturing("captured_event", "cudaEventSynchronize", kCapturedEvent, cudaErrorCapturedEvent,
                   [](Recorder& r, cudaStream_t stream) { return cudaEventSynchronize(captured_event(r, stream)); }),
      on_capturing("unsupported", "cudaStreamAddCallback", "1.1 cudaStreamAddCallback [header; code issue-sim]",
                   kUnsupported,
                   [](Recorder&, cudaStream_t stream) {
                     return cudaStreamAddCallback(
                         stream, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
                   }),
  };
}

// Which tests written for NVIDIA hardware do not ask.
std::vector<Case> other_question_cases() {
  return {{"captured_event.cudaEventElapsedTime",
           kCapturedEvent,
           {returns("cudaEventElapsedTime", cudaErrorCapturedEvent, Status::kActive), capture_ends()},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeRelaxed);
             float milliseconds = 0;
             const cudaEvent_t from = captured_event(r, stream, 0), to = captured_event(r, stream, 0);
             r.call("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, from, to));
             record_end(r, stream);
           }},
          on_capturing("own_stream", "cudaStreamGetDevice",
                       "1.1 cudaStreamGetDevice of the capturing stream [tests of this library on an H100]",
                       kUnsupported, [](Recorder&, cudaStream_t stream) {
                         int device = 0;
                         return cudaStreamGetDevice(stream, &device);
                       })};
}

Case ordinary_event(const char* name, cudaStreamCaptureMode mode, bool legal) {
  return {
      std::string("ordinary_event.") + name,
      "1.1 cudaEventQuery of an ordinary event [issue]",
      {returns("cudaEventQuery", legal ? cudaSuccess : kUnsupported, legal ? Status::kActive : Status::kInvalidated),
       legal ? capture_ends() : lost()},
      [=](Recorder& r) {
        const cudaStream_t other = make_stream(r);
        const cudaEvent_t event = captured_event(r, other);
        r.need("cudaStreamSynchronize", cudaStreamSynchronize(other));
        const cudaStream_t stream = make_capturing(r, mode);
        r.call("cudaEventQuery", cudaEventQuery(event));
        record_end(r, stream);
      }};
}

// Beside a capture of a blocking stream, or of another, which does not mind.
Case synchronous(const char* name, const char* call, bool is_blocking, const std::function<cudaError_t(int*)>& make) {
  const Answer answer = is_blocking ? returns(call, cudaErrorStreamCaptureImplicit, Status::kInvalidated)
                                    : returns(call, cudaSuccess, Status::kActive);
  const unsigned flags = is_blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return {std::string("synchronous.") + name,
          kSynchronous,
          {answer, is_blocking ? lost() : capture_ends()},
          [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeThreadLocal, flags);
            r.call(call, make(memory));
            record_end(r, stream);
          }};
}

std::vector<Case> synchronous_cases() {
  const auto copy = [](int* memory) { return cudaMemcpy(memory, memory, 4, cudaMemcpyDeviceToDevice); };
  const auto fill = [](int* memory) { return cudaMemset(memory, 0, 4); };
  const auto to_device = [](int* memory) {
    const int value = 1;
    return cudaMemcpy(memory, &value, 4, cudaMemcpyHostToDevice);
  };
  const auto to_host = [](int* memory) {
    int value = 0;
    return cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost);
  };
  return {by_foreign_test(synchronous("cudaMemcpy_blocking", "cudaMemcpy", true, copy)),
          by_foreign_test(synchronous("cudaMemset_blocking", "cudaMemset", true, fill)),
          synchronous("cudaMemcpy_nonblocking", "cudaMemcpy", false, copy),
          synchronous("cudaMemset_nonblocking", "cudaMemset", false, fill),
          synchronous("cudaMemcpy_to_device_nonblocking", "cudaMemcpy", false, to_device),
          synchronous("cudaMemcpy_to_host_nonblocking", "cudaMemcpy", false, to_host)};
}

// A call on the legacy stream while a blocking stream captures, relaxed.
Case legacy(const char* call, bool harmless, const std::function<cudaError_t(int*)>& make) {
  return {std::string("legacy.") + call,
          kLegacy,
          {returns(call, cudaErrorStreamCaptureImplicit, harmless ? Status::kActive : Status::kInvalidated),
           harmless ? capture_ends() : lost()},
          [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeRelaxed, cudaStreamDefault);
            r.call(call, make(memory));
            record_end(r, stream);
          }};
}

Case legacy_wait(const char* name, unsigned flags) {
  return {std::string("legacy.wait_for_captured_") + name,
          "1.1 cudaStreamWaitEvent of the legacy stream for a captured event [issue-sim]",
          {returns("cudaStreamWaitEvent", cudaErrorStreamCaptureImplicit, Status::kInvalidated), lost()},
          [=](Recorder& r) {
            const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeRelaxed, flags);
            const cudaEvent_t event = captured_event(r, stream);
            r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(nullptr, event, 0));
            record_end(r, stream);
          }};
}

std::vector<Case> legacy_cases() {
  return {legacy("launch", false, [](int* memory) { return launch_set(nullptr, memory, 1); }),
          legacy("cudaMemcpyAsync", false,
                 [](int* memory) { return cudaMemcpyAsync(memory, memory, 4, cudaMemcpyDeviceToDevice, nullptr); }),
          legacy("cudaStreamIsCapturing", true,
                 [](int*) {
                   cudaStreamCaptureStatus status;
                   return cudaStreamIsCapturing(nullptr, &status);
                 }),
          legacy("cudaStreamGetCaptureInfo", true,
                 [](int*) {
                   cudaStreamCaptureStatus status;
                   return cudaStreamGetCaptureInfo(nullptr, &status, nullptr, nullptr, nullptr, nullptr, nullptr);
                 }),
          legacy_wait("blocking", cudaStreamDefault),
          legacy_wait("nonblocking", cudaStreamNonBlocking)};
}

Case bad_mode(const char* name, int mode) {
  return {std::string("begin.") + name,
          kBegin,
          {returns("cudaStreamBeginCapture", cudaErrorInvalidValue, Status::kNone)},
          [=](Recorder& r) {
            const cudaStream_t stream = make_stream(r);
            r.watch(stream);
            r.call("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, static_cast<cudaStreamCaptureMode>(mode)));
          }};
}

std::vector<Case> begin_cases() {
  return {{"begin.legacy_stream",
           kBegin,
           {returns("cudaStreamBeginCapture", kUnsupported)},
           [](Recorder& r) {
             r.call("cudaStreamBeginCapture", cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
           }},
          by_foreign_test({"begin.twice",
                           kBegin,
                           {returns("cudaStreamBeginCapture", cudaErrorIllegalState, Status::kActive), capture_ends()},
                           [](Recorder& r) {
                             const cudaStream_t stream = make_capturing(r);
                             r.call("cudaStreamBeginCapture",
                                    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
                             record_end(r, stream);
                           }}),
          bad_mode("mode_3", 3),
          bad_mode("mode_minus_1", -1)};
}

std::vector<Case> isolation_cases() {
  return {
      by_foreign_test({"isolation.event_from_outside",
                       "1.1 waiting in a capture for an event from outside [doc; code issue-sim]",
                       {returns("cudaStreamWaitEvent", cudaErrorStreamCaptureIsolation, Status::kInvalidated), lost()},
                       [](Recorder& r) {
                         const cudaEvent_t event = captured_event(r, make_stream(r));
                         const cudaStream_t stream = make_capturing(r);
                         r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(stream, event, 0));
                         record_end(r, stream);
                       }}),
      {"isolation.event_from_outside_external",
       "1.1 the same with cudaEventWaitExternal [doc]",
       {returns("cudaStreamWaitEvent", cudaSuccess, Status::kActive), capture_ends(), gives("nodes", 1),
        gives("type of the node", cudaGraphNodeTypeWaitEvent)},
       [](Recorder& r) {
         const cudaEvent_t event = captured_event(r, make_stream(r));
         const cudaStream_t stream = make_capturing(r);
         r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
         const cudaGraph_t graph = record_end(r, stream);
         r.value("nodes", static_cast<long long>(node_count(r, graph)));
         r.value("type of the node", type_of(r, first_node(r, graph)));
       }},
      {"isolation.merge",
       "1.1 merging two captures [doc; code issue-sim; who is invalidated is disputed]",
       {returns("cudaStreamWaitEvent", cudaErrorStreamCaptureMerge, Status::kInvalidated), lost(),
        returns("cudaStreamEndCapture", kGone, Status::kNone)},
       [](Recorder& r) {
         const cudaStream_t first = make_capturing(r);
         const cudaEvent_t event = captured_event(r, first);
         const cudaStream_t second = make_capturing(r);
         r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(second, event, 0));
         record_end(r, second);
         r.watch(first);
         record_end(r, first);
       }}};
}

// An operation on the stream of a capture that was invalidated by cudaDeviceSynchronize.
Case invalidated(const char* call, const std::function<cudaError_t(Recorder&, cudaStream_t, int*)>& make) {
  return {std::string("invalidated.") + call,
          kInvalidated,
          {returns(call, kGone, Status::kInvalidated), lost()},
          [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t stream = make_capturing(r);
            (void)cudaDeviceSynchronize();
            r.call(call, make(r, stream, memory));
            record_end(r, stream);
          }};
}

std::vector<Case> invalidated_cases() {
  return {invalidated("kernel launch",
                      [](Recorder&, cudaStream_t stream, int* memory) { return launch_set(stream, memory, 1); }),
          invalidated("cudaMemcpyAsync",
                      [](Recorder&, cudaStream_t stream, int* memory) {
                        return cudaMemcpyAsync(memory, memory, 4, cudaMemcpyDeviceToDevice, stream);
                      }),
          invalidated("cudaMemsetAsync", [](Recorder&, cudaStream_t stream,
                                            int* memory) { return cudaMemsetAsync(memory, 0, 4, stream); }),
          invalidated("cudaLaunchHostFunc",
                      [](Recorder&, cudaStream_t stream, int*) {
                        return cudaLaunchHostFunc(
                            stream, [](void*) {}, nullptr);
                      }),
          invalidated("cudaEventRecord",
                      [](Recorder& r, cudaStream_t stream, int*) { return cudaEventRecord(make_event(r), stream); }),
          {"invalidated.wait_of_an_idle_stream",
           kInvalidated,
           {returns("cudaStreamWaitEvent", cudaErrorInvalidValue, Status::kInvalidated), lost()},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r), idle = make_stream(r);
             const cudaEvent_t event = captured_event(r, stream);
             (void)cudaDeviceSynchronize();
             r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(idle, event, 0));
             record_end(r, stream);
           }}};
}

std::vector<Case> bookkeeping_cases() {
  return {{"dependencies.update_without_capture",
           "1.1 cudaStreamUpdateCaptureDependencies on a stream that does not capture [header]",
           {returns("cudaStreamUpdateCaptureDependencies", cudaErrorIllegalState)},
           [](Recorder& r) {
             r.call("cudaStreamUpdateCaptureDependencies",
                    cudaStreamUpdateCaptureDependencies(make_stream(r), nullptr, nullptr, 0, 0));
           }},
          {"dependencies.lossy_query",
           "1.1 cudaStreamGetCaptureInfo without room for edge data [header]",
           {returns("cudaStreamGetCaptureInfo", cudaErrorLossyQuery, Status::kActive), capture_ends()},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             cudaGraphNode_t node = add_set(r, captured_graph(r, stream), memory, 1);
             cudaGraphEdgeData data = {};
             data.from_port = cudaGraphKernelNodePortLaunchCompletion;
             r.need("cudaStreamUpdateCaptureDependencies",
                    cudaStreamUpdateCaptureDependencies(stream, &node, &data, 1, cudaStreamSetCaptureDependencies));
             cudaStreamCaptureStatus status;
             const cudaGraphNode_t* nodes = nullptr;
             std::size_t count = 0;
             r.call("cudaStreamGetCaptureInfo",
                    cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
             record_end(r, stream);
           }},
          {"free_async.not_a_graph_allocation",
           "1.1 cudaFreeAsync in a capture of memory that is no graph allocation [header; issue-sim]",
           {returns("cudaFreeAsync", cudaErrorInvalidValue, Status::kActive), capture_ends()},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaFreeAsync", cudaFreeAsync(memory, stream));
             record_end(r, stream);
           }},
          {.name = "unsupported.cudaStreamAttachMemAsync",
           .row = "1.1 cudaStreamAttachMemAsync [doc; code unverified]",
           .expected = {returns("cudaStreamAttachMemAsync", kUnsupported, Status::kInvalidated), lost()},
           .run =
               [](Recorder& r) {
                 int* memory = nullptr;
                 r.need("cudaMallocManaged", cudaMallocManaged(&memory, 256));
                 const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeRelaxed);
                 r.call("cudaStreamAttachMemAsync", cudaStreamAttachMemAsync(stream, memory, 0, cudaMemAttachSingle));
                 record_end(r, stream);
               },
           .not_emulated = "the software device has no managed memory"}};
}

// 1.1 cudaStreamDestroy of a capturing stream.
Case destroyed_fork(const char* name, bool is_joined) {
  const Answer end =
      is_joined ? capture_ends() : returns("cudaStreamEndCapture", cudaErrorStreamCaptureUnjoined, Status::kNone);
  return {std::string("destroy.") + name,
          kStreamDestroy,
          {returns("cudaStreamDestroy", cudaSuccess, Status::kActive), end},
          [is_joined](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t fork = make_stream(r), stream = make_capturing(r);
            join(r, stream, fork);
            r.need("kernel launch", launch_set(fork, memory, 1));
            if (is_joined) join(r, fork, stream);
            r.call("cudaStreamDestroy", cudaStreamDestroy(fork));
            record_end(r, stream);
          }};
}

std::vector<Case> stream_destroy_cases() {
  return {by_foreign_test({"destroy.origin",
                           kStreamDestroy,
                           {returns("cudaStreamDestroy", cudaSuccess), returns("cudaMalloc", cudaSuccess)},
                           [](Recorder& r) {
                             const cudaStream_t stream = make_capturing(r, cudaStreamCaptureModeGlobal);
                             r.watch(nullptr);
                             r.call("cudaStreamDestroy", cudaStreamDestroy(stream));
                             void* memory = nullptr;
                             r.call("cudaMalloc", cudaMalloc(&memory, 256));
                           }}),
          {"destroy.origin_releases_its_forks",
           kStreamDestroy,
           {returns("cudaStreamDestroy", cudaSuccess, Status::kNone)},
           [](Recorder& r) {
             const cudaStream_t fork = make_stream(r), stream = make_capturing(r);
             join(r, stream, fork);
             r.watch(fork);
             r.call("cudaStreamDestroy", cudaStreamDestroy(stream));
           }},
          by_foreign_test(destroyed_fork("joined_fork", true)),
          destroyed_fork("fork_that_is_not_joined", false)};
}

}  // namespace

std::vector<Case> capture_cases() {
  std::vector<Case> cases{ordinary_event("local", cudaStreamCaptureModeThreadLocal, false),
                          ordinary_event("relaxed", cudaStreamCaptureModeRelaxed, true)};
  for (const auto& part : {by_foreign_test(waiting_cases()), other_question_cases(), synchronous_cases(),
                           by_foreign_test(legacy_cases()), begin_cases(), isolation_cases(),
                           by_foreign_test(invalidated_cases()), stream_destroy_cases(), bookkeeping_cases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace conformance
