// Parameters of nodes.
#include "conformance/scene.h"

namespace conformance {
namespace {

cudaGraphNodeParams of_type(cudaGraphNodeType type) {
  cudaGraphNodeParams params = {};
  params.type = type;
  return params;
}

}  // namespace

cudaGraphNodeParams kernel_params(void* function, KernelArguments& arguments) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeKernel);
  params.kernel.func = function;
  params.kernel.gridDim = params.kernel.blockDim = dim3(1);
  params.kernel.kernelParams = arguments.pointers;
  return params;
}

cudaGraphNodeParams copy_params(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeMemcpy);
  params.memcpy.copyParams.srcPtr = {const_cast<void*>(source), bytes, bytes, 1};
  params.memcpy.copyParams.dstPtr = {target, bytes, bytes, 1};
  params.memcpy.copyParams.extent = {bytes, 1, 1};
  params.memcpy.copyParams.kind = kind;
  return params;
}

cudaGraphNodeParams fill_params(void* target, unsigned value, std::size_t words, std::size_t rows) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeMemset);
  params.memset = {target, words * sizeof(int), value, sizeof(int), words, rows};
  return params;
}

cudaGraphNodeParams host_params(cudaHostFn_t function, void* data) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeHost);
  params.host.fn = function;
  params.host.userData = data;
  return params;
}

cudaGraphNodeParams empty_params() { return of_type(cudaGraphNodeTypeEmpty); }

cudaGraphNodeParams event_record_params(cudaEvent_t event) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeEventRecord);
  params.eventRecord.event = event;
  return params;
}

cudaGraphNodeParams event_wait_params(cudaEvent_t event) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeWaitEvent);
  params.eventWait.event = event;
  return params;
}

cudaGraphNodeParams alloc_params(std::size_t bytes) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeMemAlloc);
  params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
  params.alloc.bytesize = bytes;
  return params;
}

cudaGraphNodeParams free_params(void* pointer) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeMemFree);
  params.free.dptr = pointer;
  return params;
}

cudaGraphNodeParams child_params(cudaGraph_t child, cudaGraphChildGraphNodeOwnership ownership) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeGraph);
  params.graph.graph = child;
  params.graph.ownership = ownership;
  return params;
}

cudaGraphNodeParams conditional_params(cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                       unsigned size) {
  cudaGraphNodeParams params = of_type(cudaGraphNodeTypeConditional);
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  return params;
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, cudaGraphNodeParams& params, const Nodes& before) {
  return cudaGraphAddNode(node, graph, before.data(), nullptr, before.size(), &params);
}

cudaGraphNode_t add(Recorder& r, cudaGraph_t graph, cudaGraphNodeParams params, const Nodes& before) {
  cudaGraphNode_t node = nullptr;
  r.need("cudaGraphAddNode", add_node(&node, graph, params, before));
  return node;
}

cudaGraphNode_t add_set(Recorder& r, cudaGraph_t graph, int* target, int value, const Nodes& before) {
  KernelArguments arguments(target, value);
  return add(r, graph, kernel_params(set_address(), arguments), before);
}

cudaGraphNode_t add_add(Recorder& r, cudaGraph_t graph, int* target, int value, const Nodes& before) {
  KernelArguments arguments(target, value);
  return add(r, graph, kernel_params(add_address(), arguments), before);
}

}  // namespace conformance
