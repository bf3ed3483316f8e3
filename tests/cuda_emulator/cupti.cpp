// The part of CUPTI that shows what ran: activity records of kernels, copies, fills and launches of graphs, and the
// callback that tells which node was copied from which. One subscriber. Like CUPTI's own functions these may be called
// in callbacks and before the first call of CUDA, so nothing here takes the lock of the runtime.
#if __has_include(<cupti.h>)
#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "profiler.h"
#include "runtime.h"

struct CUpti_Subscriber_st {
  CUpti_CallbackFunc callback = nullptr;
  void* data = nullptr;
  std::set<CUpti_CallbackId> resources;  // enabled callbacks of the domain of resources
};

namespace emu {
namespace {

using Record =
    std::variant<CUpti_ActivityKernel10, CUpti_ActivityMemcpy6, CUpti_ActivityMemset4, CUpti_ActivityGraphTrace2>;

struct Profiler {
  std::mutex mutex;
  CUpti_Subscriber_st subscriber;
  std::set<CUpti_ActivityKind> enabled;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::vector<Record> records;
};

// Never destroyed: the device may run until the process ends.
Profiler& profiler() {
  static Profiler* const instance = new Profiler;
  return *instance;
}

bool is_enabled(CUpti_ActivityKind kind) {
  Profiler& p = profiler();
  const std::lock_guard lock(p.mutex);
  return p.enabled.contains(kind);
}

std::uint64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

template <class T>
void add(T record, const Op& op, std::uint64_t node, std::uint32_t graph) {
  record.start = nanoseconds(op.began);
  record.end = nanoseconds(op.finished);
  record.graphNodeId = node;
  record.graphId = graph;
  Profiler& p = profiler();
  const std::lock_guard lock(p.mutex);
  p.records.emplace_back(record);
}

CUpti_ActivityKernel10 record_of_kernel(const KernelWork& kernel) {
  CUpti_ActivityKernel10 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = kernel.native ? kernel.native_name : symbol_of(kernel.function);
  if (record.name == nullptr) record.name = "kernel";
  return record;
}

CUpti_ActivityMemcpy6 record_of_copy(const CopyWork& copy) {
  CUpti_ActivityMemcpy6 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.bytes = copy.bytes * copy.rows;
  return record;
}

CUpti_ActivityMemset4 record_of_fill(const FillWork& fill) {
  CUpti_ActivityMemset4 record = {};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.bytes = fill.params.width * fill.params.elementSize * fill.params.height;
  return record;
}

// During the callback about a copy, the handle of the copy.
thread_local std::uint64_t announced_clone = 0;
CUgraphNode clone_handle() { return reinterpret_cast<CUgraphNode>(&announced_clone); }

void announce(const CUpti_Subscriber_st& subscriber, const CUgraph_st& graph, const Plan& plan) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    CUgraphNode_st& original = *graph.nodes[i];
    announced_clone = plan.nodes[i].id;
    CUpti_GraphData data = {};
    data.originalGraph = original.graph;
    data.originalNode = &original;
    data.node = clone_handle();
    data.nodeType = static_cast<CUgraphNodeType>(original.type);
    CUpti_ResourceData resource = {};
    resource.resourceDescriptor = &data;
    subscriber.callback(subscriber.data, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &resource);
    for (std::size_t b = 0; b < original.bodies.size(); ++b) {
      announce(subscriber, *original.bodies[b], *plan.nodes[i].bodies[b]);
    }
  }
}

}  // namespace

std::uint64_t new_node_id() {
  static std::atomic<std::uint64_t> last = std::uint64_t{1} << 32;  // ids need 64 bits, as those of CUDA do
  return ++last;
}

std::uint32_t new_graph_id() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

void load_injection() {
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  void* entry = library == nullptr ? nullptr : dlsym(library, "InitializeInjection");
  if (entry != nullptr) {
    reinterpret_cast<int (*)()>(entry)();
  } else {
    std::fprintf(stderr, "cuda emulator: CUDA_INJECTION64_PATH: %s\n", dlerror());
  }
}

void announce_clones(const CUgraph_st& graph, const Plan& plan) {
  CUpti_Subscriber_st subscriber;
  {
    Profiler& p = profiler();
    const std::lock_guard lock(p.mutex);
    if (!p.subscriber.resources.contains(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)) return;
    subscriber = p.subscriber;
  }
  announce(subscriber, graph, plan);
}

std::function<void(const Op&)> record_of(const WorkRef& work, std::uint64_t node, std::uint32_t graph) {
  const auto recorder = [&](const auto& record) -> std::function<void(const Op&)> {
    if (!is_enabled(record.kind)) return nullptr;
    return [record, node, graph](const Op& op) { add(record, op, node, graph); };
  };
  if (const auto* kernel = std::get_if<KernelWork>(work.get())) return recorder(record_of_kernel(*kernel));
  if (const auto* copy = std::get_if<CopyWork>(work.get())) return recorder(record_of_copy(*copy));
  if (const auto* fill = std::get_if<FillWork>(work.get())) return recorder(record_of_fill(*fill));
  return nullptr;
}

std::function<void(const Op&)> record_of_launch(const OpRef& begin, std::uint32_t graph) {
  if (!is_enabled(CUPTI_ACTIVITY_KIND_GRAPH_TRACE)) return nullptr;
  return [begin, graph](const Op& end) {
    CUpti_ActivityGraphTrace2 record = {};
    record.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
    record.start = nanoseconds(begin->finished);
    record.end = nanoseconds(end.finished);
    record.graphId = graph;
    Profiler& p = profiler();
    const std::lock_guard lock(p.mutex);
    p.records.emplace_back(record);
  };
}

}  // namespace emu

using emu::profiler;

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* data) {
  if (subscriber == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(profiler().mutex);
  if (profiler().subscriber.callback != nullptr) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  profiler().subscriber = {callback, data, {}};
  *subscriber = &profiler().subscriber;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (subscriber != &profiler().subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(profiler().mutex);
  profiler().subscriber = {};
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
  if (subscriber != &profiler().subscriber || domain != CUPTI_CB_DOMAIN_RESOURCE) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(profiler().mutex);
  if (enable != 0) {
    subscriber->resources.insert(id);
  } else {
    subscriber->resources.erase(id);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const std::lock_guard lock(profiler().mutex);
  profiler().request = request;
  profiler().complete = complete;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(profiler().mutex);
  profiler().enabled.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(profiler().mutex);
  profiler().enabled.erase(kind);
  return CUPTI_SUCCESS;
}

// Each buffer gets as many records as have room in it.
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  emu::Profiler& p = profiler();
  std::vector<emu::Record> records;
  {
    const std::lock_guard lock(p.mutex);
    if (p.request == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
    records.swap(p.records);
  }
  std::size_t next = 0;
  while (next < records.size()) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0, used = 0;
    p.request(&buffer, &size, &most);
    if (buffer == nullptr) return CUPTI_ERROR_OUT_OF_MEMORY;
    for (; next < records.size(); ++next) {
      const bool has_room = std::visit(
          [&](const auto& record) {
            if (used + sizeof record > size) return false;
            std::memcpy(buffer + used, &record, sizeof record);
            used += sizeof record;
            return true;
          },
          records[next]);
      if (!has_room) break;
    }
    if (used == 0) return CUPTI_ERROR_INVALID_PARAMETER;
    p.complete(nullptr, 0, buffer, size, used);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  const auto size_of = [](const CUpti_Activity& activity) {
    switch (activity.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
      case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
      default:
        return sizeof(CUpti_ActivityGraphTrace2);
    }
  };
  std::uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + size_of(**record);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphNodeId(CUgraphNode node, std::uint64_t* id) {
  if (node == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = node == emu::clone_handle() ? emu::announced_clone : node->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graph, std::uint32_t* id) {
  if (graph == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = graph->id;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "an error of CUPTI on the software device";
  return CUPTI_SUCCESS;
}

#else  // a toolkit without CUPTI: nobody asks

#include "profiler.h"

namespace emu {

std::uint64_t new_node_id() { return 0; }
std::uint32_t new_graph_id() { return 0; }
void load_injection() {}
void announce_clones(const CUgraph_st&, const Plan&) {}
std::function<void(const Op&)> record_of(const WorkRef&, std::uint64_t, std::uint32_t) { return nullptr; }
std::function<void(const Op&)> record_of_launch(const OpRef&, std::uint32_t) { return nullptr; }

}  // namespace emu

#endif
