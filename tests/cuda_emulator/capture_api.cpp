// Beginning, looking into and ending captures.
#include <algorithm>

#include "runtime.h"

namespace emu {
namespace {

constexpr const char* kNotCapturing = "Stream is not actively capturing";

bool is_mode(cudaStreamCaptureMode mode) {
  return mode >= cudaStreamCaptureModeGlobal && mode <= cudaStreamCaptureModeRelaxed;
}

cudaError_t begin(Runtime& r, cudaStream_t handle, cudaGraph_t graph, std::vector<Edge> frontier,
                  cudaStreamCaptureMode mode) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!is_mode(mode)) return cudaErrorInvalidValue;
  if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = r.next_capture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->owns_graph = graph == nullptr;
  capture->graph = graph == nullptr ? new CUgraph_st(nullptr) : graph;
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->frontier = std::move(frontier);
  r.captures.push_back(capture);
  return cudaSuccess;
}

// Every stream's last nodes must be reachable from the origin's, but for nodes the program itself took out.
bool is_joined(const Capture& capture) {
  std::vector<cudaGraphNode_t> ends = capture.dropped;
  for (const Edge& edge : capture.origin->frontier) ends.push_back(edge.node);
  const auto is_reached = [&](const Edge& edge) {
    return std::any_of(ends.begin(), ends.end(), [&](cudaGraphNode_t end) { return depends_on(end, edge.node); });
  };
  return std::all_of(capture.left.begin(), capture.left.end(), is_reached) &&
         std::all_of(capture.streams.begin(), capture.streams.end(), [&](cudaStream_t stream) {
           return std::all_of(stream->frontier.begin(), stream->frontier.end(), is_reached);
         });
}

void release(Runtime& r, const CaptureRef& capture) {
  capture->ended = true;
  for (const cudaStream_t stream : capture->streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  std::erase(r.captures, capture);
}

// A failed capture takes its graph with it, also one it was to be added to.
void discard_graph(Capture& capture) {
  if (capture.graph == nullptr) return;
  if (capture.owns_graph || capture.graph->owner == nullptr) {
    delete capture.graph;
  } else {
    capture.graph->spoiled = true;
  }
}

cudaError_t end(Runtime& r, CUstream_st& stream, cudaGraph_t* out) {
  const CaptureRef capture = stream.capture;
  if (capture == nullptr) return explain(cudaErrorIllegalState, kNotCapturing);
  if (capture->origin != &stream) {
    invalidate(*capture);
    return explain(cudaErrorStreamCaptureUnmatched, "Capture was not initiated on hStream");
  }
  if (out != nullptr) *out = nullptr;
  cudaError_t code = r.executor.sticky();
  if (code != cudaSuccess) {
    // The device is gone: nothing can come of the graph.
  } else if (capture->thread != std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed) {
    code = explain(cudaErrorStreamCaptureWrongThread,
                   "CU_STREAM_CAPTURE_MODE_RELAXED is required to begin and end the capture on different threads");
  } else if (capture->invalid) {
    code = explain(cudaErrorStreamCaptureInvalidated, "Capture was invalidated by a prior API call");
  } else if (!is_joined(*capture)) {
    code = explain(cudaErrorStreamCaptureUnjoined,
                   "Capture sequence contains a fork that was not joined to the primary stream");
  }
  release(r, capture);
  if (code != cudaSuccess) {
    discard_graph(*capture);
    return code;
  }
  if (out != nullptr) *out = capture->graph;
  return cudaSuccess;
}

cudaError_t make_edges(Runtime& r, cudaGraph_t graph, const cudaGraphNode_t* nodes, const cudaGraphEdgeData* data,
                       std::size_t count, std::vector<Edge>& edges) {
  if (count > 0 && nodes == nullptr) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    if (!r.nodes.contains(nodes[i]) || nodes[i]->graph != graph) return cudaErrorInvalidValue;
    edges.push_back({nodes[i], data == nullptr ? cudaGraphEdgeData{} : data[i]});
  }
  return cudaSuccess;
}

bool is_default(const cudaGraphEdgeData& data) { return data.from_port == 0 && data.to_port == 0 && data.type == 0; }

cudaStreamCaptureStatus status_of(const CUstream_st& stream) {
  if (stream.capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace

void leave_capture(Runtime& r, CUstream_st& stream) {
  const CaptureRef capture = stream.capture;
  if (capture->origin == &stream) {
    release(r, capture);
    discard_graph(*capture);
    return;
  }
  capture->left.insert(capture->left.end(), stream.frontier.begin(), stream.frontier.end());
  std::erase(capture->streams, &stream);
  stream.capture = nullptr;
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", [&](Runtime& r, Lock&) { return emu::begin(r, stream, nullptr, {}, mode); });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* nodes,
                                          const cudaGraphEdgeData* data, size_t count, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCaptureToGraph", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<emu::Edge> frontier;
    if (emu::make_edges(r, graph, nodes, data, count, frontier) != cudaSuccess) return cudaErrorInvalidValue;
    return emu::begin(r, stream, graph, std::move(frontier), mode);
  });
}

// Without a place for it, the graph of a capture is nobody's: it lives, and only who asked for it before has its
// handle.
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return emu::end(r, *stream, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", [&](Runtime& r, Lock&) -> cudaError_t {
    if (r.device_count == 0) return cudaErrorNoDevice;
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t refused = emu::refuse_legacy(r, *stream); refused != cudaSuccess) return refused;
    *status = emu::status_of(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** data,
                                     size_t* count) {
  return api("cudaStreamGetCaptureInfo", [&](Runtime& r, Lock&) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t refused = emu::refuse_legacy(r, *stream); refused != cudaSuccess) return refused;
    *status = emu::status_of(*stream);
    if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
    stream->frontier_nodes.clear();
    stream->frontier_data.clear();
    for (const emu::Edge& edge : stream->frontier) {
      if (nodes != nullptr && data == nullptr && !emu::is_default(edge.data)) return cudaErrorLossyQuery;
      stream->frontier_nodes.push_back(edge.node);
      stream->frontier_data.push_back(edge.data);
    }
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = stream->capture->graph;
    if (nodes != nullptr) *nodes = stream->frontier_nodes.data();
    if (data != nullptr) *data = stream->frontier_data.data();
    if (count != nullptr) *count = stream->frontier_nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData* data, size_t count, unsigned flags) {
  return api("cudaStreamUpdateCaptureDependencies", [&](Runtime& r, Lock&) -> cudaError_t {
    CUstream_st* stream = emu::find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture == nullptr) return emu::explain(cudaErrorIllegalState, emu::kNotCapturing);
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (flags > cudaStreamSetCaptureDependencies) return cudaErrorInvalidValue;
    std::vector<emu::Edge> edges;
    const cudaError_t code = emu::make_edges(r, stream->capture->graph, nodes, data, count, edges);
    if (code != cudaSuccess) return code;
    if (flags == cudaStreamSetCaptureDependencies) {
      for (const emu::Edge& edge : stream->frontier) stream->capture->dropped.push_back(edge.node);
      stream->frontier.clear();
    }
    for (const emu::Edge& edge : edges) {
      const bool known = std::any_of(stream->frontier.begin(), stream->frontier.end(),
                                     [&](const emu::Edge& other) { return other.node == edge.node; });
      if (!known) stream->frontier.push_back(edge);
    }
    return cudaSuccess;
  });
}
