// 1.1: which calls the mode of a capture forbids.
#include <cuda_profiler_api.h>

#include <thread>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kAllocation =
    "1.1 cudaMalloc, cudaFree, pinned, managed, pitched, arrays, registering [issue-hw]";
constexpr const char* kPool = "1.1 stream-ordered allocation off the capture, pools [issue-hw]";
constexpr const char* kWaiting = "1.1 waiting for a stream that does not capture [issue-hw]";
constexpr const char* kSetting = "1.1 cudaGraphInstantiate, cudaDeviceSetLimit, cudaProfilerStart [issue-hw]";
constexpr const char* kMode = "1.1 the legality rule [header, issue-hw]";
constexpr const char* kDevice = "1.1 cudaDeviceSynchronize [issue-hw]";
constexpr const char* kAllowed = "1.1 allowed calls [issue-hw]";
constexpr const char* kDestroy = "1.1 destroying graphs and execs during a capture [probe on an H100]";
constexpr const char* kDestroyRule = "1.1 the legality rule, of destroying an exec [by analogy]";

using Call = std::function<cudaError_t(Recorder&, cudaStream_t other)>;

// A call on a thread with a ThreadLocal capture; `other` is a stream that does not capture.
Case in_capture(const char* part, const char* call, const char* row, cudaError_t code, const Call& make) {
  const bool legal = code == cudaSuccess;
  return {std::string(part) + "." + call,
          row,
          {returns(call, code, legal ? Status::kActive : Status::kInvalidated),
           returns("cudaStreamEndCapture", legal ? cudaSuccess : cudaErrorStreamCaptureInvalidated, Status::kNone)},
          [call, make](Recorder& r) {
            const cudaStream_t other = make_stream(r);
            const cudaStream_t stream = make_capturing(r);
            r.call(call, make(r, other));
            record_end(r, stream);
          }};
}

Case unsafe(const char* call, const char* row, const Call& make) {
  return in_capture("unsafe", call, row, cudaErrorStreamCaptureUnsupported, make);
}
Case allowed(const char* call, const Call& make) { return in_capture("allowed", call, kAllowed, cudaSuccess, make); }

std::vector<Case> unsafe_allocation_cases() {
  return {unsafe("cudaMalloc", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   void* pointer = nullptr;
                   return cudaMalloc(&pointer, 256);
                 }),
          unsafe("cudaFree", kAllocation, [](Recorder&, cudaStream_t) { return cudaFree(nullptr); }),
          unsafe("cudaMallocHost", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   void* pointer = nullptr;
                   return cudaMallocHost(&pointer, 256);
                 }),
          unsafe("cudaHostAlloc", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   void* pointer = nullptr;
                   return cudaHostAlloc(&pointer, 256, cudaHostAllocDefault);
                 }),
          unsafe("cudaMallocManaged", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   void* pointer = nullptr;
                   return cudaMallocManaged(&pointer, 256);
                 }),
          unsafe("cudaMallocPitch", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   void* pointer = nullptr;
                   std::size_t pitch = 0;
                   return cudaMallocPitch(&pointer, &pitch, 64, 4);
                 }),
          unsafe("cudaMallocArray", kAllocation,
                 [](Recorder&, cudaStream_t) {
                   cudaArray_t array = nullptr;
                   const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
                   return cudaMallocArray(&array, &format, 16);
                 }),
          unsafe("cudaHostRegister", kAllocation, [](Recorder&, cudaStream_t) {
            alignas(4096) static char page[4096];
            return cudaHostRegister(page, sizeof page, cudaHostRegisterDefault);
          })};
}

std::vector<Case> other_unsafe_cases() {
  return {unsafe("cudaMallocAsync", kPool,
                 [](Recorder&, cudaStream_t other) {
                   void* pointer = nullptr;
                   return cudaMallocAsync(&pointer, 256, other);
                 }),
          unsafe("cudaMemPoolCreate", kPool,
                 [](Recorder&, cudaStream_t) {
                   cudaMemPoolProps props = {};
                   props.allocType = cudaMemAllocationTypePinned;
                   props.location.type = cudaMemLocationTypeDevice;
                   cudaMemPool_t pool = nullptr;
                   return cudaMemPoolCreate(&pool, &props);
                 }),
          unsafe("cudaMemPoolTrimTo", kPool,
                 [](Recorder& r, cudaStream_t) {
                   cudaMemPool_t pool = nullptr;
                   r.need("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0));
                   return cudaMemPoolTrimTo(pool, 0);
                 }),
          unsafe("cudaStreamSynchronize", kWaiting,
                 [](Recorder&, cudaStream_t other) { return cudaStreamSynchronize(other); }),
          unsafe("cudaStreamQuery", kWaiting, [](Recorder&, cudaStream_t other) { return cudaStreamQuery(other); }),
          unsafe("cudaGraphInstantiate", kSetting,
                 [](Recorder& r, cudaStream_t) {
                   cudaGraphExec_t exec = nullptr;
                   return cudaGraphInstantiate(&exec, make_graph(r), 0);
                 }),
          unsafe("cudaDeviceSetLimit", kSetting,
                 [](Recorder&, cudaStream_t) { return cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20); }),
          unsafe("cudaProfilerStart", kSetting, [](Recorder&, cudaStream_t) { return cudaProfilerStart(); })};
}

std::vector<Case> allowed_cases() {
  return {
      allowed("cudaEventCreate",
              [](Recorder&, cudaStream_t) {
                cudaEvent_t event = nullptr;
                return cudaEventCreate(&event);
              }),
      allowed("cudaStreamCreate",
              [](Recorder&, cudaStream_t) {
                cudaStream_t stream = nullptr;
                return cudaStreamCreate(&stream);
              }),
      allowed("cudaMemGetInfo",
              [](Recorder&, cudaStream_t) {
                std::size_t free = 0, total = 0;
                return cudaMemGetInfo(&free, &total);
              }),
      allowed("cudaDeviceGetAttribute",
              [](Recorder&, cudaStream_t) {
                int value = 0;
                return cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0);
              }),
      allowed("cudaGetDeviceCount",
              [](Recorder&, cudaStream_t) {
                int count = 0;
                return cudaGetDeviceCount(&count);
              }),
      allowed("cudaGraphCreate",
              [](Recorder&, cudaStream_t) {
                cudaGraph_t graph = nullptr;
                return cudaGraphCreate(&graph, 0);
              }),
      allowed("cudaGraphAddNode",
              [](Recorder& r, cudaStream_t) {
                cudaGraphNode_t node = nullptr;
                cudaGraphNodeParams params = empty_params();
                return add_node(&node, make_graph(r), params);
              }),
  };
}

// Work on the capturing stream, or on one beside it.
Case work(const char* name, const char* call, bool on_other,
          const std::function<cudaError_t(cudaStream_t, int*)>& make) {
  return {std::string("allowed.") + name,
          kAllowed,
          {returns(call, cudaSuccess, Status::kActive), returns("cudaStreamEndCapture", cudaSuccess, Status::kNone)},
          [=](Recorder& r) {
            int* memory = make_int(r);
            const cudaStream_t other = make_stream(r), stream = make_capturing(r);
            r.call(call, make(on_other ? other : stream, memory));
            record_end(r, stream);
          }};
}

std::vector<Case> work_cases() {
  std::vector<Case> cases;
  for (const bool on_other : {false, true}) {
    cases.push_back(work(on_other ? "launch_beside" : "launch", "kernel launch", on_other,
                         [](cudaStream_t stream, int* memory) { return launch_set(stream, memory, 1); }));
    cases.push_back(work(on_other ? "cudaMemcpyAsync_beside" : "cudaMemcpyAsync", "cudaMemcpyAsync", on_other,
                         [](cudaStream_t stream, int* memory) {
                           return cudaMemcpyAsync(memory, memory, 4, cudaMemcpyDeviceToDevice, stream);
                         }));
    cases.push_back(work(on_other ? "cudaMemsetAsync_beside" : "cudaMemsetAsync", "cudaMemsetAsync", on_other,
                         [](cudaStream_t stream, int* memory) { return cudaMemsetAsync(memory, 0, 4, stream); }));
  }
  return cases;
}

// A call under a capture of `mode`, on the capture's thread or another, whose own mode is `thread_mode`. What the call
// needs is made before the capture.
using Prepare = std::function<std::function<cudaError_t()>(Recorder&)>;

Case mode_rule(const std::string& name, const char* row, const char* call, const Prepare& prepare,
               cudaStreamCaptureMode mode, bool same_thread, cudaStreamCaptureMode thread_mode, bool legal) {
  return {name,
          row,
          {returns(call, legal ? cudaSuccess : cudaErrorStreamCaptureUnsupported,
                   legal ? Status::kActive : Status::kInvalidated),
           returns("cudaStreamEndCapture", legal ? cudaSuccess : cudaErrorStreamCaptureInvalidated, Status::kNone)},
          [=](Recorder& r) {
            const std::function<cudaError_t()> make = prepare(r);
            const cudaStream_t stream = make_capturing(r, mode);
            cudaError_t code = cudaSuccess;
            const auto in_mode = [&] {
              cudaStreamCaptureMode wanted = thread_mode;
              code = cudaThreadExchangeStreamCaptureMode(&wanted);
              if (code == cudaSuccess) code = make();
              (void)cudaThreadExchangeStreamCaptureMode(&wanted);
            };
            if (same_thread) {
              in_mode();
            } else {
              std::thread(in_mode).join();
            }
            r.call(call, code);
            record_end(r, stream);
          }};
}

Case mode_rule(const char* name, cudaStreamCaptureMode mode, bool same_thread, cudaStreamCaptureMode thread_mode,
               bool legal) {
  return mode_rule(
      std::string("mode.") + name, kMode, "cudaFree", [](Recorder&) { return [] { return cudaFree(nullptr); }; }, mode,
      same_thread, thread_mode, legal);
}

std::vector<Case> mode_cases() {
  constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
  constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
  constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
  return {mode_rule("global_own_thread_global", kGlobal, true, kGlobal, false),
          mode_rule("global_own_thread_local", kGlobal, true, kLocal, false),
          mode_rule("global_own_thread_relaxed", kGlobal, true, kRelaxed, true),
          mode_rule("global_other_thread_global", kGlobal, false, kGlobal, false),
          mode_rule("global_other_thread_local", kGlobal, false, kLocal, true),
          mode_rule("global_other_thread_relaxed", kGlobal, false, kRelaxed, true),
          mode_rule("local_own_thread_global", kLocal, true, kGlobal, false),
          mode_rule("local_own_thread_local", kLocal, true, kLocal, false),
          mode_rule("local_own_thread_relaxed", kLocal, true, kRelaxed, true),
          mode_rule("local_other_thread_global", kLocal, false, kGlobal, true),
          mode_rule("relaxed_own_thread_global", kRelaxed, true, kGlobal, true),
          mode_rule("relaxed_other_thread_global", kRelaxed, false, kGlobal, true),
          {"mode.exchange_gives_the_mode_before",
           kMode,
           {gives("first", cudaStreamCaptureModeGlobal), gives("second", cudaStreamCaptureModeRelaxed)},
           [](Recorder& r) {
             cudaStreamCaptureMode mode = kRelaxed;
             r.need("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
             r.value("first", mode);
             r.need("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
             r.value("second", mode);
           }}};
}

cudaGraph_t make_kernel_graph(Recorder& r) {
  const cudaGraph_t graph = make_graph(r);
  add_set(r, graph, make_int(r), 1);
  return graph;
}

Case exec_destroy(const char* name, const char* row, cudaStreamCaptureMode mode, bool same_thread,
                  cudaStreamCaptureMode thread_mode, bool legal) {
  const auto prepare = [](Recorder& r) {
    const cudaGraphExec_t exec = instantiate(r, make_kernel_graph(r));
    return [exec] { return cudaGraphExecDestroy(exec); };
  };
  return mode_rule(std::string("exec_destroy.") + name, row, "cudaGraphExecDestroy", prepare, mode, same_thread,
                   thread_mode, legal);
}

// A legal call that names a graph and its exec, on the thread of a capture; `other` is a stream that does not capture.
Case beside(const char* name, const char* row, const char* call,
            const std::function<cudaError_t(cudaGraph_t, cudaGraphExec_t, cudaStream_t other)>& make) {
  return {std::string("allowed.") + name,
          row,
          {returns(call, cudaSuccess, Status::kActive), returns("cudaStreamEndCapture", cudaSuccess, Status::kNone)},
          [=](Recorder& r) {
            const cudaGraph_t graph = make_kernel_graph(r);
            const cudaGraphExec_t exec = instantiate(r, graph);
            const cudaStream_t other = make_stream(r), stream = make_capturing(r);
            r.call(call, make(graph, exec, other));
            record_end(r, stream);
          }};
}

std::vector<Case> graph_cases_beside() {
  constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
  constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
  constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
  constexpr const char* kUnasked = "1.1 calls for graphs that are not captured [unverified]";
  return {exec_destroy("local_own_thread", kDestroy, kLocal, true, kGlobal, false),
          exec_destroy("local_own_thread_relaxed", kDestroyRule, kLocal, true, kRelaxed, true),
          exec_destroy("local_other_thread", kDestroyRule, kLocal, false, kGlobal, true),
          exec_destroy("global_other_thread", kDestroyRule, kGlobal, false, kGlobal, false),
          exec_destroy("global_other_thread_relaxed", kDestroyRule, kGlobal, false, kRelaxed, true),
          exec_destroy("relaxed_own_thread", kDestroyRule, kRelaxed, true, kGlobal, true),
          {"exec_destroy.a_refused_exec_stays",
           kDestroyRule,
           {returns("cudaGraphExecDestroy", cudaErrorStreamCaptureUnsupported, Status::kInvalidated),
            returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone),
            returns("cudaGraphExecDestroy", cudaSuccess, Status::kNone)},
           [](Recorder& r) {
             const cudaGraphExec_t exec = instantiate(r, make_kernel_graph(r));
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaGraphExecDestroy", cudaGraphExecDestroy(exec));
             record_end(r, stream);
             r.call("cudaGraphExecDestroy", cudaGraphExecDestroy(exec));
           }},
          beside("cudaGraphDestroy", kDestroy, "cudaGraphDestroy",
                 [](cudaGraph_t graph, cudaGraphExec_t, cudaStream_t) { return cudaGraphDestroy(graph); }),
          beside("cudaGraphLaunch_beside", "1.1 launching on a stream that does not capture [probe on an H100]",
                 "cudaGraphLaunch",
                 [](cudaGraph_t, cudaGraphExec_t exec, cudaStream_t other) { return cudaGraphLaunch(exec, other); }),
          beside("cudaGraphUpload_beside", kUnasked, "cudaGraphUpload",
                 [](cudaGraph_t, cudaGraphExec_t exec, cudaStream_t other) { return cudaGraphUpload(exec, other); }),
          beside("cudaGraphExecUpdate", kUnasked, "cudaGraphExecUpdate",
                 [](cudaGraph_t graph, cudaGraphExec_t exec, cudaStream_t) {
                   cudaGraphExecUpdateResultInfo info = {};
                   return cudaGraphExecUpdate(exec, graph, &info);
                 }),
          beside("cudaStreamGetDevice_beside", "1.1 cudaStreamGetDevice of a stream that does not capture [unverified]",
                 "cudaStreamGetDevice", [](cudaGraph_t, cudaGraphExec_t, cudaStream_t other) {
                   int device = 0;
                   return cudaStreamGetDevice(other, &device);
                 })};
}

Case device_synchronize(const char* name, cudaStreamCaptureMode mode, bool same_thread) {
  return {std::string("device_synchronize.") + name,
          kDevice,
          {returns("cudaDeviceSynchronize", cudaErrorStreamCaptureUnsupported, Status::kInvalidated),
           returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone)},
          [=](Recorder& r) {
            const cudaStream_t stream = make_capturing(r, mode);
            cudaError_t code = cudaSuccess;
            if (same_thread) {
              code = cudaDeviceSynchronize();
            } else {
              std::thread([&] { code = cudaDeviceSynchronize(); }).join();
            }
            r.call("cudaDeviceSynchronize", code);
            record_end(r, stream);
          }};
}

}  // namespace

std::vector<Case> unsafe_call_cases() {
  // Sources disagree about what a wait of another thread does to a capture that is thread-local.
  Case other_thread = device_synchronize("other_thread", cudaStreamCaptureModeThreadLocal, false);
  other_thread.expected[0] =
      either(other_thread.expected[0], returns("cudaDeviceSynchronize", cudaSuccess, Status::kActive));
  other_thread.expected[1] =
      either(other_thread.expected[1], returns("cudaStreamEndCapture", cudaSuccess, Status::kNone));
  std::vector<Case> cases;
  for (const auto& part : {unsafe_allocation_cases(), other_unsafe_cases(), allowed_cases(), work_cases(), mode_cases(),
                           std::vector<Case>{
                               device_synchronize("own_thread", cudaStreamCaptureModeThreadLocal, true),
                               device_synchronize("own_thread_relaxed", cudaStreamCaptureModeRelaxed, true),
                           }}) {
    const std::vector<Case> confirmed = by_foreign_test(part);
    cases.insert(cases.end(), confirmed.begin(), confirmed.end());
  }
  cases.push_back(other_thread);
  const std::vector<Case> graphs = graph_cases_beside();
  cases.insert(cases.end(), graphs.begin(), graphs.end());
  return cases;
}

}  // namespace conformance
