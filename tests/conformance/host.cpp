// 5: host nodes; and what a lost device answers, on which host functions depend.
#include <atomic>
#include <thread>

#include "conformance/scene.h"

namespace conformance {
namespace {

struct Seen {
  cudaError_t code = cudaSuccess;
  cudaStream_t stream = nullptr;
  int* memory = nullptr;
  int value = 0;
  int calls = 0;
  std::thread::id thread;
};

Seen& seen_of(void* data) { return *static_cast<Seen*>(data); }

std::vector<Case> function_cases() {
  return {{"host.cuda_call_inside",
           "5 CUDA calls in a host function: may get 800 [header]",
           {returns("cudaStreamQuery", cudaErrorNotPermitted)},
           [](Recorder& r) {
             Seen seen;
             seen.stream = make_stream(r);
             const cudaStream_t stream = make_stream(r);
             r.need("cudaLaunchHostFunc",
                    cudaLaunchHostFunc(
                        stream, [](void* data) { seen_of(data).code = cudaStreamQuery(seen_of(data).stream); }, &seen));
             r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             r.call("cudaStreamQuery", seen.code);
           }},
          {"host.runs_on_another_thread",
           "5 a driver-owned thread [header]",
           {gives("calls", 1), gives("the caller's thread", 0)},
           [](Recorder& r) {
             Seen seen;
             const cudaStream_t stream = make_stream(r);
             r.need("cudaLaunchHostFunc", cudaLaunchHostFunc(
                                              stream,
                                              [](void* data) {
                                                ++seen_of(data).calls;
                                                seen_of(data).thread = std::this_thread::get_id();
                                              },
                                              &seen));
             r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             r.value("calls", seen.calls);
             r.value("the caller's thread", seen.thread == std::this_thread::get_id());
           }},
          {"host.sees_writes_before_it", "5 prior writes are visible [header]", {gives("seen", 3)}, [](Recorder& r) {
             Seen seen;
             seen.memory = make_pinned(r);
             int* device = make_int(r, 3);
             const cudaStream_t stream = make_stream(r);
             r.need("cudaMemcpyAsync", cudaMemcpyAsync(seen.memory, device, 4, cudaMemcpyDeviceToHost, stream));
             r.need("cudaLaunchHostFunc",
                    cudaLaunchHostFunc(
                        stream, [](void* data) { seen_of(data).value = *seen_of(data).memory; }, &seen));
             r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             r.value("seen", seen.value);
           }}};
}

std::vector<Case> data_cases() {
  return {{"host.data_is_read_at_the_call",
           "5 userData is baked in; its pointee is not [header]",
           {gives("seen", 2)},
           [](Recorder& r) {
             Seen seen;
             int source = 1;
             seen.memory = &source;
             const cudaGraph_t graph = make_graph(r);
             add(r, graph, host_params([](void* data) { seen_of(data).value = *seen_of(data).memory; }, &seen));
             const cudaGraphExec_t exec = instantiate(r, graph);
             source = 2;
             launch(r, exec, make_stream(r));
             r.value("seen", seen.value);
           }},
          {"host.new_data_by_set_params",
           "5 userData by ExecHostNodeSetParams [header]",
           {returns("cudaGraphExecNodeSetParams", cudaSuccess), gives("first", 0), gives("second", 1)},
           [](Recorder& r) {
             Seen first, second;
             const auto count = [](void* data) { ++seen_of(data).calls; };
             const cudaGraph_t graph = make_graph(r);
             const cudaGraphNode_t node = add(r, graph, host_params(count, &first));
             const cudaGraphExec_t exec = instantiate(r, graph);
             cudaGraphNodeParams params = host_params(count, &second);
             r.call("cudaGraphExecNodeSetParams", cudaGraphExecNodeSetParams(exec, node, &params));
             launch(r, exec, make_stream(r));
             r.value("first", first.calls);
             r.value("second", second.calls);
           }}};
}

std::vector<Case> lost_device_cases() {
  constexpr auto kLost = cudaErrorLaunchFailure;
  return {{"lost.host_function_is_not_called",
           "5 on a context error a host function is not called [header; the code of a trap is ours]",
           {returns("cudaStreamSynchronize", kLost), gives("calls", 0)},
           [](Recorder& r) {
             // One launch: queued separately, the second call might already hear of the first one's fate.
             Seen seen;
             const cudaStream_t stream = make_stream(r);
             begin(r, stream);
             r.need("kernel launch", launch_trap(stream));
             r.need("cudaLaunchHostFunc", cudaLaunchHostFunc(
                                              stream, [](void* data) { ++seen_of(data).calls; }, &seen));
             const cudaGraphExec_t exec = instantiate(r, end(r, stream));
             r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
             r.call("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             r.value("calls", seen.calls);
           }},
          {"lost.every_call_says_so",
           "3.2 a fault kills the context; 11 sticky errors [header; the code of a trap is ours; the last error is "
           "cleared like any other]",
           {returns("cudaStreamSynchronize", kLost), returns("cudaMalloc", kLost), returns("cudaGetLastError", kLost),
            returns("cudaGetLastError", cudaSuccess)},
           [](Recorder& r) {
             const cudaStream_t stream = make_stream(r);
             r.need("kernel launch", launch_trap(stream));
             r.call("cudaStreamSynchronize", cudaStreamSynchronize(stream));
             void* memory = nullptr;
             r.call("cudaMalloc", cudaMalloc(&memory, 256));
             r.call("cudaGetLastError", cudaGetLastError());
             r.call("cudaGetLastError", cudaGetLastError());
           }}};
}

// A stream that a host function keeps busy until it is released.
class BusyStream {
 public:
  explicit BusyStream(Recorder& r) : stream_(make_stream(r)), done_(make_event(r)) {
    const auto wait = [](void* data) { static_cast<std::atomic<bool>*>(data)->wait(false); };
    r.need("cudaLaunchHostFunc", cudaLaunchHostFunc(stream_, wait, &released_));
    r.need("cudaEventRecord", cudaEventRecord(done_, stream_));
  }
  ~BusyStream() {
    released_ = true;
    released_.notify_all();
    (void)cudaStreamSynchronize(stream_);
  }
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;
  cudaStream_t stream() const { return stream_; }
  cudaEvent_t done() const { return done_; }

 private:
  std::atomic<bool> released_ = false;
  cudaStream_t stream_;
  cudaEvent_t done_;
};

std::vector<Case> busy_cases() {
  const auto not_ready = [](const char* call, const char* row, cudaError_t (*ask)(const BusyStream&)) {
    return Case{std::string("not_ready.") + call,
                row,
                {returns(call, cudaErrorNotReady), returns("cudaPeekAtLastError", cudaSuccess)},
                [=](Recorder& r) {
                  const BusyStream busy(r);
                  r.call(call, ask(busy));
                  r.call("cudaPeekAtLastError", cudaPeekAtLastError());
                }};
  };
  return {not_ready("cudaStreamQuery", "11 NotReady sets no last error [probe on an H100]",
                    [](const BusyStream& busy) { return cudaStreamQuery(busy.stream()); }),
          not_ready("cudaEventQuery", "11 NotReady sets no last error [by analogy]",
                    [](const BusyStream& busy) { return cudaEventQuery(busy.done()); })};
}

}  // namespace

std::vector<Case> host_cases() {
  std::vector<Case> cases = function_cases();
  for (const auto& part : {data_cases(), lost_device_cases(), busy_cases()})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
