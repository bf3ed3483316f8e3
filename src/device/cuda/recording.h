// A recorded graph, checked and ready to launch.
#pragma once

#include <unordered_map>
#include <vector>

#include "device/cuda/check.h"
#include "device/cuda/handle.h"
#include "device/cuda/stream.h"

namespace graphsink {

// What only the recorder knows of a graph: CUDA 13.0 cannot read the bodies of a conditional node back.
struct RecordedNodes {
  std::unordered_map<cudaGraphNode_t, const BoundNode*> owners;  // which op a node belongs to; null: the runtime itself
  std::unordered_map<cudaGraphNode_t, std::vector<cudaGraph_t>> bodies;  // of the conditional nodes
};

class CudaRecording : public Recording {
 public:
  // Throws RecordingFailed, naming the op where CUDA names the node, for a graph that CUDA refuses. `stream` takes the
  // upload.
  CudaRecording(GraphHandle graph, RecordedNodes nodes, CudaStream& stream, Calls& calls);

  RecordingInfo info() const override;
  cudaGraphExec_t exec() const { return exec_.get(); }
  std::vector<RecordedKernel> kernels(Calls& calls) const;
  // Adds what a launch of this many steps runs, bodies of loops within a step counted once.
  void count_launch(Counters& counters, std::uint64_t steps) const;

 private:
  void read(cudaGraph_t graph, RecordingInfo& info, Calls& calls);
  void instantiate(CudaStream& stream, Calls& calls);

  // A graph with conditional nodes has to outlive what was made of it; hence this order.
  GraphHandle graph_;
  RecordedNodes nodes_;
  GraphExecHandle exec_;
  RecordingInfo once_;    // outside of conditional bodies
  RecordingInfo bodies_;  // inside
};

// Throws RecordingFailed, naming the op, for a node that the body of a conditional node may not have.
void require_body_nodes(cudaGraph_t graph, const RecordedNodes& nodes, Calls& calls);

// Throws RecordingFailed on behalf of an op; null: of the recording as a whole.
[[noreturn]] void refuse_recording(const BoundNode* node, const std::string& problem, const std::string& remedy);

}  // namespace graphsink
