// The device's global state, and what every entry point does first and last.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "executor.h"
#include "memory.h"
#include "objects.h"
#include "simt.h"
#include "user_objects.h"

namespace emu {

inline constexpr std::size_t kMaxAccessPolicyWindow = 1 << 20;  // bytes; cudaDevAttrMaxAccessPolicyWindowSize

struct Kernel {
  KernelSignature signature{};
  int max_dynamic_shared = 48 << 10;
};

struct Fault {
  std::string function;
  int remaining;
  cudaError_t code;
  bool forever;
};

struct Runtime {
  Runtime();
  void set_device_count(int count);

  std::mutex mutex;  // everything below but memory, user objects and kernels, which have their own
  Executor executor;
  Memory memory;
  UserObjects user_objects;
  std::vector<std::unique_ptr<CUstream_st>> legacy;  // one per device that ever answered
  std::unordered_set<cudaStream_t> streams;
  std::unordered_set<cudaEvent_t> events;
  std::unordered_set<cudaGraph_t> graphs;
  std::unordered_set<cudaGraphNode_t> nodes;
  std::unordered_set<cudaGraphExec_t> execs;
  std::unordered_set<void*> blas_handles;
  std::vector<std::unique_ptr<CUlogsCallbackEntry_st>> log_callbacks;
  std::vector<std::string> log_explanations;                       // of the call that is about to return an error
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> default_pools;  // one per device that ever answered
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> pools;
  std::map<void*, GraphMemoryRef> graph_allocations;  // made by a launch and not freed yet
  std::unordered_set<void*> async_freed;              // given to cudaFreeAsync, which is still queued
  std::vector<CaptureRef> captures;
  unsigned long long next_capture = 1;
  unsigned long long next_graph = 1;
  cudaGraphConditionalHandle next_handle = 0x1000;

  std::map<std::string, std::size_t, std::less<>> calls;
  std::size_t total_calls = 0;
  std::vector<Fault> faults;
  std::map<std::string, std::size_t> injected;
  std::string compiler;               // of kernels that are compiled at run time; empty: there is none
  std::set<cudaLibrary_t> libraries;  // that are loaded
  int device_count = 1;
  bool has_peer_access = true;
  std::set<std::pair<int, int>> peers;  // enabled: (device, whose memory)
  bool destroy_ends_capture = true;
  bool checks_addresses = true;
  std::string last_failure;
  bool trace = false;

  std::mutex kernel_mutex;
  std::unordered_map<const void*, Kernel> kernels;
};

// Never destroyed: objects of static storage may still call CUDA at exit.
Runtime& runtime();

enum class When {
  kHealthy,  // refused once the device has failed
  kAlways,   // releases something: done even then, but reports the failure
};

// Counts, traces, and returns an injected fault, cudaErrorNotPermitted in a host function, or the sticky error.
cudaError_t enter_call(Runtime& runtime, const char* name, When when);
// Records the last error of the thread.
cudaError_t leave_call(Runtime& runtime, const char* name, cudaError_t code, When when);
void leave_untracked(Runtime& runtime, const char* name, int code);

// The error log: lines that a call which fails sends to the callbacks, see error_log.cpp.
// Keeps a line that says why the call fails which this thread is in, and returns the code.
cudaError_t explain(cudaError_t code, std::string why);
std::string address_text(const void* address);  // as the log writes it
// The driver function that this call stands for, where it depends on the arguments. Valid for ever.
void use_driver_name(const char* name);
// At the beginning and at the end of each call.
void begin_log();
void end_log(Runtime& runtime);
void log_error(Runtime& runtime, const char* name, cudaError_t code);
void log_driver_error(Runtime& runtime, const char* name, int code);

// While this lives, the thread is in a call: see is_in_call().
class InCall {
 public:
  InCall() noexcept;
  ~InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

// Every runtime entry point is one call of api(): body(runtime, lock) runs with the lock held.
template <class F>
cudaError_t api(const char* name, When when, F&& body) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  cudaError_t code = enter_call(r, name, when);
  if (code == cudaSuccess) code = body(r, lock);
  return leave_call(r, name, code, when);
}
template <class F>
cudaError_t api(const char* name, F&& body) {
  return api(name, When::kHealthy, static_cast<F&&>(body));
}

// Whether a call that may wait for the device is refused because of a capture in progress (and invalidates it).
cudaError_t refuse_unsafe(Runtime& runtime);

// Driver entry points: same checks, no last error.
template <class F>
CUresult driver(const char* name, When when, F&& body) {
  const InCall in_call;
  Runtime& r = runtime();
  Lock lock(r.mutex);
  cudaError_t refused = enter_call(r, name, when);
  if (refused == cudaSuccess) refused = refuse_unsafe(r);
  const CUresult code = refused != cudaSuccess ? static_cast<CUresult>(refused) : body();
  log_driver_error(r, name, code);
  leave_untracked(r, name, code);
  return code;
}

// Address of an implemented driver function, or null.
void* driver_entry(const char* symbol);
// Some of them.
CUresult graph_kernel_node_get_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params);
CUresult func_get_param_info(CUfunction function, size_t index, size_t* offset, size_t* bytes);
CUresult kernel_get_param_info(CUkernel kernel, size_t index, size_t* offset, size_t* bytes);
CUresult func_get_name(const char** name, CUfunction function);
CUresult kernel_get_name(const char** name, CUkernel kernel);

// The symbol of a function of this program, as the compiler mangles it; null where its symbol table does not tell.
// Valid for ever.
const char* symbol_of(const void* function);

cudaError_t last_error_of_thread(bool clear);
bool is_sticky(cudaError_t code);

// Of the calling thread.
int current_device();

// For what has no outcome that a program could go on from.
[[noreturn]] void end_process(const std::string& why);
// Ends the process: the capture rules of this call are there, the call itself is not.
[[noreturn]] void not_implemented(const char* name);

// Streams and capture ------------------------------------------------------------------------------------------------

// Refuses a call that needs a live stream, and invalidates the stream's capture.
cudaError_t refuse_captured(CUstream_st& stream);
// 906 for the legacy stream while a blocking stream captures; does no harm, as to those who only ask.
cudaError_t refuse_legacy(const Runtime& runtime, const CUstream_st& stream);
bool legacy_is_busy(const Runtime& runtime, const CUstream_st& stream);
// Null when the handle is not a stream. The legacy stream is that of the current device.
CUstream_st* find_stream(Runtime& runtime, cudaStream_t handle);
// Whether work may be put on the stream now: 906 for the legacy stream while a blocking stream captures, 901 for an
// invalidated capture.
cudaError_t check_capture(Runtime& runtime, CUstream_st& stream);
void invalidate(Capture& capture);
void reset_capture_mode();  // of the calling thread, to what a new thread has
void invalidate_all(Runtime& runtime);
CaptureRef active_capture(CUstream_st& stream);  // null when not capturing
// The stream is about to go. If the capture began on it, the capture is over and its graph is gone. Else the capture
// goes on, and what the stream added must still be joined.
void leave_capture(Runtime& runtime, CUstream_st& stream);

// Puts work on a live or capturing stream.
cudaError_t issue(Runtime& runtime, Lock& lock, cudaStream_t stream, Work work);
// Live stream only: the operation becomes the stream's last.
void append(Runtime& runtime, CUstream_st& stream, const OpRef& op, std::vector<OpRef> before = {});

// Work and graphs ----------------------------------------------------------------------------------------------------

// `node` and `graph`: the ids that tools show, of a node of a graph.
OpRef make_op(WorkRef work, std::uint64_t node = 0, std::uint32_t graph = 0);
cudaGraphNodeType node_type(const Work& work);
const char* type_name(cudaGraphNodeType type);  // as the driver writes it
cudaError_t check_copy(Runtime& runtime, const CopyWork& copy);
cudaError_t check_fill(Runtime& runtime, const cudaMemsetParamsV2& fill);
// Why a kernel on the device may not be given this address, or one of its arguments; null where it may. Anything that
// is no address of memory known here or of the host's counts as a number.
const char* refuse_address(Runtime& runtime, const void* address, int device);
const char* refuse_arguments(Runtime& runtime, const KernelWork& kernel);
cudaError_t prepare_kernel(Runtime& runtime, const cudaKernelNodeParamsV2& params, KernelWork& kernel);
inline dim3 cluster_of(const cudaLaunchAttributeValue& value) {
  return {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
}
bool is_device_location(const Runtime& runtime, const cudaMemLocation& location);
// Whether there can be a pool of memory with these properties.
bool is_pool(const Runtime& runtime, const cudaMemPoolProps& properties);
// The work of a node with these parameters; allocates memory for an allocation node.
cudaError_t make_work(Runtime& runtime, cudaGraph_t graph, const cudaGraphNodeParams& params, Work& work);
// Whether `pointer` comes from an allocation node, of any graph, launched or not, and `graph` does not free it yet.
bool can_free_in(Runtime& runtime, const CUgraph_st& graph, void* pointer);
bool is_updatable(const Work& work);

// The edge of this index in a call from the node to one of this type, by the data of the call, which may be null.
cudaError_t make_edge(Runtime& runtime, cudaGraph_t graph, cudaGraphNode_t from, const cudaGraphEdgeData* data,
                      std::size_t index, cudaGraphNodeType to, Edge& edge);
// Adds it to those of a node, unless it has one from there.
cudaError_t add_edge(std::vector<Edge>& before, const Edge& edge, std::size_t index);
cudaGraphNode_t add_node(cudaGraph_t graph, WorkRef work, const std::vector<Edge>& before);
bool depends_on(cudaGraphNode_t node, cudaGraphNode_t other);  // also true for the same node
void clone_into(const CUgraph_st& source, CUgraph_st& target);
bool has_conditional(const CUgraph_st& graph);
bool has_memory_nodes(const CUgraph_st& graph);

struct PlanError {
  cudaGraphInstantiateResult result = cudaGraphInstantiateSuccess;
  cudaGraphNode_t node = nullptr;
};
// What a graph may contain depends on where it runs.
PlanRef make_plan(Runtime& runtime, const CUgraph_st& graph, PlanError& error, bool device_launch = false);
// The plan `now`, made from `graph`, with its nodes in the order of `old`. Null where they differ in a way that an exec
// cannot follow; `info` says how.
PlanRef match_plans(const Plan& old, const Plan& now, const CUgraph_st& graph, bool priorities,
                    cudaGraphExecUpdateResultInfo& info);
// Where the nodes of a graph are in its plan.
std::map<cudaGraphNode_t, PlanPath> paths_of(const CUgraph_st& graph);
// A copy in which the node at the path is changed by `edit`.
PlanRef edit_plan(const PlanRef& plan, const PlanPath& path, const std::function<void(PlanNode&)>& edit);
const PlanNode& node_at(const Plan& plan, const PlanPath& path);
// Queues the nodes behind `begin`; returns the operation that ends after all of them. `wanted`: something waits for
// them.
OpRef expand_plan(Runtime& runtime, const PlanRef& plan, const OpRef& begin, const std::shared_ptr<Launch>& launch,
                  bool wanted, std::function<void(const Op&)> record = nullptr);

}  // namespace emu
