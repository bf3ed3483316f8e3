#include "conformance/scene.h"

namespace conformance {

cudaStream_t make_stream(Recorder& r, unsigned flags) {
  cudaStream_t stream = nullptr;
  r.need("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

cudaEvent_t make_event(Recorder& r, unsigned flags) {
  cudaEvent_t event = nullptr;
  r.need("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event, flags));
  return event;
}

int* make_int(Recorder& r, int value) {
  int* pointer = nullptr;
  r.need("cudaMalloc", cudaMalloc(&pointer, sizeof(int)));
  r.need("cudaMemcpy", cudaMemcpy(pointer, &value, sizeof(int), cudaMemcpyHostToDevice));
  // The copy may return before the device has the value.
  r.need("cudaStreamSynchronize", cudaStreamSynchronize(cudaStreamLegacy));
  return pointer;
}

int read_int(Recorder& r, const int* source) {
  int value = 0;
  r.need("cudaDeviceSynchronize", cudaDeviceSynchronize());
  r.need("cudaMemcpy", cudaMemcpy(&value, source, sizeof(int), cudaMemcpyDeviceToHost));
  return value;
}

int* make_pinned(Recorder& r, int value) {
  int* pointer = nullptr;
  r.need("cudaHostAlloc", cudaHostAlloc(&pointer, sizeof(int), cudaHostAllocDefault));
  *pointer = value;
  return pointer;
}

cudaStream_t make_capturing(Recorder& r, cudaStreamCaptureMode mode, unsigned flags) {
  const cudaStream_t stream = make_stream(r, flags);
  begin(r, stream, mode);
  return stream;
}

void begin(Recorder& r, cudaStream_t stream, cudaStreamCaptureMode mode) {
  r.need("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, mode));
  r.watch(stream);
}

cudaGraph_t end(Recorder& r, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  r.need("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
  r.watch(nullptr);
  return graph;
}

cudaGraph_t record_end(Recorder& r, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  r.call("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
  return graph;
}

void join(Recorder& r, cudaStream_t from, cudaStream_t to) {
  const cudaEvent_t event = make_event(r);
  r.need("cudaEventRecord", cudaEventRecord(event, from));
  r.need("cudaStreamWaitEvent", cudaStreamWaitEvent(to, event, 0));
}

cudaGraph_t make_graph(Recorder& r) {
  cudaGraph_t graph = nullptr;
  r.need("cudaGraphCreate", cudaGraphCreate(&graph, 0));
  return graph;
}

cudaGraphExec_t instantiate(Recorder& r, cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  r.need("cudaGraphInstantiate", cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

void launch(Recorder& r, cudaGraphExec_t exec, cudaStream_t stream, int times) {
  for (int i = 0; i < times; ++i) r.need("cudaGraphLaunch", cudaGraphLaunch(exec, stream));
  r.need("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

cudaGraphExec_t record_instantiate(Recorder& r, cudaGraph_t graph, unsigned long long flags) {
  cudaGraphExec_t exec = nullptr;
  cudaGraphInstantiateParams params = {};
  params.flags = flags;
  r.call("cudaGraphInstantiateWithParams", cudaGraphInstantiateWithParams(&exec, graph, &params));
  r.value("result_out", params.result_out);
  return exec;
}

std::size_t node_count(Recorder& r, cudaGraph_t graph) {
  std::size_t count = 0;
  r.need("cudaGraphGetNodes", cudaGraphGetNodes(graph, nullptr, &count));
  return count;
}

std::size_t edge_count(Recorder& r, cudaGraph_t graph) {
  std::size_t count = 0;
  r.need("cudaGraphGetEdges", cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  return count;
}

cudaGraphNode_t first_node(Recorder& r, cudaGraph_t graph) {
  cudaGraphNode_t node = nullptr;
  std::size_t count = 1;
  r.need("cudaGraphGetNodes", cudaGraphGetNodes(graph, &node, &count));
  return node;
}

cudaGraphNodeType type_of(Recorder& r, cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeCount;
  r.need("cudaGraphNodeGetType", cudaGraphNodeGetType(node, &type));
  return type;
}

cudaGraph_t captured_graph(Recorder& r, cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  r.need("cudaStreamGetCaptureInfo",
         cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  return graph;
}

cudaGraphConditionalHandle make_handle(Recorder& r, cudaGraph_t graph, unsigned value, unsigned flags) {
  cudaGraphConditionalHandle handle = 0;
  r.need("cudaGraphConditionalHandleCreate", cudaGraphConditionalHandleCreate(&handle, graph, value, flags));
  return handle;
}

Conditional add_conditional(Recorder& r, cudaGraph_t graph, cudaGraphConditionalHandle handle,
                            cudaGraphConditionalNodeType type, unsigned size, const Nodes& before) {
  cudaGraphNodeParams params = conditional_params(handle, type, size);
  Conditional made = {};
  r.need("cudaGraphAddNode", add_node(&made.node, graph, params, before));
  made.bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
  return made;
}

void capture_into(Recorder& r, cudaGraph_t body, const std::function<void(cudaStream_t)>& fill) {
  const cudaStream_t stream = make_stream(r);
  r.need("cudaStreamBeginCaptureToGraph",
         cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  fill(stream);
  cudaGraph_t same = nullptr;
  r.need("cudaStreamEndCapture", cudaStreamEndCapture(stream, &same));
}

}  // namespace conformance
