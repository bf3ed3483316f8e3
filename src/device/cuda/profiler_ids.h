// The ids by which profilers know nodes of graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace graphsink {

// Asks CUPTI, the library of the CUDA toolkit on which profilers are built. It is loaded when it is needed, so that the
// library does not depend on it.
class ProfilerIds {
 public:
  // Throws Error if CUPTI is not found.
  ProfilerIds();

  // Throw Error if CUPTI does not say.
  std::uint64_t of(cudaGraphNode_t node) const;
  std::uint32_t of(cudaGraphExec_t graph) const;

 private:
  // As in cupti_activity.h, which need not be installed where this is built. They return CUPTI_SUCCESS, which is 0.
  using GetNodeId = int (*)(cudaGraphNode_t, std::uint64_t*);
  using GetExecId = int (*)(cudaGraphExec_t, std::uint32_t*);
  GetNodeId get_node_id_;
  GetExecId get_exec_id_;
};

}  // namespace graphsink
