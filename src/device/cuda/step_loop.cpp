#include "device/cuda/step_loop.h"

#include <string>
#include <utility>

#include "device/cuda/control.h"

namespace graphsink {
namespace {

// CUDA refuses these in the body of a loop only when the graph is instantiated, and then gives no reason.
void require_body(const CaptureInfo& step) {
  std::string problem;
  if (step.host_nodes > 0) {
    problem = "it calls host functions (cudaLaunchHostFunc)";
  } else if (step.allocations > 0 || step.frees > 0) {
    problem = "it allocates memory in stream order (cudaMallocAsync)";
  } else if (step.conditional_nodes > 0) {
    problem = "it has conditional nodes of its own, which CUDA does not copy";
  }
  if (problem.empty()) return;
  throw CaptureFailed("capture", Where(), "CUDA cannot repeat the work in one launch: " + problem,
                      "leave that out of the function if its steps are to be one launch");
}

// Adds a WHILE node that begins with a true condition. Returns its body.
cudaGraph_t add_loop(cudaGraph_t graph, cudaGraphConditionalHandle& condition, CapturedNodes& nodes, Calls& calls) {
  calls.check(cudaGraphConditionalHandleCreate(&condition, graph, 1, cudaGraphCondAssignDefault),
              "cudaGraphConditionalHandleCreate");
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = condition;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t loop = nullptr;
  calls.check(cudaGraphAddNode(&loop, graph, nullptr, nullptr, 0, &params), "cudaGraphAddNode");
  cudaGraph_t body = params.conditional.phGraph_out[0];
  nodes.bodies[loop] = {body};
  return body;
}

cudaGraphNode_t add_child(cudaGraph_t graph, cudaGraph_t child, Calls& calls) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = child;
  cudaGraphNode_t node = nullptr;
  calls.check(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params), "cudaGraphAddNode");
  return node;
}

}  // namespace

std::unique_ptr<StepLoop> StepLoop::make(const CudaCapturedGraph& step, cudaStream_t stream, Calls& calls) {
  require_body(step.info());
  const RelaxedCapture relaxed(calls);
  calls.check(load_control_kernels(), "cudaFuncGetAttributes");
  MemoryHandle left;
  calls.check(cudaMalloc(left.out(calls.log), sizeof(std::int64_t)), "cudaMalloc");
  EventHandle done;
  calls.check(cudaEventCreateWithFlags(done.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  GraphHandle graph;
  calls.check(cudaGraphCreate(graph.out(calls.log), 0), "cudaGraphCreate");
  cudaGraphConditionalHandle condition = 0;
  CapturedNodes nodes;
  const cudaGraph_t body = add_loop(graph.get(), condition, nodes, calls);
  const cudaGraphNode_t child = add_child(body, step.graph(), calls);
  calls.check(add_count_down(body, child, static_cast<std::int64_t*>(left.get()), condition), "cudaGraphAddNode");
  std::unique_ptr<StepLoop> loop(
      new StepLoop(std::move(graph), std::move(nodes), std::move(left), std::move(done), calls));
  loop->instantiate(stream);
  return loop;
}

StepLoop::~StepLoop() {
  const RelaxedCapture relaxed(log_);
  const cudaError_t code = cudaEventSynchronize(done_.get());
  if (code != cudaSuccess) log_failure(log_, "cudaEventSynchronize", cudaGetErrorName(code));
}

cudaError_t StepLoop::launch(cudaStream_t stream, std::int64_t steps, const char*& call) {
  // The stream alone does not order launches: a handle may name another stream than before, as cudaStreamPerThread does
  // in each thread. CUDA orders the launches of a graph, but the count is set outside of it.
  call = "cudaStreamWaitEvent";
  cudaError_t code = cudaStreamWaitEvent(stream, done_.get(), cudaEventWaitDefault);
  if (code != cudaSuccess) return code;
  call = "cudaLaunchKernelEx";
  code = launch_set_count(stream, left(), steps);
  if (code != cudaSuccess) return code;
  call = "cudaGraphLaunch";
  code = cudaGraphLaunch(exec(), stream);
  if (code != cudaSuccess) return code;
  // Without the event, neither the next launch nor destruction would wait for this one.
  if (cudaEventRecord(done_.get(), stream) != cudaSuccess) {
    (void)cudaGetLastError();
    (void)cudaStreamSynchronize(stream);
  }
  return cudaSuccess;
}

}  // namespace graphsink
