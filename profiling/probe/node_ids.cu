#include "node_ids.h"

#include "probe.h"

#if __has_include(<cupti.h>)
#include <cublasLt.h>
#include <cupti.h>
#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "graphs.h"

namespace probe {
namespace {

__global__ void before_loop(int* left, cudaGraphConditionalHandle loop) {
  *left = 5;
  cudaGraphSetConditional(loop, 1);
}
__global__ void in_loop(int* x, cudaGraphConditionalHandle branch) {
  *x += 1;
  cudaGraphSetConditional(branch, 1);
}
__global__ void in_branch(int* x) { *x += 1; }
__global__ void end_of_loop(int* left, cudaGraphConditionalHandle loop) {
  cudaGraphSetConditional(loop, --*left > 0 ? 1u : 0u);
}
__global__ void after_loop(int* x) { *x += 1; }

struct Cupti {
  void* library = nullptr;
  std::string problem;

  Cupti() {
    library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return;
    problem = "libcupti.so.13 is neither on the library path";
    for (const void* function :
         {reinterpret_cast<const void*>(&cudaGetDeviceCount), reinterpret_cast<const void*>(&cublasLtCreate)}) {
      Dl_info found = {};
      if (dladdr(function, &found) == 0 || found.dli_fname == nullptr) continue;
      const std::string file = found.dli_fname, folder = file.substr(0, file.rfind('/') + 1);
      if (folder.empty()) continue;
      library = dlopen((folder + "libcupti.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) return;
      problem += ", nor in " + folder;
    }
  }
  template <class F>
  F function(const char* name) const {
    F found = reinterpret_cast<F>(dlsym(library, name));
    if (found == nullptr) say("STOPPED at", "CUPTI has no %s", name), _exit(3);
    return found;
  }
};
#define CUPTI_FUNCTION(cupti, name) (cupti).function<decltype(&name)>(#name)

// An id as "graph:node", because the upper half is the same for the nodes of a graph.
std::string text_of(std::uint64_t id) { return std::to_string(id >> 32) + ":" + std::to_string(id & 0xffffffffu); }

// Notes of CUPTI's callbacks, on threads of its own and on those that make graphs.
struct Told {
  std::mutex mutex;
  decltype(&cuptiGetGraphNodeId) node_id = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  std::map<std::uint64_t, std::uint64_t> originals;  // originals of clones
  std::vector<std::uint64_t> created;
  int failed = 0;  // callbacks whose nodes have no id
  std::map<std::pair<std::string, std::uint64_t>, std::pair<int, std::uint32_t>> kernels;  // count, graph
};
Told& told() {
  static Told* const all = new Told;  // CUPTI may call until the process ends
  return *all;
}

void CUPTIAPI on_node(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  const auto* resource = static_cast<const CUpti_ResourceData*>(data);
  const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
  std::uint64_t node = 0, original = 0;
  const std::lock_guard lock(told().mutex);
  const bool is_clone = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  if (told().node_id(graph->node, &node) != CUPTI_SUCCESS ||
      (is_clone && told().node_id(graph->originalNode, &original) != CUPTI_SUCCESS)) {
    ++told().failed;
  } else if (is_clone) {
    told().originals[node] = original;
  } else {
    told().created.push_back(node);
  }
}
void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *size = 1 << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *most_records = 0;
}
void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(told().mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && told().next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    auto& [count, graph] = told().kernels[{kernel.name != nullptr ? kernel.name : "?", kernel.graphNodeId}];
    ++count, graph = kernel.graphId;
  }
  std::free(buffer);
}

// Adds a conditional node to what a stream captures, and returns its body.
cudaGraph_t add_conditional(cudaStream_t s, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, &nodes, &edges, &count));
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  NEED(cudaGraphAddNode(&node, graph, nodes, edges, count, &params));
  NEED(cudaStreamUpdateCaptureDependencies(s, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
  return params.conditional.phGraph_out[0];
}
cudaGraphConditionalHandle handle_for(cudaGraph_t graph) {
  cudaGraphConditionalHandle handle;
  NEED(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  return handle;
}

struct Loop {
  cudaGraph_t graph = nullptr, body = nullptr, branch = nullptr;
};

// A WHILE node whose body has an IF node.
Loop capture_loop(int* left, int* x) {
  Loop made;
  cudaStream_t s = stream(), inner = stream(), innermost = stream();
  NEED(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status;
  NEED(cudaStreamGetCaptureInfo(s, &status, nullptr, &made.graph, nullptr, nullptr, nullptr));
  cudaGraphConditionalHandle loop = handle_for(made.graph);
  before_loop<<<1, 1, 0, s>>>(left, loop);
  made.body = add_conditional(s, loop, cudaGraphCondTypeWhile);
  NEED(cudaStreamBeginCaptureToGraph(inner, made.body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  cudaGraphConditionalHandle branch = handle_for(made.body);
  in_loop<<<1, 1, 0, inner>>>(x, branch);
  made.branch = add_conditional(inner, branch, cudaGraphCondTypeIf);
  NEED(cudaStreamBeginCaptureToGraph(innermost, made.branch, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  in_branch<<<1, 1, 0, innermost>>>(x);
  cudaGraph_t ended = nullptr;
  NEED(cudaStreamEndCapture(innermost, &ended));
  end_of_loop<<<1, 1, 0, inner>>>(left, loop);
  NEED(cudaStreamEndCapture(inner, &ended));
  after_loop<<<1, 1, 0, s>>>(x);
  NEED(cudaStreamEndCapture(s, &made.graph));
  return made;
}

void need_cupti(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  say("STOPPED at", "%s: %d", what, int(result));
  _exit(3);
}

// Says by which names the ids of the nodes are known, and adds them.
void say_ids(const char* when, cudaGraph_t graph, const char* where, std::map<std::uint64_t, std::string>& names) {
  std::string all;
  for (cudaGraphNode_t node : nodes_of(graph)) {
    std::uint64_t id = 0;
    CUptiResult result = told().node_id(node, &id);
    const std::string name = name_of(node) + " of the " + where;
    all += (all.empty() ? "" : ", ") + (result == CUPTI_SUCCESS ? text_of(id) : "no id") + " " + name;
    if (result == CUPTI_SUCCESS) names[id] = name;
  }
  say(when, "%s", all.c_str());
}

}  // namespace

void ids_in_bodies() {
  Cupti cupti;
  if (cupti.library == nullptr) return say("SKIPPED", "%s", cupti.problem.c_str());
  told().node_id = CUPTI_FUNCTION(cupti, cuptiGetGraphNodeId);
  told().next_record = CUPTI_FUNCTION(cupti, cuptiActivityGetNextRecord);
  CUpti_SubscriberHandle subscriber;
  need_cupti(CUPTI_FUNCTION(cupti, cuptiSubscribe)(&subscriber, on_node, nullptr), "cuptiSubscribe");
  for (CUpti_CallbackId id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
    need_cupti(CUPTI_FUNCTION(cupti, cuptiEnableCallback)(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id),
               "cuptiEnableCallback");
  need_cupti(CUPTI_FUNCTION(cupti, cuptiActivityRegisterCallbacks)(give_buffer, take_buffer),
             "cuptiActivityRegisterCallbacks");
  need_cupti(CUPTI_FUNCTION(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");

  int *left = number(0), *x = number(0);
  Loop loop = capture_loop(left, x);
  std::map<std::uint64_t, std::string> names;
  for (const char* when : {"captured", "instantiated"}) {
    cudaGraphExec_t exec = nullptr;
    if (std::strcmp(when, "instantiated") == 0) exec = instantiate(loop.graph);
    say_ids((std::string(when) + ", graph").c_str(), loop.graph, "graph", names);
    say_ids((std::string(when) + ", body").c_str(), loop.body, "body", names);
    say_ids((std::string(when) + ", branch").c_str(), loop.branch, "branch", names);
    if (exec == nullptr) continue;
    cudaStream_t s = stream();
    for (int i = 0; i < 2; ++i) NEED(cudaGraphLaunch(exec, s));
    NEED(cudaStreamSynchronize(s));
    say("sum of 2 launches", "%d of 22", get(x));
  }
  need_cupti(CUPTI_FUNCTION(cupti, cuptiActivityFlushAll)(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");

  const std::lock_guard lock(told().mutex);
  say("callbacks", "%zu created, %zu cloned, %d of nodes without an id", told().created.size(), told().originals.size(),
      told().failed);
  for (const auto& [node, original] : told().originals)
    say("  clone", "%s of %s", text_of(node).c_str(), text_of(original).c_str());
  for (const auto& [kernel, seen] : told().kernels) {
    const auto& [name, id] = kernel;
    std::string chain = text_of(id);
    std::uint64_t node = id;
    for (int i = 0; i < 8 && !names.contains(node) && told().originals.contains(node); ++i)
      chain += " -> " + text_of(node = told().originals[node]);
    const bool was_created = std::find(told().created.begin(), told().created.end(), node) != told().created.end();
    const char* end = names.contains(node) ? names[node].c_str() : was_created ? "a created node" : "nothing known";
    say(name.substr(0, 40).c_str(), "%d records, graph %u, node %s = %s", seen.first, seen.second, chain.c_str(), end);
  }
}

}  // namespace probe
#else
namespace probe {
void ids_in_bodies() { say("SKIPPED", "it was built without cupti.h"); }
}  // namespace probe
#endif
