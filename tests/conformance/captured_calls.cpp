// 1.4: what particular calls become in a graph.
#include "conformance/scene.h"

namespace conformance {
namespace {

void count(void* counter) { ++*static_cast<int*>(counter); }

std::vector<Case> captured_memory_cases() {
  return {{"captured.cudaMallocAsync",
           "1.4 cudaMallocAsync, cudaFreeAsync [header, doc]",
           {returns("cudaMallocAsync", cudaSuccess, Status::kActive),
            returns("cudaFreeAsync", cudaSuccess, Status::kActive), capture_ends(),
            gives("first", cudaGraphNodeTypeMemAlloc), gives("second", cudaGraphNodeTypeMemFree),
            returns("cudaGraphLaunch", cudaSuccess, Status::kNone),
            returns("cudaStreamSynchronize", cudaSuccess, Status::kNone)},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r);
             void* memory = nullptr;
             r.call("cudaMallocAsync", cudaMallocAsync(&memory, 256, stream));
             r.call("cudaFreeAsync", cudaFreeAsync(memory, stream));
             const cudaGraph_t graph = record_end(r, stream);
             cudaGraphNode_t first = nullptr, second = nullptr;  // the order of a list of nodes is not promised
             std::size_t one = 1;
             r.need("cudaGraphGetEdges", cudaGraphGetEdges(graph, &first, &second, nullptr, &one));
             r.value("first", type_of(r, first));
             r.value("second", type_of(r, second));
             r.call("cudaGraphLaunch", cudaGraphLaunch(instantiate(r, graph), stream));
             r.call("cudaStreamSynchronize", cudaStreamSynchronize(stream));
           }},
          {"captured.memory_outside_of_launches",
           "1.4 cudaPointerGetAttributes of memory that a graph allocates [tests of this library on an H200]",
           {returns("cudaPointerGetAttributes", cudaSuccess, Status::kNone), gives("type", cudaMemoryTypeUnregistered)},
           [](Recorder& r) {
             const cudaStream_t stream = make_capturing(r);
             void* memory = nullptr;
             r.need("cudaMallocAsync", cudaMallocAsync(&memory, 256, stream));
             r.need("cudaFreeAsync", cudaFreeAsync(memory, stream));
             cudaGraph_t graph = nullptr;
             r.need("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
             cudaPointerAttributes attributes = {};
             r.call("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, memory));
             r.value("type", attributes.type);
           }},
          {"captured.pageable_copy",
           "1.4 cudaMemcpyAsync of pageable memory is read at replay [doc]",
           {returns("cudaMemcpyAsync", cudaSuccess, Status::kActive), capture_ends(),
            gives("type", cudaGraphNodeTypeMemcpy), gives("copied", 2)},
           [](Recorder& r) {
             int* target = make_int(r);
             int source = 1;
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaMemcpyAsync", cudaMemcpyAsync(target, &source, 4, cudaMemcpyHostToDevice, stream));
             const cudaGraph_t graph = record_end(r, stream);
             r.value("type", type_of(r, first_node(r, graph)));
             source = 2;
             launch(r, instantiate(r, graph), stream);
             r.value("copied", read_int(r, target));
           }}};
}

std::vector<Case> captured_event_cases() {
  return {
      {"captured.plain_event_is_an_edge",
       "1.4 cudaEventRecord, cudaStreamWaitEvent [doc]",
       {capture_ends(), gives("nodes", 2), gives("edges", 1)},
       [](Recorder& r) {
         int* memory = make_int(r);
         const cudaStream_t stream = make_capturing(r);
         r.need("kernel launch", launch_set(stream, memory, 1));
         join(r, stream, stream);
         r.need("kernel launch", launch_set(stream, memory, 1));
         const cudaGraph_t graph = record_end(r, stream);
         r.value("nodes", static_cast<long long>(node_count(r, graph)));
         r.value("edges", static_cast<long long>(edge_count(r, graph)));
       }},
      {"captured.external_record_is_a_node",
       "1.4 cudaEventRecordWithFlags, External [header]",
       {returns("cudaEventRecordWithFlags", cudaSuccess, Status::kActive), capture_ends(),
        gives("type", cudaGraphNodeTypeEventRecord)},
       [](Recorder& r) {
         const cudaStream_t stream = make_capturing(r);
         r.call("cudaEventRecordWithFlags", cudaEventRecordWithFlags(make_event(r), stream, cudaEventRecordExternal));
         r.value("type", type_of(r, first_node(r, record_end(r, stream))));
       }},
      {"captured.external_record_outside",
       "1.4 the flag outside a capture [header: invalid]",
       {returns("cudaEventRecordWithFlags", cudaErrorIllegalState)},
       [](Recorder& r) {
         const cudaEvent_t event = make_event(r);
         r.call("cudaEventRecordWithFlags", cudaEventRecordWithFlags(event, make_stream(r), cudaEventRecordExternal));
       }},
      {"captured.external_wait_outside",
       "1.4 the flag outside a capture [header: invalid]",
       {returns("cudaStreamWaitEvent", cudaErrorIllegalState)},
       [](Recorder& r) {
         const cudaEvent_t event = make_event(r);
         r.call("cudaStreamWaitEvent", cudaStreamWaitEvent(make_stream(r), event, cudaEventWaitExternal));
       }},
      {"captured.external_events_time_a_graph",
       "1.4 External records of timing events [issue-sim]",
       {returns("cudaEventElapsedTime", cudaSuccess), gives("not negative", 1)},
       [](Recorder& r) {
         int* memory = make_int(r);
         const cudaEvent_t from = make_event(r, 0), to = make_event(r, 0);
         const cudaStream_t stream = make_capturing(r);
         const char* name = "cudaEventRecordWithFlags";
         r.need(name, cudaEventRecordWithFlags(from, stream, cudaEventRecordExternal));
         r.need("kernel launch", launch_set(stream, memory, 1));
         r.need(name, cudaEventRecordWithFlags(to, stream, cudaEventRecordExternal));
         launch(r, instantiate(r, end(r, stream)), stream);
         float milliseconds = -1;
         r.call("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, from, to));
         r.value("not negative", milliseconds >= 0);
       }}};
}

// Of a graph of two nodes.
void record_edge(Recorder& r, cudaGraph_t graph) {
  cudaGraphNode_t from = nullptr, to = nullptr;
  cudaGraphEdgeData data = {};
  std::size_t one = 1;
  r.need("cudaGraphGetEdges", cudaGraphGetEdges(graph, &from, &to, &data, &one));
  r.value("edges", static_cast<long long>(one));
  r.value("from_port", data.from_port);
  r.value("type", data.type);
}

std::vector<Case> launch_call_cases() {
  return {{"captured.too_many_threads",
           "11 a launch error in a capture [probe on an H100]",
           {returns("kernel launch", cudaErrorInvalidValue, Status::kInvalidated),
            returns("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, Status::kNone)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.call("kernel launch", launch_with_threads(stream, memory, 4096));
             record_end(r, stream);
           }},
          {"captured.cudaLaunchHostFunc",
           "1.4 cudaLaunchHostFunc [header, issue-sim]",
           {returns("cudaLaunchHostFunc", cudaSuccess, Status::kActive), capture_ends(),
            gives("type", cudaGraphNodeTypeHost), gives("calls at capture", 0), gives("calls after two launches", 2)},
           [](Recorder& r) {
             int calls = 0;
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaLaunchHostFunc", cudaLaunchHostFunc(stream, count, &calls));
             const cudaGraph_t graph = record_end(r, stream);
             r.value("type", type_of(r, first_node(r, graph)));
             r.value("calls at capture", calls);
             launch(r, instantiate(r, graph), stream, 2);
             r.value("calls after two launches", calls);
           }},
          {"captured.programmatic_launch",
           "1.4 launch with ProgrammaticStreamSerialization [issue-hw]",
           {returns("kernel launch", cudaSuccess, Status::kActive), capture_ends(), gives("edges", 1),
            gives("from_port", cudaGraphKernelNodePortProgrammatic), gives("type", cudaGraphDependencyTypeProgrammatic),
            gives("result", 2)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.need("kernel launch", launch_set(stream, memory, 1));
             r.call("kernel launch", launch_add_programmatic(stream, memory, 1));
             const cudaGraph_t graph = record_end(r, stream);
             record_edge(r, graph);
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("result", read_int(r, memory));
           }},
          {"captured.programmatic_launch_behind_a_memset",
           "1.4 launch with ProgrammaticStreamSerialization behind no kernel [unverified]",
           {returns("kernel launch", cudaSuccess, Status::kActive), capture_ends(), gives("edges", 1),
            gives("from_port", cudaGraphKernelNodePortDefault), gives("type", cudaGraphDependencyTypeDefault),
            gives("result", 1)},
           [](Recorder& r) {
             int* memory = make_int(r, 3);
             const cudaStream_t stream = make_capturing(r);
             r.need("cudaMemsetAsync", cudaMemsetAsync(memory, 0, sizeof(int), stream));
             r.call("kernel launch", launch_add_programmatic(stream, memory, 1));
             const cudaGraph_t graph = record_end(r, stream);
             record_edge(r, graph);
             launch(r, instantiate(r, graph), make_stream(r));
             r.value("result", read_int(r, memory));
           }},
          {"captured.cudaLaunchCooperativeKernel",
           "1.4 cudaLaunchCooperativeKernel [issue-sim]",
           {returns("cudaLaunchCooperativeKernel", cudaSuccess, Status::kActive), capture_ends(),
            gives("type", cudaGraphNodeTypeKernel), gives("cooperative", 1)},
           [](Recorder& r) {
             int* memory = make_int(r);
             const cudaStream_t stream = make_capturing(r);
             r.call("cudaLaunchCooperativeKernel", launch_cooperative(stream, memory, 1));
             const cudaGraphNode_t node = first_node(r, record_end(r, stream));
             r.value("type", type_of(r, node));
             cudaKernelNodeAttrValue value = {};
             r.need("cudaGraphKernelNodeGetAttribute",
                    cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value));
             r.value("cooperative", value.cooperative);
           }}};
}

}  // namespace

std::vector<Case> captured_call_cases() {
  std::vector<Case> cases = captured_memory_cases();
  for (const auto& part : {captured_event_cases(), launch_call_cases()})
    cases.insert(cases.end(), part.begin(), part.end());
  return cases;
}

}  // namespace conformance
