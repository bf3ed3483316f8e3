// A captured graph, checked and ready to launch.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/called_stack.h"
#include "device/cuda/check.h"
#include "device/cuda/handle.h"
#include "device/cuda/stream.h"

namespace graphsink {

// Facts about the nodes of a graph that are known only while it is captured. CUDA 13.0 cannot read the bodies of a
// conditional node back later.
struct CapturedNodes {
  // The op a node belongs to; null for nodes of the runtime itself.
  std::unordered_map<cudaGraphNode_t, const BoundNode*> owners;
  std::unordered_set<const BoundNode*> library_callers;                  // ops whose kernels may be those of a library
  std::unordered_map<cudaGraphNode_t, std::vector<cudaGraph_t>> bodies;  // body graphs of conditional nodes
};

class CudaCapturedGraph : public CapturedGraph {
 public:
  // Without an executable graph: exec() is null until instantiate() or take_over().
  CudaCapturedGraph(GraphHandle graph, CapturedNodes nodes, Calls& calls);

  CaptureInfo info() const override;
  cudaGraph_t graph() const { return graph_.get(); }
  cudaGraphExec_t exec() const { return exec_.get(); }
  // Throws CaptureFailed if a second launch would fail, because memory that the first allocates in stream order is not
  // freed in it. The error names the op, if the nodes belong to ops.
  void require_repeatable() const;
  // Throws CaptureFailed, naming the op, if a node was given host memory of a function that was called while capturing
  // and has returned: launches would read what is there then.
  void require_lasting_memory(const CalledStack& while_capturing) const;
  // The first copy from or to pageable memory of the host, as "memcpy from 0x7f3c00000000", with its op if it has one;
  // empty if there is none.
  std::string pageable_copy() const;
  // Makes the executable graph and uploads it on `stream`. Throws CaptureFailed if CUDA refuses the graph, and where
  // memory is short; the error names the op if CUDA names the node.
  void instantiate(cudaStream_t stream);
  // Whether take_over() is worth a try: both graphs have as many nodes of each kind and edges, and none of the nodes
  // that CUDA cannot change in an executable graph, or changes wrongly: cudaGraphExecUpdate() lets a kernel that has no
  // clusters of thread blocks run in those of the kernel that was there before, and reports success (H100, CUDA 13.0).
  bool resembles(const CudaCapturedGraph& other) const;
  // Makes the executable graph of `other` this one's, by changing the arguments of its nodes; `other` has none
  // afterwards. Launches of it that are under way are not affected. Returns false if CUDA refuses that; then it is
  // destroyed, as a failed update may leave it half changed. Preconditions: this graph has none; it resembles `other`.
  bool take_over(CudaCapturedGraph& other);
  std::vector<CapturedKernel> kernels() const override;
  ProfiledNodes profiled_nodes() const override;
  // Adds what a launch of this many steps runs. The body of a loop within a step is counted once per step.
  void count_launch(Counters& counters, std::uint64_t steps) const;

 private:
  void read(cudaGraph_t graph, CaptureInfo& info);

  // A graph with conditional nodes must outlive the executable graph that was instantiated from it. The order of these
  // members guarantees this.
  Calls& calls_;
  GraphHandle graph_;
  CapturedNodes nodes_;
  GraphExecHandle exec_;
  bool is_taken_over_ = false;  // exec_ was made from another graph
  CaptureInfo once_;            // nodes outside of conditional bodies
  CaptureInfo bodies_;          // nodes inside of conditional bodies
  bool has_clusters_ = false;   // a kernel runs in clusters of several thread blocks
};

// Warning that is logged once, followed by the text of pageable_copy().
inline constexpr const char* kPageableCopy =
    "each launch repeats a copy of pageable host memory, which must exist and hold what is meant as long as the work "
    "may "
    "be launched; memory of cudaMallocHost() is copied faster: ";

// The graph's nodes, each after those it depends on; independent nodes in any order.
std::vector<cudaGraphNode_t> nodes_in_order(cudaGraph_t graph, Calls& calls);

// Throws CaptureFailed, naming the op, if `graph` contains a node that is not allowed in the body of a conditional
// node.
void require_body_nodes(cudaGraph_t graph, const CapturedNodes& nodes, Calls& calls);

// Throws CaptureFailed on behalf of the op `node`. If `node` is null, the error concerns the capture as a whole.
[[noreturn]] void refuse_capture(const BoundNode* node, const std::string& problem, const std::string& remedy);

}  // namespace graphsink
