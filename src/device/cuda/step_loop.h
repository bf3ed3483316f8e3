// A captured graph as the body of a loop, so that one launch runs it any number of times.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "device/cuda/captured_graph.h"

namespace graphsink {

// An executable graph of one WHILE node, whose body is a copy of the captured graph and a kernel that counts down. The
// number of iterations is in device memory, so each launch has its own. One launch at a time is under way: each waits
// for the one before, whatever streams they are given to. Destruction waits for the last launch.
class StepLoop : public CudaCapturedGraph {
 public:
  // Throws CaptureFailed if CUDA cannot hold the graph `step` in a loop, and Error if a call fails. `stream` is a live
  // stream of the same device, for uploads.
  static std::unique_ptr<StepLoop> make(const CudaCapturedGraph& step, cudaStream_t stream, Calls& calls);
  ~StepLoop() override;

  // Returns the error of the first call that failed, and its name in `call`. After a failure nothing of this launch
  // runs.
  cudaError_t launch(cudaStream_t stream, std::int64_t steps, const char*& call);

 private:
  StepLoop(GraphHandle graph, CapturedNodes nodes, MemoryHandle left, EventHandle done, Calls& calls)
      : CudaCapturedGraph(std::move(graph), std::move(nodes), calls),
        log_(calls.log),
        left_(std::move(left)),
        done_(std::move(done)) {}

  std::int64_t* left() const { return static_cast<std::int64_t*>(left_.get()); }

  Log log_;
  MemoryHandle left_;  // the iterations that are left
  EventHandle done_;   // recorded after each launch
};

}  // namespace graphsink
