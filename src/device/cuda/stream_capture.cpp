#include "device/cuda/stream_capture.h"

#include <algorithm>

#include "device/cuda/control.h"
#include "device/cuda/graph_owner.h"

namespace graphsink {
namespace {

bool is_live(cudaStream_t stream, const Log& log) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t code = cudaStreamIsCapturing(stream, &status);
  if (code != cudaSuccess) log_failure(log, "cudaStreamIsCapturing", cudaGetErrorName(code));
  return code == cudaSuccess && status == cudaStreamCaptureStatusNone;
}

// Ends a capture, even a broken one. Returns false if the stream may still be capturing. `graph` stays null if the
// capture was broken, because CUDA then destroys the graph.
bool try_to_end_capture(cudaStream_t stream, cudaGraph_t& graph, const Log& log) noexcept {
  if (is_live(stream, log)) return true;
  cudaError_t code = cudaStreamEndCapture(stream, &graph);
  if (code == cudaSuccess) return true;
  if (code == cudaErrorStreamCaptureInvalidated) {  // whoever ends it says what broke it
    (void)cudaGetLastError();
  } else {
    log_failure(log, "cudaStreamEndCapture", cudaGetErrorName(code));
  }
  // Ending a broken capture reports an error, but the capture is then over.
  return is_sticky(code) || is_live(stream, log);
}

// Whether the op has an output with elements that is not within one of its inputs.
bool must_write(const BoundNode& node) {
  const BodyArgs args(node);
  for (int out = 0; out < node.outputs; ++out) {
    const auto* written = args.out<std::byte>(out);
    bool is_within = args.out_type(out).bytes() == 0;
    for (int in = 0; in < node.inputs; ++in) {
      const auto* input = args.in<std::byte>(in);
      is_within = is_within || (written >= input && written < input + args.in_type(in).bytes());
    }
    if (!is_within) return true;
  }
  return false;
}

}  // namespace

// If a capture cannot be ended, destroying its stream may end it, which also destroys its graph. The streams that
// capture into a body of that graph must therefore be destroyed first.
StreamCapture::~StreamCapture() {
  cancel();
  while (!levels_.empty()) levels_.pop_back();
}

void StreamCapture::begin(Streams streams) {
  called_ = CalledStack(__builtin_frame_address(0));
  calls_.set_capturing(true);
  end_captures();
  if (!capturing_.empty()) {
    refuse_capture(nullptr, "an earlier capture cannot be ended: cudaStreamEndCapture fails", "restart the process");
  }
  listen();
  Streams own = own_streams(streams);
  redirect(streams, own);
  begin_capture(cuda_stream(*own[0]));
  origin_ = &cuda_stream(*streams[0]);
}

void StreamCapture::redirect(Streams from, Streams to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    redirected_.push_back(&cuda_stream(*from[i]));
    redirected_.back()->capture_by(&cuda_stream(*to[i]));
  }
}

void StreamCapture::enter(Streams streams, CudaStream& callers, std::shared_ptr<void> owner) {
  calls_.set_capturing(true);
  listen();
  auto is_free = [&](const Level& level) {
    auto are_live = [&](const auto& owned) {
      return std::all_of(owned.second.begin(), owned.second.end(),
                         [&](const auto& stream) { return is_live(stream->get(), calls_.log); });
    };
    return std::all_of(level.owned.begin(), level.owned.end(), are_live);
  };
  auto free = std::find_if(inside_.begin(), inside_.end(), is_free);
  Level& level = free == inside_.end() ? inside_.emplace_back() : *free;
  std::vector<Stream*> own(streams.begin(), streams.end());
  own[0] = &callers;
  const Streams others = level.take(streams.subspan(1));
  std::copy(others.begin(), others.end(), own.begin() + 1);
  redirect(streams, own);
  origin_ = &cuda_stream(*streams[0]);
  if (const Frontier before = frontier(callers); before.graph) chain(callers, before, std::move(owner));
  const Frontier before = frontier(callers);
  // Only nodes that come now belong to ops.
  for (std::size_t i = 0; i < before.count; ++i) nodes_.owners.emplace(before.nodes[i], nullptr);
}

// Steps change the same memory, so they must not run beside each other on branches of the caller's graph.
void StreamCapture::chain(const CudaStream& callers, const Frontier& before, std::shared_ptr<void> owner) {
  const auto kept = std::make_shared<std::shared_ptr<void>>(std::move(owner));
  keep_alive(before.graph, kept, calls_);
  std::erase_if(entered_, [](const Entered& known) { return known.kept.expired(); });
  auto here = std::find_if(entered_.begin(), entered_.end(), [&](const Entered& e) { return e.id == before.id; });
  if (here == entered_.end()) {
    Entered added{before.id, kept, {}, false};
    calls_.check(cudaEventCreateWithFlags(added.end.out(calls_.log), cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
    entered_.push_back(std::move(added));
    here = entered_.end() - 1;
  } else if (here->has_end) {
    calls_.check(cudaStreamWaitEvent(callers.get(), here->end.get(), cudaEventWaitDefault), "cudaStreamWaitEvent");
  } else {
    refuse_capture(nullptr, "an earlier step in the same capture was cut off", kCaptureRemedy);
  }
  here->has_end = false;
  step_in_ = &*here;
  callers_ = &callers;
}

void StreamCapture::end_step() noexcept {
  if (!step_in_) return;
  Entered& step = *std::exchange(step_in_, nullptr);
  ++calls_.counters.api_calls;
  step.has_end = cudaEventRecord(step.end.get(), callers_->get()) == cudaSuccess;
  if (!step.has_end) (void)cudaGetLastError();
}

// In thread-local mode, calls of other threads, such as allocations, do not affect the capture.
void StreamCapture::begin_capture(CudaStream& stream) {
  calls_.check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capturing_.push_back({&stream, true});
}

StreamCapture::Frontier StreamCapture::frontier(const CudaStream& stream, const BoundNode* node) const {
  Frontier f;
  calls_.check(cudaStreamGetCaptureInfo(stream.get(), &f.status, &f.id, &f.graph, &f.nodes, &f.edges, &f.count),
               "cudaStreamGetCaptureInfo", node);
  return f;
}

void StreamCapture::expect(const CudaStream& stream, const BoundNode* node) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  calls_.check(cudaStreamIsCapturing(stream.get(), &status), "cudaStreamIsCapturing", node);
  if (status == cudaStreamCaptureStatusNone) {
    refuse_capture(node, "its stream takes no part in the capture",
                   "let it wait for the first stream before giving it work");
  }
  if (status == cudaStreamCaptureStatusInvalidated) {
    refuse_capture(node, "the capture was broken before this op, from outside",
                   "let no other thread synchronise the device meanwhile");
  }
}

CudaLaunches StreamCapture::launches(const CudaStream& stream, const BoundNode& node) const {
  CudaLaunches launches;
  launches.others_are_programmatic = node.programmatic != ProgrammaticLaunch::none;
  if (node.programmatic != ProgrammaticLaunch::all || stream.has_waited) return launches;
  const Frontier before = frontier(stream, &node);
  if (before.count != 1) return launches;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  calls_.check(cudaGraphNodeGetType(before.nodes[0], &type), "cudaGraphNodeGetType", &node);
  const auto owner = nodes_.owners.find(before.nodes[0]);
  launches.first_is_programmatic = type == cudaGraphNodeTypeKernel && owner != nodes_.owners.end() && owner->second &&
                                   owner->second->op->traits.kernels_wait;
  return launches;
}

void StreamCapture::note(CudaStream& stream, const BoundNode* node) {
  stream.is_open = true;
  stream.has_waited = false;
  Frontier now = frontier(stream, node);
  if (now.status != cudaStreamCaptureStatusActive) {
    const std::string call = cause(cudaErrorStreamCaptureInvalidated);
    refuse_capture(
        node,
        "it broke the capture: " + (call.empty() ? "a call that is not allowed while a stream is capturing" : call),
        kCaptureRemedy);
  }
  std::vector<cudaGraphNode_t> todo(now.nodes, now.nodes + now.count);
  bool is_anything_new = false;
  while (!todo.empty()) {
    cudaGraphNode_t next = todo.back();
    todo.pop_back();
    if (!nodes_.owners.emplace(next, node).second) continue;
    is_anything_new = true;
    std::size_t count = 0;
    calls_.check(cudaGraphNodeGetDependencies(next, nullptr, nullptr, &count), "cudaGraphNodeGetDependencies");
    if (count == 0) continue;
    std::vector<cudaGraphEdgeData> edges(count);
    todo.resize(todo.size() + count);
    calls_.check(
        cudaGraphNodeGetDependencies(next, &*(todo.end() - static_cast<std::ptrdiff_t>(count)), edges.data(), &count),
        "cudaGraphNodeGetDependencies");
  }
  if (is_anything_new || !node || !must_write(*node)) return;
  refuse_capture(
      node,
      "it enqueued nothing on the stream that it was given, so launches would leave its outputs as they are; what it "
      "gave to other streams has run meanwhile, in no order with the step",
      "give its work to CudaArgs::stream(), or to streams that wait for an event of it and that it then waits for");
}

void StreamCapture::control(Streams streams, TaskKind kind, const void* decision, std::size_t count,
                            const DeviceNodes::Bodies& bodies) {
  if (is_rehearsing_) {
    for (std::size_t i = 0; i < count; ++i) bodies(i, streams);
    return;
  }
  CudaStream& stream = cuda_stream(*streams[0]);
  expect(stream, nullptr);
  if (depth_ == 0) rehearse(streams, count, bodies);
  // The handle has no default value: a default would be set only once per launch, not once per iteration of an
  // enclosing loop. Instead, the kernel in front of the node sets the value each time.
  cudaGraphConditionalHandle handle = 0;
  calls_.check(cudaGraphConditionalHandleCreate(&handle, frontier(stream).graph, 0, 0),
               "cudaGraphConditionalHandleCreate");
  auto decide = [&](const CudaStream& on) {
    cudaError_t code = kind == TaskKind::choice
                           ? launch_decide(on.get(), static_cast<const std::int32_t*>(decision), handle)
                           : launch_decide(on.get(), static_cast<const bool*>(decision), handle);
    calls_.check(code, "cudaLaunchKernelEx");
  };
  decide(stream);
  cudaGraphNode_t node = add_conditional(stream, kind, handle, count);
  const std::vector<cudaGraph_t>& graphs = nodes_.bodies.at(node);
  for (std::size_t i = 0; i < count; ++i) {
    record_body(
        graphs[i], streams, [&](Streams inner) { bodies(i, inner); },
        [&](const CudaStream& on) {
          if (kind == TaskKind::loop) decide(on);
        });
  }
  calls_.check(cudaStreamUpdateCaptureDependencies(stream.get(), &node, nullptr, 1, cudaStreamSetCaptureDependencies),
               "cudaStreamUpdateCaptureDependencies");
  note(stream, nullptr);
}

// Captures the bodies, including nested ones, one after the other into a temporary graph, which is then destroyed. A
// body that breaks its capture must do so here, before any conditional node exists. The reason is a driver bug: when a
// broken capture into the body of a conditional node is ended, some drivers free that body. When the capture around the
// node is ended as well, in either order, the process crashes (issue 2918 of NVIDIA/cuda-python). A capture that
// another thread breaks later is not detected here.
void StreamCapture::rehearse(Streams like, std::size_t count, const DeviceNodes::Bodies& bodies) {
  struct Rehearsing {
    StreamCapture& capture;
    CapturedNodes nodes;
    explicit Rehearsing(StreamCapture& c) : capture(c), nodes(std::exchange(c.nodes_, {})) {
      capture.is_rehearsing_ = true;
      ++capture.depth_;
    }
    ~Rehearsing() {
      capture.is_rehearsing_ = false;
      --capture.depth_;
      capture.nodes_ = std::move(nodes);
    }
  } rehearsing(*this);
  Streams streams = own_streams(like);
  CudaStream& first = cuda_stream(*streams[0]);
  begin_capture(first);
  for (std::size_t i = 0; i < count; ++i) bodies(i, streams);
  join(streams);
  GraphHandle graph(end_capture(), calls_.log);
  ++calls_.counters.api_calls;  // for the destruction of `graph`, below
  require_body_nodes(graph.get(), nodes_, calls_);
}

cudaGraphNode_t StreamCapture::add_conditional(const CudaStream& stream, TaskKind kind,
                                               cudaGraphConditionalHandle handle, std::size_t bodies) {
  Frontier before = frontier(stream);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = kind == TaskKind::branch   ? cudaGraphCondTypeIf
                            : kind == TaskKind::choice ? cudaGraphCondTypeSwitch
                                                       : cudaGraphCondTypeWhile;
  params.conditional.size = static_cast<unsigned>(bodies);
  cudaGraphNode_t node = nullptr;
  calls_.check(cudaGraphAddNode(&node, before.graph, before.nodes, before.edges, before.count, &params),
               "cudaGraphAddNode");
  nodes_.bodies[node].assign(params.conditional.phGraph_out, params.conditional.phGraph_out + bodies);
  return node;
}

Streams StreamCapture::own_streams(Streams like) {
  if (levels_.size() <= depth_) levels_.resize(depth_ + 1);
  return levels_[depth_].take(like);
}

// A stream that occurs more than once, as where one stream serves all of a plan's, gets one.
Streams StreamCapture::Level::take(Streams like) {
  streams.clear();
  std::map<Calls*, std::size_t> used;
  for (Stream* stream : like) {
    const auto first = static_cast<std::size_t>(std::find(like.begin(), like.end(), stream) - like.begin());
    if (first < streams.size()) {
      streams.push_back(streams[first]);
      continue;
    }
    Calls& calls = cuda_stream(*stream).calls();
    auto& of_device = owned[&calls];
    std::size_t index = used[&calls]++;
    if (index == of_device.size()) of_device.push_back(std::make_unique<CudaStream>(calls));
    of_device[index]->is_open = false;
    streams.push_back(of_device[index].get());
  }
  return streams;
}

CudaStream& StreamCapture::begin_body(cudaGraph_t graph, Streams streams) {
  CudaStream& first = cuda_stream(*streams[0]);
  calls_.check(cudaStreamBeginCaptureToGraph(first.get(), graph, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCaptureToGraph");
  capturing_.push_back({&first, false});
  return first;
}

void StreamCapture::record_body(cudaGraph_t graph, Streams like, const FunctionRef<void(Streams)>& body,
                                FunctionRef<void(const CudaStream&)> at_the_end) {
  struct Deeper {
    std::size_t& depth;
    explicit Deeper(std::size_t& d) : depth(d) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth_);
  Streams streams = own_streams(like);
  CudaStream& first = begin_body(graph, streams);
  body(streams);
  join(streams);
  at_the_end(first);
  (void)end_capture();  // the graph belongs to the conditional node around it
  std::size_t nodes = 0;
  calls_.check(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
  if (nodes > 0) return;
  // Drivers before CUDA 12.8 hang on a body without nodes.
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeEmpty;
  cudaGraphNode_t empty = nullptr;
  calls_.check(cudaGraphAddNode(&empty, graph, nullptr, nullptr, 0, &params), "cudaGraphAddNode");
}

void StreamCapture::join(Streams streams) {
  for (Stream* stream : streams.subspan(1)) {
    if (cuda_stream(*stream).is_open) cuda_stream(*streams[0]).wait_for(cuda_stream(*stream), calls_);
  }
}

// Ends the innermost capture. If this fails, cancel() cleans up.
cudaGraph_t StreamCapture::end_capture() {
  cudaGraph_t graph = nullptr;
  calls_.check(cudaStreamEndCapture(capturing_.back().stream->get(), &graph), "cudaStreamEndCapture");
  capturing_.pop_back();
  return graph;
}

std::unique_ptr<CudaCapturedGraph> StreamCapture::end(std::unique_ptr<CudaCapturedGraph> spare) {
  GraphHandle graph(end_capture(), calls_.log);
  CudaStream& origin = *std::exchange(origin_, nullptr);
  restore_streams();
  stop_listening();
  auto captured = std::make_unique<CudaCapturedGraph>(std::move(graph), std::exchange(nodes_, {}), calls_);
  captured->require_repeatable();
  captured->require_lasting_memory(called_);
  note_pageable_copy(*captured);
  bool is_updated = false;
  if (spare && captured->resembles(*spare)) {
    is_updated = captured->take_over(*spare);
    ++(is_updated ? calls_.counters.graph_updates : calls_.counters.graph_update_refusals);
  }
  if (!is_updated) captured->instantiate(origin.get());
  calls_.set_capturing(false);
  ++calls_.counters.captures;
  return captured;
}

void StreamCapture::note_pageable_copy(const CudaCapturedGraph& captured) {
  if (is_pageable_noted_) return;
  const std::string copy = captured.pageable_copy();
  if (copy.empty()) return;
  is_pageable_noted_ = true;
  calls_.log.warn({kPageableCopy, copy});
}

void StreamCapture::cancel() noexcept {
  calls_.set_capturing(false);
  origin_ = nullptr;
  nodes_ = {};
  restore_streams();
  end_step();
  stop_listening();
  end_captures();
}

void StreamCapture::listen() {
  log_.emplace(calls_.log);
  ++calls_.counters.api_calls;
}

void StreamCapture::stop_listening() noexcept {
  if (log_ && log_->is_heard()) ++calls_.counters.api_calls;
  log_.reset();
}

void StreamCapture::restore_streams() noexcept {
  for (CudaStream* stream : redirected_) stream->capture_by(nullptr);
  redirected_.clear();
}

// Ends the innermost capture first, because a graph must not be destroyed while a capture still adds to one of its
// bodies. A capture that cannot be ended is tried again when the next capture begins, and finally in the destructor.
void StreamCapture::end_captures() noexcept {
  while (!capturing_.empty()) {
    cudaGraph_t graph = nullptr;
    Capture innermost = capturing_.back();
    if (!try_to_end_capture(innermost.stream->get(), graph, calls_.log)) return;
    capturing_.pop_back();
    if (innermost.owns_graph) GraphHandle dropped(graph, calls_.log);
  }
}

}  // namespace graphsink
