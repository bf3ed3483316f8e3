#include "device/cuda/profiler_ids.h"

#include <dlfcn.h>

#include <string>

#include "device/cuda/cuda_library.h"
#include "graphsink/error.h"

// Not null in a program that links CUPTI.
extern "C" [[gnu::weak]] int cuptiGetGraphNodeId(cudaGraphNode_t node, std::uint64_t* id);
extern "C" [[gnu::weak]] int cuptiGetGraphExecId(cudaGraphExec_t graph, std::uint32_t* id);

namespace graphsink {
namespace {

void expect_success(int code, const char* call) {
  if (code == 0) return;
  throw Error("node names", Where(), std::string(call) + " fails with CUPTI's error " + std::to_string(code),
              "see CUptiResult in cupti_result.h", ErrorCode::unavailable);
}

}  // namespace

ProfilerIds::ProfilerIds() : get_node_id_(cuptiGetGraphNodeId), get_exec_id_(cuptiGetGraphExecId) {
  if (get_node_id_ && get_exec_id_) return;
  const std::string name = "libcupti.so." + std::to_string(CUDART_VERSION / 1000);
  std::string problem;
  if (void* cupti = open_cuda_library(name, problem)) {
    get_node_id_ = reinterpret_cast<GetNodeId>(dlsym(cupti, "cuptiGetGraphNodeId"));
    get_exec_id_ = reinterpret_cast<GetExecId>(dlsym(cupti, "cuptiGetGraphExecId"));
  }
  if (get_node_id_ && get_exec_id_) return;
  if (problem.empty()) problem = name + " lacks a function";
  throw Error("node names", Where(), "CUPTI, which knows the ids that profilers show, cannot be used: " + problem,
              "install CUPTI, a part of the CUDA toolkit, and put its folder into LD_LIBRARY_PATH",
              ErrorCode::unavailable);
}

std::uint64_t ProfilerIds::of(cudaGraphNode_t node) const {
  std::uint64_t id = 0;
  expect_success(get_node_id_(node, &id), "cuptiGetGraphNodeId");
  return id;
}

std::uint32_t ProfilerIds::of(cudaGraphExec_t graph) const {
  std::uint32_t id = 0;
  expect_success(get_exec_id_(graph, &id), "cuptiGetGraphExecId");
  return id;
}

}  // namespace graphsink
