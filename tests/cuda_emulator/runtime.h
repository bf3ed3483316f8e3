// The device's global state, and what every entry point does first and last.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "executor.h"
#include "memory.h"
#include "objects.h"
#include "simt.h"

namespace emu {

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

  std::mutex mutex;  // everything below but memory and kernels, which have their own
  Executor executor;
  Memory memory;
  CUstream_st legacy;
  std::unordered_set<cudaStream_t> streams;
  std::unordered_set<cudaEvent_t> events;
  std::unordered_set<cudaGraph_t> graphs;
  std::unordered_set<cudaGraphNode_t> nodes;
  std::unordered_set<cudaGraphExec_t> execs;
  std::unordered_set<void*> blas_handles;
  std::vector<CaptureRef> captures;
  unsigned long long next_capture = 1;
  cudaGraphConditionalHandle next_handle = 0x1000;

  std::map<std::string, std::size_t, std::less<>> calls;
  std::size_t total_calls = 0;
  std::vector<Fault> faults;
  std::map<std::string, std::size_t> injected;
  int device_count = 1;
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

// Every runtime entry point is one call of api(): body(runtime, lock) runs with the lock held.
template <class F>
cudaError_t api(const char* name, When when, F&& body) {
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
  Runtime& r = runtime();
  Lock lock(r.mutex);
  cudaError_t refused = enter_call(r, name, when);
  if (refused == cudaSuccess) refused = refuse_unsafe(r);
  const CUresult code = refused != cudaSuccess ? static_cast<CUresult>(refused) : body();
  leave_untracked(r, name, code);
  return code;
}

// Address of an implemented driver function, or null.
void* driver_entry(const char* symbol);

cudaError_t last_error_of_thread(bool clear);
bool is_sticky(cudaError_t code);

// Streams and capture ------------------------------------------------------------------------------------------------

// Null when the handle is not a stream.
CUstream_st* find_stream(Runtime& runtime, cudaStream_t handle);
// Whether work may be put on the stream now: 906 for the legacy stream while a blocking stream captures, 901 for an
// invalidated capture.
cudaError_t check_capture(Runtime& runtime, CUstream_st& stream);
void invalidate(Capture& capture);
void invalidate_all(Runtime& runtime);
CaptureRef active_capture(CUstream_st& stream);  // null when not capturing

// Puts work on a live or capturing stream.
cudaError_t issue(Runtime& runtime, Lock& lock, cudaStream_t stream, Work work, bool programmatic = false);
// Live stream only: the operation becomes the stream's last.
void append(Runtime& runtime, CUstream_st& stream, const OpRef& op, std::vector<OpRef> before = {});

// Work and graphs ----------------------------------------------------------------------------------------------------

OpRef make_op(WorkRef work);
cudaGraphNodeType node_type(const Work& work);
cudaError_t check_copy(Runtime& runtime, const CopyWork& copy);
cudaError_t check_fill(Runtime& runtime, const cudaMemsetParamsV2& fill);
cudaError_t prepare_kernel(Runtime& runtime, const cudaKernelNodeParamsV2& params, KernelWork& kernel);

cudaGraphNode_t add_node(cudaGraph_t graph, WorkRef work, const std::vector<Edge>& before);
bool depends_on(cudaGraphNode_t node, cudaGraphNode_t other);  // also true for the same node
void clone_into(const CUgraph_st& source, CUgraph_st& target);
bool has_conditional(const CUgraph_st& graph);

struct PlanError {
  cudaGraphInstantiateResult result = cudaGraphInstantiateSuccess;
  cudaGraphNode_t node = nullptr;
};
PlanRef make_plan(Runtime& runtime, const CUgraph_st& graph, PlanError& error);
// Queues the nodes behind `begin`; returns the operation that ends after all of them. `wanted`: something waits for
// them.
OpRef expand_plan(Runtime& runtime, const PlanRef& plan, const OpRef& begin, const std::shared_ptr<Launch>& launch,
                  bool wanted);

}  // namespace emu
