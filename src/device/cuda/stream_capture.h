// Captures what is given to streams as a graph.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/captured_graph.h"
#include "device/cuda/stream.h"

namespace graphsink {

// One capture at a time, on one thread. All failures are CaptureFailed, unless the device is lost. Captures on streams
// of its own, to which the caller's streams are redirected for that time: if a capture cannot be ended, later captures
// are lost, but the caller's streams still work.
class StreamCapture {
 public:
  explicit StreamCapture(std::shared_ptr<Calls> calls) : held_(std::move(calls)), calls_(*held_) {}
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  // begin (expect note | note | control)* (end | cancel)
  bool is_active() const { return origin_ != nullptr; }
  void begin(Streams streams);
  // Throws CaptureFailed unless the stream takes part in the capture: otherwise what it is given next would run.
  void expect(const CudaStream& stream, const BoundNode* node) const;
  // Call after something was captured: notes which nodes belong to it, and refuses if it broke the capture.
  void note(CudaStream& stream, const BoundNode* node);
  // Adds a conditional node that runs bodies[0] if, or as long as, *predicate is true, and otherwise bodies[1], if any.
  void control(Streams streams, const bool* predicate, cudaGraphConditionalNodeType type,
               std::span<const Device::Body* const> bodies);
  std::unique_ptr<CudaCapturedGraph> end();
  void cancel() noexcept;

 private:
  struct Frontier {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
  };
  Frontier frontier(const CudaStream& stream, const BoundNode* node = nullptr) const;
  cudaGraphNode_t add_conditional(const CudaStream& stream, cudaGraphConditionalNodeType type,
                                  cudaGraphConditionalHandle handle, std::size_t bodies);
  void rehearse(Streams like, std::span<const Device::Body* const> bodies);
  void record_body(cudaGraph_t graph, Streams like, const Device::Body& body, const bool* predicate,
                   const cudaGraphConditionalHandle* again);
  void begin_capture(CudaStream& stream);
  CudaStream& begin_body(cudaGraph_t graph, Streams streams);
  // Makes the first wait for all others that have work.
  void join(Streams streams);
  cudaGraph_t end_capture();
  void end_captures() noexcept;
  void restore_streams() noexcept;
  // One on the device of each of these. Valid until the next call at this depth.
  Streams own_streams(Streams like);

  // Streams for one depth of nesting, [0] for what is in no body. A stream that captures one level cannot take part in
  // another, which is why no two levels share any.
  struct Level {
    std::map<Calls*, std::vector<std::unique_ptr<CudaStream>>> owned;  // by device
    std::vector<Stream*> streams;
  };

  std::shared_ptr<Calls> held_;
  Calls& calls_;
  CudaStream* origin_ = nullptr;  // the caller's first stream, while capturing
  std::vector<CudaStream*> redirected_;
  CapturedNodes nodes_;
  std::vector<Level> levels_;
  std::size_t depth_ = 0;
  bool is_rehearsing_ = false;
  struct Capture {
    CudaStream* stream;  // that began it
    bool owns_graph;     // else it is the body of a conditional node, which goes with that
  };
  std::vector<Capture> capturing_;  // the innermost last
};

}  // namespace graphsink
