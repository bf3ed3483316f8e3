// What cases are made of: streams, memory, kernels and nodes. A call that fails here ends the case.
#pragma once

#include "conformance/conformance.h"

namespace conformance {

inline constexpr auto kInvalid = cudaErrorInvalidValue;
inline constexpr auto kIf = cudaGraphCondTypeIf;
inline constexpr auto kWhile = cudaGraphCondTypeWhile;
inline constexpr auto kSwitch = cudaGraphCondTypeSwitch;

// The answer of a capture that ends as it should.
inline Answer capture_ends() { return returns("cudaStreamEndCapture", cudaSuccess, Status::kNone); }

// Kernels, by launchers and by address. The same for both compilers.
// Before anything else here, so that no capture is the first to use a kernel.
cudaError_t load_kernels();
cudaError_t launch_set(cudaStream_t stream, int* target, int value);
cudaError_t launch_add(cudaStream_t stream, int* target, int value);
// In blocks of so many threads.
cudaError_t launch_with_threads(cudaStream_t stream, int* target, unsigned threads);
// Eight blocks in clusters of `cluster`, or with no word of clusters where that is 0; *target becomes the number of
// blocks of a cluster.
cudaError_t launch_cluster(cudaStream_t stream, int* target, unsigned cluster);
cudaError_t launch_add_programmatic(cudaStream_t stream, int* target, int value);
cudaError_t launch_cooperative(cudaStream_t stream, int* target, int value);
// ++*counter, and the condition becomes *counter < limit.
cudaError_t launch_step(cudaStream_t stream, int* counter, int limit, cudaGraphConditionalHandle handle);
// The condition becomes *value.
cudaError_t launch_decide(cudaStream_t stream, const int* value, cudaGraphConditionalHandle handle);
cudaError_t launch_trap(cudaStream_t stream);
void* set_address();
void* add_address();

cudaStream_t make_stream(Recorder& r, unsigned flags = cudaStreamNonBlocking);
cudaEvent_t make_event(Recorder& r, unsigned flags = cudaEventDisableTiming);
// A device integer. No stream that is not ordered with the legacy one can come too early for its value.
int* make_int(Recorder& r, int value = 0);
int read_int(Recorder& r, const int* source);
// A pinned integer.
int* make_pinned(Recorder& r, int value = 0);

// A stream that captures, and is watched.
cudaStream_t make_capturing(Recorder& r, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal,
                            unsigned flags = cudaStreamNonBlocking);
void begin(Recorder& r, cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal);
// Ends a capture of the set-up.
cudaGraph_t end(Recorder& r, cudaStream_t stream);
// Ends a capture and records the code.
cudaGraph_t record_end(Recorder& r, cudaStream_t stream);
// `to` goes on after what `from` has now.
void join(Recorder& r, cudaStream_t from, cudaStream_t to);

cudaGraph_t make_graph(Recorder& r);
cudaGraphExec_t instantiate(Recorder& r, cudaGraph_t graph);
void launch(Recorder& r, cudaGraphExec_t exec, cudaStream_t stream, int times = 1);
// Records the code of cudaGraphInstantiateWithParams and its result.
cudaGraphExec_t record_instantiate(Recorder& r, cudaGraph_t graph, unsigned long long flags = 0);

// Parameters of nodes; those of kernels point at `arguments`, which must outlive the call they are given to.
struct KernelArguments {
  int* target;
  int value;
  void* pointers[2];
  KernelArguments(int* target, int value) : target(target), value(value), pointers{&this->target, &this->value} {}
  KernelArguments(const KernelArguments&) = delete;
};
cudaGraphNodeParams kernel_params(void* function, KernelArguments& arguments);
cudaGraphNodeParams copy_params(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind);
cudaGraphNodeParams fill_params(void* target, unsigned value, std::size_t words, std::size_t rows = 1);
cudaGraphNodeParams host_params(cudaHostFn_t function, void* data);
cudaGraphNodeParams empty_params();
cudaGraphNodeParams event_record_params(cudaEvent_t event);
cudaGraphNodeParams event_wait_params(cudaEvent_t event);
cudaGraphNodeParams alloc_params(std::size_t bytes);
cudaGraphNodeParams free_params(void* pointer);
cudaGraphNodeParams child_params(cudaGraph_t child, cudaGraphChildGraphNodeOwnership ownership);
cudaGraphNodeParams conditional_params(cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                       unsigned size);

using Nodes = std::vector<cudaGraphNode_t>;
// cudaGraphAddNode with ordinary edges.
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, cudaGraphNodeParams& params, const Nodes& before = {});
// The same in the set-up.
cudaGraphNode_t add(Recorder& r, cudaGraph_t graph, cudaGraphNodeParams params, const Nodes& before = {});
cudaGraphNode_t add_set(Recorder& r, cudaGraph_t graph, int* target, int value, const Nodes& before = {});
cudaGraphNode_t add_add(Recorder& r, cudaGraph_t graph, int* target, int value, const Nodes& before = {});

std::size_t node_count(Recorder& r, cudaGraph_t graph);
std::size_t edge_count(Recorder& r, cudaGraph_t graph);
// The graph's first node.
cudaGraphNode_t first_node(Recorder& r, cudaGraph_t graph);
cudaGraphNodeType type_of(Recorder& r, cudaGraphNode_t node);

// The graph a stream captures into.
cudaGraph_t captured_graph(Recorder& r, cudaStream_t stream);
cudaGraphConditionalHandle make_handle(Recorder& r, cudaGraph_t graph, unsigned value = 0,
                                       unsigned flags = cudaGraphCondAssignDefault);
// A conditional node and its bodies.
struct Conditional {
  cudaGraphNode_t node;
  std::vector<cudaGraph_t> bodies;
};
Conditional add_conditional(Recorder& r, cudaGraph_t graph, cudaGraphConditionalHandle handle,
                            cudaGraphConditionalNodeType type, unsigned size, const Nodes& before = {});
// Captures into a body what `fill` puts on a stream.
void capture_into(Recorder& r, cudaGraph_t body, const std::function<void(cudaStream_t)>& fill);

}  // namespace conformance
