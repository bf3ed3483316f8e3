// Captures work given to streams as a graph.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/captured_graph.h"
#include "device/cuda/error_log.h"
#include "device/cuda/stream.h"
#include "graphsink/cuda.h"
#include "ir/bound_node.h"

namespace graphsink {

// Captures one graph at a time, on one thread. Every failure is a CaptureFailed, unless the device is lost. The capture
// happens on internal streams, to which the caller's streams are redirected meanwhile. So if a capture cannot be ended,
// later captures fail, but the caller's streams still work.
class StreamCapture {
 public:
  explicit StreamCapture(std::shared_ptr<Calls> calls) : held_(std::move(calls)), calls_(*held_) {}
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  // Order of calls: begin (expect note | note | control)* (end | cancel).
  bool is_active() const { return origin_ != nullptr; }
  void begin(Streams streams);
  // Throws CaptureFailed if the stream does not take part in the capture. Work given to such a stream would run at
  // once.
  void expect(const CudaStream& stream, const BoundNode* node) const;
  // How the body of an op launches its kernels. The first is launched as usual, whatever the plan says, unless what is
  // in front of it is one kernel on the same stream, of an op with OpTraits::kernels_wait: ops with empty operands may
  // have launched nothing, and several streams of a plan may be captured as one.
  CudaLaunches launches(const CudaStream& stream, const BoundNode& node) const;
  // Call this after something was captured. It notes the op that the new nodes belong to. Throws CaptureFailed if the
  // op broke the capture.
  void note(CudaStream& stream, const BoundNode* node);
  // The call that broke the capture, with its error, as CUDA's log has it; empty if the log does not tell, and outside
  // of a capture. `last`: see find_cause().
  std::string cause(cudaError_t last) const { return log_ ? log_->cause(last) : std::string(); }
  // Notes that some of the node's kernels may be those of a library.
  void note_library(const BoundNode& node) { nodes_.library_callers.insert(&node); }
  // Adds a conditional node: IF for a branch, SWITCH for a choice, WHILE for a loop. See DeviceNodes::control().
  void control(Streams streams, TaskKind kind, const void* decision, std::size_t count,
               const DeviceNodes::Bodies& bodies);
  // `spare`: see DeviceCapture::end_capture().
  std::unique_ptr<CudaCapturedGraph> end(std::unique_ptr<CudaCapturedGraph> spare);
  void cancel() noexcept;
  // In place of begin() and end(): takes part in a capture that somebody else has begun on `callers`, until cancel().
  // `owner`: see DeviceCapture::enter_capture(). Behind what was entered before in the same capture, on whatever
  // stream.
  void enter(Streams streams, CudaStream& callers, std::shared_ptr<void> owner);

 private:
  struct Frontier {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    unsigned long long id = 0;  // the same for all streams of a capture
  };
  // A capture of somebody else that steps became a part of.
  struct Entered {
    unsigned long long id = 0;
    std::weak_ptr<void> kept;  // by its graph: gone when the capture is, and all that was made of it
    EventHandle end;           // recorded behind the last step
    bool has_end = false;      // else that step was cut off
  };
  Frontier frontier(const CudaStream& stream, const BoundNode* node = nullptr) const;
  cudaGraphNode_t add_conditional(const CudaStream& stream, TaskKind kind, cudaGraphConditionalHandle handle,
                                  std::size_t bodies);
  void rehearse(Streams like, std::size_t count, const DeviceNodes::Bodies& bodies);
  // `at_the_end` captures what follows the body.
  void record_body(cudaGraph_t graph, Streams like, const FunctionRef<void(Streams)>& body,
                   FunctionRef<void(const CudaStream&)> at_the_end);
  void begin_capture(CudaStream& stream);
  // Lets the graph keep `owner`, and `callers` wait for the last step in the same capture.
  void chain(const CudaStream& callers, const Frontier& before, std::shared_ptr<void> owner);
  // Ends the step for which enter() was called.
  void end_step() noexcept;
  CudaStream& begin_body(cudaGraph_t graph, Streams streams);
  // Makes the first stream wait for all others that hold work.
  void join(Streams streams);
  cudaGraph_t end_capture();
  void end_captures() noexcept;
  void restore_streams() noexcept;
  // Returns one internal stream per given stream, on the same device. The result is valid until the next call at the
  // same nesting depth.
  Streams own_streams(Streams like);
  void redirect(Streams from, Streams to);
  void listen();
  void stop_listening() noexcept;
  void note_pageable_copy(const CudaCapturedGraph& captured);

  // The streams of one nesting depth; levels_[0] is for work outside of conditional bodies. No two levels share a
  // stream, because a stream can take part in only one capture at a time.
  struct Level {
    std::map<Calls*, std::vector<std::unique_ptr<CudaStream>>> owned;  // by device
    std::vector<Stream*> streams;
    Streams take(Streams like);
  };

  std::shared_ptr<Calls> held_;
  Calls& calls_;
  CudaStream* origin_ = nullptr;  // the caller's first stream, while capturing
  std::vector<CudaStream*> redirected_;
  CapturedNodes nodes_;
  std::vector<Level> levels_;
  // For enter(). A stream takes part in the caller's capture until that ends, so for each capture that goes on there
  // are others.
  std::vector<Level> inside_;
  std::vector<Entered> entered_;         // the captures that may go on
  Entered* step_in_ = nullptr;           // the capture that the step of enter() becomes a part of, until cancel()
  const CudaStream* callers_ = nullptr;  // the stream of that step
  std::size_t depth_ = 0;
  bool is_rehearsing_ = false;
  CalledStack called_;  // below the frame of begin(): the functions of ops, which are called deeper, have theirs there
  std::optional<ErrorLog> log_;  // from begin() or enter() to the end of the capture
  bool is_pageable_noted_ = false;
  struct Capture {
    CudaStream* stream;  // the stream on which it began
    bool owns_graph;     // if false, the graph is the body of a conditional node, which owns it
  };
  std::vector<Capture> capturing_;  // the innermost capture is last
};

}  // namespace graphsink
