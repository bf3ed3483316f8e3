// A library that is injected into a program (CUDA_INJECTION64_PATH) and writes what ran on the GPU, where Nsight
// Systems is not at hand. profiling/nsys.sh uses it. In the environment of the program:
//
//   GRAPHSINK_KERNEL_TIMES        the file to write; without it nothing is recorded
//   GRAPHSINK_KERNEL_TIMES_LEVEL  node (default): kernels, copies and fills, those of graphs with the ids of their
//                                 nodes, which slows down the launches of graphs
//                                 graph: one time for each launch of a graph
//                                 timeline: as node, and when each of them began and ended (profiling/overlap.py)
//
// profiling/kernel_table.py reads the file. Each line is a JSON object, with sums over `count` times:
//
//   {"kind": "kernel", "node": 17, "name": "scale(float*)", "count": 3, "ns": 5120, "bytes": 0}
//       or memcpy or memset, which have bytes; node 0: not in a graph
//   {"kind": "graph", "graph": 2, "count": 100, "ns": 51200}
//       launches of a graph
//   {"kind": "clone", "node": 17, "original": 5}
//       which node was copied from which
//   {"kind": "span", "node": 17, "name": "scale(float*)", "start": 5000, "end": 6200}
//       one of them, in nanoseconds
//   {"kind": "dropped", "count": 12}
//       records that were lost
#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

struct Sum {
  std::uint64_t count = 0, nanoseconds = 0, bytes = 0;
};

struct Span {
  std::uint64_t node = 0;
  std::string name;
  std::uint64_t start = 0, end = 0;
};

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : symbol;
}

bool succeeds(CUptiResult code, const char* call) {
  if (code == CUPTI_SUCCESS) return true;
  const char* text = "";
  (void)cuptiGetResultString(code, &text);
  std::fprintf(stderr, "kernel_times: %s fails: %s\n", call, text);
  return false;
}

// Threads: CUPTI hands over records on a thread of its own, and calls back on those that make graphs.
class Recorder {
 public:
  // Never destroyed: CUPTI may call back until the process ends.
  static Recorder& instance() {
    static Recorder* const recorder = new Recorder;
    return *recorder;
  }

  bool start(std::string path, bool graphs_only, bool keeps_spans) {
    path_ = std::move(path);
    keeps_spans_ = keeps_spans;
    if (!succeeds(cuptiSubscribe(&subscriber_, on_clone, this), "cuptiSubscribe") ||
        !succeeds(cuptiEnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED),
                  "cuptiEnableCallback") ||
        !succeeds(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks")) {
      return false;
    }
    if (graphs_only) return enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    return enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) && enable(CUPTI_ACTIVITY_KIND_MEMCPY) &&
           enable(CUPTI_ACTIVITY_KIND_MEMSET);
  }

  // At the end of the process.
  void finish() {
    succeeds(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    const std::lock_guard lock(mutex_);
    std::ofstream file(path_);
    for (const auto& [what, sum] : work_) {
      const auto& [kind, node, name] = what;
      write(file, {{"kind", kind},
                   {"node", node},
                   {"name", name},
                   {"count", sum.count},
                   {"ns", sum.nanoseconds},
                   {"bytes", sum.bytes}});
    }
    for (const auto& [graph, sum] : launches_) {
      write(file, {{"kind", "graph"}, {"graph", graph}, {"count", sum.count}, {"ns", sum.nanoseconds}});
    }
    for (const auto& [node, original] : originals_) {
      write(file, {{"kind", "clone"}, {"node", node}, {"original", original}});
    }
    for (const Span& span : spans_) {
      write(file,
            {{"kind", "span"}, {"node", span.node}, {"name", span.name}, {"start", span.start}, {"end", span.end}});
    }
    if (dropped_ > 0) write(file, {{"kind", "dropped"}, {"count", dropped_}});
    if (!file.flush()) std::fprintf(stderr, "kernel_times: %s cannot be written\n", path_.c_str());
  }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

  // Names may contain any bytes, but JSON must be UTF-8. So invalid bytes are replaced.
  static void write(std::ostream& file, const Json& line) {
    file << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }

  static bool enable(CUpti_ActivityKind kind) { return succeeds(cuptiActivityEnable(kind), "cuptiActivityEnable"); }

  static void CUPTIAPI on_clone(void* self, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
    const auto* resource = static_cast<const CUpti_ResourceData*>(data);
    const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
    std::uint64_t node = 0, original = 0;
    if (cuptiGetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS ||
        cuptiGetGraphNodeId(graph->originalNode, &original) != CUPTI_SUCCESS) {
      return;
    }
    auto& recorder = *static_cast<Recorder*>(self);
    const std::lock_guard lock(recorder.mutex_);
    recorder.originals_[node] = original;
  }

  // CUPTI asks for buffers aligned to 8 bytes.
  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::malloc(kBufferBytes));
    *size = *buffer ? kBufferBytes : 0;
    *most_records = 0;
  }
  static void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    const std::unique_ptr<std::uint8_t, void (*)(void*)> owner(buffer, std::free);
    Recorder& recorder = Recorder::instance();
    const std::lock_guard lock(recorder.mutex_);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) recorder.add(*record);
    std::size_t dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) recorder.dropped_ += dropped;
  }

  void add(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
        return add_work("kernel", kernel.name ? demangled(kernel.name) : "without a name", kernel, 0);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        return add_work("memcpy", "memcpy", copy, copy.bytes);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        return add_work("memset", "memset", fill, fill.bytes);
      }
      case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
        const auto& launch = reinterpret_cast<const CUpti_ActivityGraphTrace2&>(record);
        return add_to(launches_[launch.graphId], launch.start, launch.end, 0);
      }
      default:
        return;
    }
  }
  template <class Record>
  void add_work(const char* kind, std::string name, const Record& record, std::uint64_t bytes) {
    if (keeps_spans_) spans_.push_back({record.graphNodeId, name, record.start, record.end});
    add_to(work_[{kind, record.graphNodeId, std::move(name)}], record.start, record.end, bytes);
  }
  static void add_to(Sum& sum, std::uint64_t start, std::uint64_t end, std::uint64_t bytes) {
    ++sum.count;
    sum.nanoseconds += end - start;
    sum.bytes += bytes;
  }

  std::string path_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::uint64_t, std::string>, Sum> work_;  // by kind, node and name
  std::map<std::uint32_t, Sum> launches_;                                    // by graph
  std::map<std::uint64_t, std::uint64_t> originals_;
  std::uint64_t dropped_ = 0;
  bool keeps_spans_ = false;
  std::vector<Span> spans_;
};

}  // namespace

// Called by the driver when it starts. Returns 1 for success.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  const char* path = std::getenv("GRAPHSINK_KERNEL_TIMES");
  if (!path) return 1;
  const char* named = std::getenv("GRAPHSINK_KERNEL_TIMES_LEVEL");
  const std::string_view level = named ? named : "node";
  if (!Recorder::instance().start(path, level == "graph", level == "timeline")) return 0;
  std::atexit([] { Recorder::instance().finish(); });
  return 1;
}
