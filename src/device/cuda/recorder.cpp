#include "device/cuda/recorder.h"

#include "device/cuda/control.h"

namespace graphsink {
namespace {

// Whatever became of the capture: afterwards the stream is live, and so are those that had joined it. Returns what was
// recorded; null where the capture had failed, and its graph went with it.
cudaGraph_t end_capture(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  bool is_over = cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  if (!is_over && cudaStreamEndCapture(stream, &graph) != cudaSuccess) (void)cudaGetLastError();
  return graph;
}

// The capture of one body; ends with this object at the latest, so that the streams can be used again.
class BodyCapture {
 public:
  BodyCapture(Calls& calls, const CudaStream& stream, cudaGraph_t graph) : calls_(calls), stream_(stream) {
    calls_.check(
        cudaStreamBeginCaptureToGraph(stream.get(), graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCaptureToGraph");
  }
  ~BodyCapture() {
    if (!has_ended_) (void)end_capture(stream_.get());  // the graph is part of the one around it
  }
  BodyCapture(const BodyCapture&) = delete;
  BodyCapture& operator=(const BodyCapture&) = delete;

  void end() {
    cudaGraph_t same = nullptr;
    calls_.check(cudaStreamEndCapture(stream_.get(), &same), "cudaStreamEndCapture");
    has_ended_ = true;
  }

 private:
  Calls& calls_;
  const CudaStream& stream_;
  bool has_ended_ = false;
};

}  // namespace

void Recorder::begin(CudaStream& origin) {
  calls_.recording = true;
  // Thread-local: calls of other threads, such as their allocations, are their own affair.
  calls_.check(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  origin_ = &origin;
}

Recorder::Frontier Recorder::frontier(const CudaStream& stream, const BoundNode* node) const {
  Frontier f;
  calls_.check(cudaStreamGetCaptureInfo(stream.get(), &f.status, nullptr, &f.graph, &f.nodes, &f.edges, &f.count),
               "cudaStreamGetCaptureInfo", node);
  return f;
}

void Recorder::expect(const CudaStream& stream, const BoundNode* node) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  calls_.check(cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing", node);
  if (status == cudaStreamCaptureStatusNone) {
    refuse_recording(node, "its stream takes no part in the recording",
                     "fence it from the first stream before giving it work");
  }
  if (status == cudaStreamCaptureStatusInvalidated) {
    refuse_recording(node, "the recording was broken before this op, from outside",
                     "let no other thread synchronise the device meanwhile");
  }
}

void Recorder::note(CudaStream& stream, const BoundNode* node) {
  stream.is_open = true;
  Frontier now = frontier(stream, node);
  if (now.status != cudaStreamCaptureStatusActive) {
    refuse_recording(
        node, "it ended the recording: a call that is not allowed while a stream is capturing",
        "bodies may only enqueue: allocate, wait and load in prepare(); let no other thread synchronise the device "
        "meanwhile");
  }
  std::vector<cudaGraphNode_t> todo(now.nodes, now.nodes + now.count);
  while (!todo.empty()) {
    cudaGraphNode_t next = todo.back();
    todo.pop_back();
    if (!nodes_.owners.emplace(next, node).second) continue;
    std::size_t count = 0;
    calls_.check(cudaGraphNodeGetDependencies(next, nullptr, nullptr, &count), "cudaGraphNodeGetDependencies");
    if (count == 0) continue;
    std::vector<cudaGraphEdgeData> edges(count);
    todo.resize(todo.size() + count);
    calls_.check(
        cudaGraphNodeGetDependencies(next, &*(todo.end() - static_cast<std::ptrdiff_t>(count)), edges.data(), &count),
        "cudaGraphNodeGetDependencies");
  }
}

void Recorder::control(Streams streams, const bool* predicate, cudaGraphConditionalNodeType type,
                       std::span<const Device::Body* const> bodies) {
  CudaStream& stream = cuda_stream(*streams[0]);
  expect(stream, nullptr);
  // Made without a default value: that would hold once per launch only, not once per iteration of a loop around this.
  // The kernel in front decides each time.
  cudaGraphConditionalHandle handle = 0;
  calls_.check(cudaGraphConditionalHandleCreate(&handle, frontier(stream).graph, 0, 0),
               "cudaGraphConditionalHandleCreate");
  calls_.check(launch_decide(stream.get(), predicate, handle), "cudaLaunchKernelEx");
  cudaGraphNode_t node = add_conditional(stream, type, handle, bodies.size());
  const std::vector<cudaGraph_t>& graphs = nodes_.bodies.at(node);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    record_body(graphs[i], streams.size(), *bodies[i], predicate, type == cudaGraphCondTypeWhile ? &handle : nullptr);
  }
  calls_.check(cudaStreamUpdateCaptureDependencies(stream.get(), &node, nullptr, 1, cudaStreamSetCaptureDependencies),
               "cudaStreamUpdateCaptureDependencies");
  note(stream, nullptr);
}

cudaGraphNode_t Recorder::add_conditional(const CudaStream& stream, cudaGraphConditionalNodeType type,
                                          cudaGraphConditionalHandle handle, std::size_t bodies) {
  Frontier before = frontier(stream);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = static_cast<unsigned>(bodies);
  cudaGraphNode_t node = nullptr;
  calls_.check(cudaGraphAddNode(&node, before.graph, before.nodes, before.edges, before.count, &params),
               "cudaGraphAddNode");
  nodes_.bodies[node].assign(params.conditional.phGraph_out, params.conditional.phGraph_out + bodies);
  return node;
}

Streams Recorder::body_streams(std::size_t count) {
  if (levels_.size() < depth_) levels_.resize(depth_);
  Level& level = levels_[depth_ - 1];
  while (level.owned.size() < count) {
    level.owned.push_back(std::make_unique<CudaStream>(calls_));
    level.streams.push_back(level.owned.back().get());
  }
  for (std::size_t i = 0; i < count; ++i) level.owned[i]->is_open = false;
  return Streams(level.streams).first(count);
}

void Recorder::record_body(cudaGraph_t graph, std::size_t count, const Device::Body& body, const bool* predicate,
                           const cudaGraphConditionalHandle* again) {
  struct Deeper {
    std::size_t& depth;
    explicit Deeper(std::size_t& d) : depth(d) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth_);
  Streams streams = body_streams(count);
  CudaStream& first = cuda_stream(*streams[0]);
  BodyCapture capture(calls_, first, graph);
  body(streams);
  for (Stream* stream : streams.subspan(1)) {
    if (cuda_stream(*stream).is_open) first.wait_for(cuda_stream(*stream), calls_);
  }
  if (again) calls_.check(launch_decide(first.get(), predicate, *again), "cudaLaunchKernelEx");
  capture.end();
  std::size_t nodes = 0;
  calls_.check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
  if (nodes > 0) return;
  // Drivers before CUDA 12.8 hang on a body without nodes.
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeEmpty;
  cudaGraphNode_t empty = nullptr;
  calls_.check(cudaGraphAddNode(&empty, graph, nullptr, nullptr, 0, &params), "cudaGraphAddNode");
}

std::unique_ptr<CudaRecording> Recorder::end() {
  CudaStream& origin = *origin_;
  GraphHandle graph;
  calls_.check(cudaStreamEndCapture(origin.get(), graph.out()), "cudaStreamEndCapture");
  origin_ = nullptr;
  auto recording = std::make_unique<CudaRecording>(std::move(graph), nodes_, origin, calls_);
  nodes_ = {};
  calls_.recording = false;
  ++calls_.counters.recordings;
  return recording;
}

void Recorder::cancel() noexcept {
  calls_.recording = false;
  nodes_ = {};
  if (origin_) GraphHandle dropped(end_capture(std::exchange(origin_, nullptr)->get()));
}

}  // namespace graphsink
