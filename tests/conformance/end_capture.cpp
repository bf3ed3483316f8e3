// 1.2 and 1.3: ending a capture; forks, dependencies, captures into a graph.
#include <thread>

#include "conformance/scene.h"

namespace conformance {
namespace {

constexpr const char* kEnd = "1.2 cudaStreamEndCapture";
constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;

// Also whether there is a graph.
cudaGraph_t record_end_and_graph(Recorder& r, cudaStream_t stream) {
  const cudaGraph_t graph = record_end(r, stream);
  r.value("graph", graph != nullptr);
  return graph;
}

unsigned long long capture_id(Recorder& r, cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  r.need("cudaStreamGetCaptureInfo",
         cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  return id;
}

Case other_thread(const char* name, cudaStreamCaptureMode mode) {
  const bool legal = mode == kRelaxed;
  const cudaError_t code = legal ? cudaSuccess : cudaErrorStreamCaptureWrongThread;
  return {std::string("end.other_thread_") + name,
          std::string(kEnd) + " on another thread [issue-hw]",
          {returns("cudaStreamEndCapture", code, Status::kNone), gives("graph", legal)},
          [=](Recorder& r) {
            const cudaStream_t stream = make_capturing(r, mode);
            cudaGraph_t graph = nullptr;
            cudaError_t seen = cudaSuccess;
            std::thread([&] { seen = cudaStreamEndCapture(stream, &graph); }).join();
            r.call("cudaStreamEndCapture", seen);
            r.value("graph", graph != nullptr);
          }};
}

std::vector<Case> join_cases() {
  return {{"end.fine",
           std::string(kEnd) + " of a joined capture [header]",
           {capture_ends(), gives("graph", 1), returns("cudaStreamSynchronize", cudaSuccess, Status::kNone)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t other = make_stream(r), stream = make_capturing(r);
             join(r, stream, other);
             r.need("kernel launch", launch_set(other, memory, 1));
             join(r, other, stream);
             record_end_and_graph(r, stream);
             r.watch(other);
             r.call("cudaStreamSynchronize", cudaStreamSynchronize(other));
           }},
          {"end.not_joined",
           std::string(kEnd) + " with a fork that did not join [header, issue-sim]",
           {returns("cudaStreamEndCapture", cudaErrorStreamCaptureUnjoined, Status::kNone), gives("graph", 0),
            returns("cudaStreamSynchronize", cudaSuccess, Status::kNone)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t other = make_stream(r), stream = make_capturing(r);
             join(r, stream, other);
             r.need("kernel launch", launch_set(other, memory, 1));
             record_end_and_graph(r, stream);
             r.watch(other);
             r.call("cudaStreamSynchronize", cudaStreamSynchronize(other));
           }}};
}

Case end_of_a_joined_stream() {
  return {"end.joined_stream",
          std::string(kEnd) + " on a stream that joined, then on the one where the capture began [issue-sim]",
          {returns("cudaStreamEndCapture", cudaErrorStreamCaptureUnmatched, Status::kInvalidated),
           returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone)},
          [](Recorder& r) {
            const cudaStream_t other = make_stream(r), stream = make_capturing(r);
            join(r, stream, other);
            record_end(r, other);
            record_end(r, stream);
          }};
}

std::vector<Case> end_cases() {
  return {{"end.invalidated",
           std::string(kEnd) + " of an invalidated capture [doc, issue-hw]",
           {returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone), gives("graph", 0),
            returns("cudaStreamBeginCapture", cudaSuccess, Status::kActive)},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r);
             (void)cudaDeviceSynchronize();
             record_end_and_graph(r, stream);
             r.call("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, kLocal));
           }},
          other_thread("global", cudaStreamCaptureModeGlobal),
          other_thread("local", kLocal),
          other_thread("relaxed", kRelaxed),
          {"end.not_capturing",
           std::string(kEnd) + " without a capture [unverified]",
           {returns("cudaStreamEndCapture", cudaErrorIllegalState, Status::kNone)},
           [](Recorder& r) {
             const cudaStream_t stream = make_stream(r);
             r.watch(stream);
             record_end(r, stream);
           }},
          {"end.into_graph_failed",
           std::string(kEnd) + " of a capture into a graph that failed [issue-hw]",
           {returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone), gives("graph", 0)},
           [](Recorder& r) {
             const cudaStream_t stream = make_stream(r);
             r.need("cudaStreamBeginCaptureToGraph",
                    cudaStreamBeginCaptureToGraph(stream, make_graph(r), nullptr, nullptr, 0, kLocal));
             r.watch(stream);
             (void)cudaDeviceSynchronize();
             record_end_and_graph(r, stream);
           }}};
}

// Without a place for the graph.
std::vector<Case> null_cases() {
  return {by_foreign_test({"end.null_into_graph",
                           std::string(kEnd) + " without a place, of a capture into a graph [foreign tests]",
                           {capture_ends()},
                           [](Recorder& r) {
                             const cudaStream_t stream = make_stream(r);
                             r.need("cudaStreamBeginCaptureToGraph",
                                    cudaStreamBeginCaptureToGraph(stream, make_graph(r), nullptr, nullptr, 0, kLocal));
                             r.watch(stream);
                             r.call("cudaStreamEndCapture", cudaStreamEndCapture(stream, nullptr));
                           }}),
          {"end.null", std::string(kEnd) + " without a place [unverified]", {capture_ends()}, [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaStreamEndCapture", cudaStreamEndCapture(stream, nullptr));
           }}};
}

std::vector<Case> fork_cases() {
  return {{"fork.same_capture",
           "1.3 fork [doc]",
           {gives("same capture", 1), capture_ends(), gives("nodes", 2), gives("edges", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t other = make_stream(r), stream = make_capturing(r);
             r.need("kernel launch", launch_set(stream, memory, 1));
             join(r, stream, other);
             r.value("same capture", capture_id(r, stream) == capture_id(r, other));
             r.need("kernel launch", launch_set(other, memory, 2));
             join(r, other, stream);
             const cudaGraph_t graph = record_end(r, stream);
             r.value("nodes", static_cast<long long>(node_count(r, graph)));
             r.value("edges", static_cast<long long>(edge_count(r, graph)));
           }},
          {"fork.dropped_nodes_need_no_join",
           "1.3 the test for joining [header]",
           {capture_ends(), gives("nodes", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t other = make_stream(r), stream = make_capturing(r);
             join(r, stream, other);
             r.need("kernel launch", launch_set(other, memory, 1));
             r.need("cudaStreamUpdateCaptureDependencies",
                    cudaStreamUpdateCaptureDependencies(other, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies));
             r.value("nodes", static_cast<long long>(node_count(r, record_end(r, stream))));
           }},
          {"fork.live_graph_can_be_edited",
           "1.3 the graph of cudaStreamGetCaptureInfo [header]",
           {returns("cudaGraphAddNode", cudaSuccess, Status::kActive), capture_ends(), gives("nodes", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.need("kernel launch", launch_set(stream, memory, 1));
             cudaGraphNode_t node = nullptr;
             cudaGraphNodeParams params = empty_params();
             r.call("cudaGraphAddNode", add_node(&node, captured_graph(r, stream), params));
             r.value("nodes", static_cast<long long>(node_count(r, record_end(r, stream))));
           }},
          {"fork.set_dependencies_to_none",
           "1.3 cudaStreamUpdateCaptureDependencies, Set with none [header, issue]",
           {returns("cudaStreamUpdateCaptureDependencies", cudaSuccess, Status::kActive), capture_ends(),
            gives("edges", 0)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.need("kernel launch", launch_set(stream, memory, 1));
             r.call("cudaStreamUpdateCaptureDependencies",
                    cudaStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies));
             r.need("kernel launch", launch_set(stream, memory, 2));
             r.value("edges", static_cast<long long>(edge_count(r, record_end(r, stream))));
           }}};
}

// An exec is launched into a capture, whatever its nodes.
Case captured_launch(const char* name, const std::function<void(Recorder&, cudaGraph_t)>& fill) {
  return {std::string("into_graph.") + name,
          "1.3 launching an exec into a capture [the sheet's child node is wrong]",
          {returns("cudaGraphLaunch", cudaErrorStreamCaptureUnsupported, Status::kInvalidated),
           returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone)},
          [fill](Recorder& r) {
            const cudaGraph_t graph = make_graph(r);
            fill(r, graph);
            const cudaGraphExec_t exec = instantiate(r, graph);
            const cudaStream_t stream = make_capturing(r);
            r.call("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
            record_end(r, stream);
          }};
}

std::vector<Case> into_graph_cases() {
  return {
      {"into_graph.appends",
       "1.3 cudaStreamBeginCaptureToGraph [header]",
       {returns("cudaStreamBeginCaptureToGraph", cudaSuccess, Status::kActive), capture_ends(), gives("same graph", 1),
        gives("nodes", 2), gives("edges", 1)},
       [](Recorder& r) {
         int* memory = make_int(r);
         const cudaGraph_t graph = make_graph(r);
         const cudaGraphNode_t node = add_set(r, graph, memory, 1);
         const cudaStream_t stream = make_stream(r);
         r.watch(stream);
         r.call("cudaStreamBeginCaptureToGraph",
                cudaStreamBeginCaptureToGraph(stream, graph, &node, nullptr, 1, kLocal));
         r.need("kernel launch", launch_set(stream, memory, 2));
         r.value("same graph", record_end(r, stream) == graph);
         r.value("nodes", static_cast<long long>(node_count(r, graph)));
         r.value("edges", static_cast<long long>(edge_count(r, graph)));
       }},
      captured_launch("launch_is_refused", [](Recorder& r, cudaGraph_t graph) { add_set(r, graph, make_int(r), 1); }),
      captured_launch("launch_with_conditional",
                      [](Recorder& r, cudaGraph_t graph) {
                        add_conditional(r, graph, make_handle(r, graph), cudaGraphCondTypeIf, 1);
                      }),
      captured_launch("launch_with_allocation",
                      [](Recorder& r, cudaGraph_t graph) { add(r, graph, alloc_params(256)); }),
      {"into_graph.child_node_in_a_capture",
       "1.3 a child node that is added to the graph of a capture [header]",
       {returns("cudaGraphAddNode", cudaSuccess, Status::kActive),
        returns("cudaStreamUpdateCaptureDependencies", cudaSuccess, Status::kActive), capture_ends(), gives("edges", 1),
        gives("value", 3)},
       [](Recorder& r) {
         int* memory = make_int(r);
         const cudaGraph_t inner = make_graph(r);
         add_set(r, inner, memory, 1);
         const cudaStream_t stream = make_capturing(r);
         cudaGraphNode_t node = nullptr;
         cudaGraphNodeParams params = child_params(inner, cudaGraphChildGraphOwnershipClone);
         r.call("cudaGraphAddNode", add_node(&node, captured_graph(r, stream), params));
         r.call("cudaStreamUpdateCaptureDependencies",
                cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
         r.need("kernel launch", launch_add(stream, memory, 2));
         const cudaGraph_t graph = record_end(r, stream);
         r.value("edges", static_cast<long long>(edge_count(r, graph)));
         launch(r, instantiate(r, graph), stream);
         r.value("value", read_int(r, memory));
       }},
      {"into_graph.priority_is_copied",
       "1.3 stream priority at capture [header]",
       {returns("cudaGraphKernelNodeGetAttribute", cudaSuccess), gives("the stream's priority", 1)},
       [](Recorder& r) {
         int* memory = make_int(r);
         int least = 0, greatest = 0;
         r.need("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest));
         cudaStream_t stream = nullptr;
         r.need("cudaStreamCreateWithPriority", cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
         begin(r, stream);
         r.need("kernel launch", launch_set(stream, memory, 1));
         const cudaGraphNode_t node = first_node(r, end(r, stream));
         cudaKernelNodeAttrValue value = {};
         r.call("cudaGraphKernelNodeGetAttribute",
                cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributePriority, &value));
         r.value("the stream's priority", value.priority == greatest);
       }}};
}

}  // namespace

std::vector<Case> end_capture_cases() {
  std::vector<Case> cases = by_foreign_test(join_cases());
  cases.push_back(end_of_a_joined_stream());
  for (const auto& part : {by_foreign_test(end_cases()), null_cases(), fork_cases(), into_graph_cases()})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
