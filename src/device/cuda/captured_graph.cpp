#include "device/cuda/captured_graph.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/number_text.h"
#include "device/cuda/arguments.h"
#include "device/cuda/kernel_names.h"
#include "device/cuda/profiler_ids.h"

namespace graphsink {
namespace {

// Lists the node types that driver_types.h allows for the body graphs of cudaConditionalNodeParams. CUDA itself reports
// only "invalid value", and only when the graph is instantiated.
bool may_be_in_body(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeMemset:
    case cudaGraphNodeTypeEmpty:
    case cudaGraphNodeTypeGraph:
    case cudaGraphNodeTypeConditional:
      return true;
    default:
      return false;
  }
}

// Estimates of the device memory of a graph and of each node, from an H200; see CaptureInfo::bytes.
constexpr std::size_t kBytesPerGraph = 112 * 1024, kBytesPerNode = 2560;

void add(CaptureInfo& info, cudaGraphNodeType type) {
  info.bytes += kBytesPerNode;
  switch (type) {
    case cudaGraphNodeTypeKernel:
      ++info.kernels;
      break;
    case cudaGraphNodeTypeMemcpy:
    case cudaGraphNodeTypeMemset:
      ++info.copies;
      break;
    case cudaGraphNodeTypeHost:
      ++info.host_nodes;
      break;
    case cudaGraphNodeTypeConditional:
      ++info.conditional_nodes;
      break;
    case cudaGraphNodeTypeEmpty:
      ++info.empty_nodes;
      break;
    case cudaGraphNodeTypeMemAlloc:
      ++info.allocations;
      break;
    case cudaGraphNodeTypeMemFree:
      ++info.frees;
      break;
    default:
      break;
  }
}

const BoundNode* owner_of(const CapturedNodes& nodes, cudaGraphNode_t node) {
  auto found = nodes.owners.find(node);
  return found == nodes.owners.end() ? nullptr : found->second;
}

std::vector<cudaGraphNode_t> members_of(cudaGraph_t graph, Calls& calls) {
  std::size_t count = 0;
  calls.check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> members(count);
  if (count > 0) calls.check(cudaGraphGetNodes(graph, members.data(), &count), "cudaGraphGetNodes");
  return members;
}

struct Edges {
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
};
Edges edges_of(cudaGraph_t graph, Calls& calls) {
  std::size_t count = 0;
  calls.check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "cudaGraphGetEdges");
  Edges edges{std::vector<cudaGraphNode_t>(count), std::vector<cudaGraphNode_t>(count),
              std::vector<cudaGraphEdgeData>(count)};
  if (count > 0) {
    calls.check(cudaGraphGetEdges(graph, edges.from.data(), edges.to.data(), edges.data.data(), &count),
                "cudaGraphGetEdges");
  }
  return edges;
}

cudaGraphNodeType type_of(cudaGraphNode_t node, Calls& calls) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  calls.check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  return type;
}

// Whether thread blocks of a kernel node run in clusters of more than one.
bool runs_in_clusters(cudaGraphNode_t node, Calls& calls) {
  cudaLaunchAttributeValue value = {};
  calls.check(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
              "cudaGraphKernelNodeGetAttribute");
  return std::max({value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}) > 1;
}

cudaGraph_t child_of(cudaGraphNode_t node, Calls& calls) {
  cudaGraph_t child = nullptr;
  calls.check(cudaGraphChildGraphNodeGetGraph(node, &child), "cudaGraphChildGraphNodeGetGraph");
  return child;
}

// Calls visit(node, type, op) for the nodes of `graph` and of its child graphs and conditional bodies. The nodes of a
// child graph belong to the op that captured the child graph.
using Visit = FunctionRef<void(cudaGraphNode_t, cudaGraphNodeType, const BoundNode*)>;
void visit_nodes(cudaGraph_t graph, const BoundNode* around, const CapturedNodes& nodes, Calls& calls,
                 const Visit& visit) {
  for (cudaGraphNode_t member : nodes_in_order(graph, calls)) {
    cudaGraphNodeType type = type_of(member, calls);
    const BoundNode* owner = around ? around : owner_of(nodes, member);
    visit(member, type, owner);
    if (type == cudaGraphNodeTypeGraph) visit_nodes(child_of(member, calls), owner, nodes, calls, visit);
    if (auto found = nodes.bodies.find(member); found != nodes.bodies.end())
      for (cudaGraph_t body : found->second) visit_nodes(body, nullptr, nodes, calls, visit);
  }
}

const char* node_type_name(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return "kernel";
    case cudaGraphNodeTypeMemcpy:
      return "memcpy";
    case cudaGraphNodeTypeMemset:
      return "memset";
    case cudaGraphNodeTypeHost:
      return "host";
    case cudaGraphNodeTypeGraph:
      return "child graph";
    case cudaGraphNodeTypeEmpty:
      return "empty";
    case cudaGraphNodeTypeWaitEvent:
      return "event wait";
    case cudaGraphNodeTypeEventRecord:
      return "event record";
    case cudaGraphNodeTypeMemAlloc:
      return "memory allocation";
    case cudaGraphNodeTypeMemFree:
      return "memory free";
    case cudaGraphNodeTypeConditional:
      return "conditional";
    default:
      return "other";
  }
}

const char* result_name(cudaGraphInstantiateResult result) {
  switch (result) {
    case cudaGraphInstantiateSuccess:
      return "no reason given";
    case cudaGraphInstantiateInvalidStructure:
      return "invalid structure, such as a cycle";
    case cudaGraphInstantiateNodeOperationNotSupported:
      return "a node's operation is not supported";
    case cudaGraphInstantiateMultipleDevicesNotSupported:
      return "several devices are not supported";
    case cudaGraphInstantiateConditionalHandleUnused:
      return "a conditional handle is not used";
    default:
      return "error";
  }
}

}  // namespace

void refuse_capture(const BoundNode* node, const std::string& problem, const std::string& remedy) {
  if (node) throw CaptureFailed(std::string(node->op->name), node->where, problem, remedy);
  throw CaptureFailed("capture", Where(), problem, remedy);
}

// CUDA lists nodes in any order, which differs from one graph to the next; the kernels of an op depend on each other,
// so here they always stand in the order in which they were launched.
std::vector<cudaGraphNode_t> nodes_in_order(cudaGraph_t graph, Calls& calls) {
  const auto [from, to, data] = edges_of(graph, calls);
  std::map<cudaGraphNode_t, std::vector<cudaGraphNode_t>> after;
  std::map<cudaGraphNode_t, std::size_t> missing;
  for (std::size_t i = 0; i < from.size(); ++i) {
    after[from[i]].push_back(to[i]);
    ++missing[to[i]];
  }
  std::vector<cudaGraphNode_t> order;
  for (cudaGraphNode_t member : members_of(graph, calls))
    if (!missing.contains(member)) order.push_back(member);
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (cudaGraphNode_t next : after[order[i]])
      if (--missing[next] == 0) order.push_back(next);
  }
  return order;
}

void require_body_nodes(cudaGraph_t graph, const CapturedNodes& nodes, Calls& calls) {
  for (cudaGraphNode_t member : members_of(graph, calls)) {
    cudaGraphNodeType type = type_of(member, calls);
    if (type == cudaGraphNodeTypeGraph) require_body_nodes(child_of(member, calls), nodes, calls);
    if (may_be_in_body(type)) continue;
    refuse_capture(owner_of(nodes, member),
                   "it captured a " + std::string(node_type_name(type)) +
                       " node in the body of a loop or branch, where CUDA allows only kernel, memcpy, memset, empty, "
                       "child graph and conditional nodes",
                   "give it a CUDA body that only launches kernels, or move it out of the loop or branch");
  }
}

void CudaCapturedGraph::require_repeatable() const {
  if (once_.allocations == once_.frees) return;
  std::map<const BoundNode*, int> kept;
  visit_nodes(graph_.get(), nullptr, nodes_, calls_, [&](cudaGraphNode_t, cudaGraphNodeType type, const BoundNode* op) {
    if (type == cudaGraphNodeTypeMemAlloc) ++kept[op];
    if (type == cudaGraphNodeTypeMemFree) --kept[op];
  });
  const auto keeper = std::find_if(kept.begin(), kept.end(), [](const auto& of_op) { return of_op.second != 0; });
  auto times = [](std::size_t count) { return std::to_string(count) + (count == 1 ? " time" : " times"); };
  refuse_capture(keeper->first,
                 "it allocates memory in stream order " + times(once_.allocations) + " and frees it " +
                     times(once_.frees) + ", so a second launch would find other memory in use",
                 "free what cudaMallocAsync() allocates there, or allocate it before");
}

namespace {

struct CopyEnds {
  const void *from = nullptr, *to = nullptr;  // null for arrays
};
CopyEnds ends_of(cudaGraphNode_t copy, Calls& calls) {
  cudaMemcpy3DParms params = {};
  calls.check(cudaGraphMemcpyNodeGetParams(copy, &params), "cudaGraphMemcpyNodeGetParams");
  return {params.srcPtr.ptr, params.dstPtr.ptr};
}

bool is_pageable(const void* address, Calls& calls) {
  cudaPointerAttributes attributes = {};
  calls.check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

void CudaCapturedGraph::require_lasting_memory(const CalledStack& while_capturing) const {
  visit_nodes(
      graph_.get(), nullptr, nodes_, calls_, [&](cudaGraphNode_t node, cudaGraphNodeType type, const BoundNode* op) {
        auto require = [&](const void* address, const char* use) {
          if (!while_capturing.holds(address)) return;
          refuse_capture(
              op,
              std::string(use) + address_text(address) +
                  ", a variable of a function that has returned: a launch would use what is there then",
              "let it use memory that lasts as long as the work may be launched, or pass numbers to kernels by value");
        };
        if (type == cudaGraphNodeTypeMemcpy) {
          const CopyEnds ends = ends_of(node, calls_);
          require(ends.from, "it copies from ");
          require(ends.to, "it copies to ");
        } else if (type == cudaGraphNodeTypeHost) {
          cudaHostNodeParams host = {};
          calls_.check(cudaGraphHostNodeGetParams(node, &host), "cudaGraphHostNodeGetParams");
          require(host.userData, "it gives a host function ");
        }
      });
}

// CUDA knows nothing of memory that the graph allocates for itself while no launch is under way.
std::string CudaCapturedGraph::pageable_copy() const {
  struct Range {
    const std::byte* begin;
    std::size_t bytes;
  };
  std::vector<Range> own;
  auto add_own = [&](cudaGraphNode_t node, cudaGraphNodeType type, const BoundNode*) {
    if (type != cudaGraphNodeTypeMemAlloc) return;
    cudaMemAllocNodeParams made = {};
    calls_.check(cudaGraphMemAllocNodeGetParams(node, &made), "cudaGraphMemAllocNodeGetParams");
    own.push_back({static_cast<const std::byte*>(made.dptr), made.bytesize});
  };
  if (once_.allocations > 0) visit_nodes(graph_.get(), nullptr, nodes_, calls_, add_own);
  auto is_of_host = [&](const void* address) {
    auto holds = [at = static_cast<const std::byte*>(address)](const Range& range) {
      return at >= range.begin && at < range.begin + range.bytes;
    };
    return address && std::none_of(own.begin(), own.end(), holds) && is_pageable(address, calls_);
  };
  std::string found;
  visit_nodes(graph_.get(), nullptr, nodes_, calls_,
              [&](cudaGraphNode_t node, cudaGraphNodeType type, const BoundNode* op) {
                if (type != cudaGraphNodeTypeMemcpy || !found.empty()) return;
                const CopyEnds ends = ends_of(node, calls_);
                const std::string of_op = op ? " of " + std::string(op->op->name) : "";
                if (is_of_host(ends.from))
                  found = "memcpy" + of_op + " from " + address_text(ends.from);
                else if (is_of_host(ends.to))
                  found = "memcpy" + of_op + " to " + address_text(ends.to);
              });
  return found;
}

CudaCapturedGraph::CudaCapturedGraph(GraphHandle graph, CapturedNodes nodes, Calls& calls)
    : calls_(calls), graph_(std::move(graph)), nodes_(std::move(nodes)) {
  read(graph_.get(), once_);
  if (once_.bytes > 0) once_.bytes += kBytesPerGraph;
}

void CudaCapturedGraph::read(cudaGraph_t graph, CaptureInfo& info) {
  const Edges edges = edges_of(graph, calls_);
  info.edges += static_cast<int>(edges.data.size());
  info.programmatic_edges +=
      static_cast<int>(std::count_if(edges.data.begin(), edges.data.end(), [](const cudaGraphEdgeData& data) {
        return data.type == cudaGraphDependencyTypeProgrammatic;
      }));
  for (cudaGraphNode_t member : members_of(graph, calls_)) {
    cudaGraphNodeType type = type_of(member, calls_);
    add(info, type);
    if (type == cudaGraphNodeTypeKernel) has_clusters_ = has_clusters_ || runs_in_clusters(member, calls_);
    if (type == cudaGraphNodeTypeGraph) read(child_of(member, calls_), info);
    if (auto found = nodes_.bodies.find(member); found != nodes_.bodies.end()) {
      for (cudaGraph_t body : found->second) read(body, bodies_);
    }
  }
}

void CudaCapturedGraph::instantiate(cudaStream_t stream) {
  RelaxedCapture relaxed(calls_);
  cudaGraphInstantiateParams params = {};
  cudaError_t code = cudaGraphInstantiateWithParams(exec_.out(calls_.log), graph_.get(), &params);
  // Drivers also refuse graphs that no documented rule forbids, such as some libraries' kernels in a conditional body.
  // They write the reason only to their own log.
  if (code == cudaErrorInvalidValue || code == cudaErrorNotSupported ||
      (code != cudaSuccess && params.result_out != cudaGraphInstantiateSuccess)) {
    (void)cudaGetLastError();
    std::string at;
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    if (params.errNode_out && cudaGraphNodeGetType(params.errNode_out, &type) == cudaSuccess) {
      at = std::string(", at a ") + node_type_name(type) + " node";
    }
    refuse_capture(owner_of(nodes_, params.errNode_out),
                   describe(code, "cudaGraphInstantiateWithParams") + ": " + result_name(params.result_out) + at,
                   "run with CUDA_LOG_FILE=stderr to see the driver's reason");
  }
  calls_.check(code, "cudaGraphInstantiateWithParams");
  calls_.check(cudaGraphUpload(exec_.get(), stream), "cudaGraphUpload");
}

bool CudaCapturedGraph::resembles(const CudaCapturedGraph& other) const {
  const CaptureInfo a = info(), b = other.info();
  if (a.conditional_nodes > 0 || a.allocations > 0 || a.frees > 0) return false;
  if (has_clusters_ || other.has_clusters_) return false;
  return a.kernels == b.kernels && a.copies == b.copies && a.host_nodes == b.host_nodes &&
         a.empty_nodes == b.empty_nodes && a.edges == b.edges && a.programmatic_edges == b.programmatic_edges &&
         a.bytes == b.bytes;
}

bool CudaCapturedGraph::take_over(CudaCapturedGraph& other) {
  GraphExecHandle exec = std::move(other.exec_);
  RelaxedCapture relaxed(calls_);
  cudaGraphExecUpdateResultInfo info = {};
  const cudaError_t code = cudaGraphExecUpdate(exec.get(), graph_.get(), &info);
  ++calls_.counters.api_calls;
  if (is_sticky(code)) calls_.fail(code, "cudaGraphExecUpdate");
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    // CUDA also has these codes for graphs that it cannot update. Whatever the reason, a new graph may succeed.
    const bool is_refusal =
        code == cudaErrorGraphExecUpdateFailure || code == cudaErrorNotSupported || code == cudaErrorInvalidValue;
    if (!is_refusal) calls_.log.warn({describe(code, "cudaGraphExecUpdate"), ", so the graph is instantiated anew"});
    return false;
  }
  exec_ = std::move(exec);
  is_taken_over_ = true;
  return true;
}

std::vector<CapturedKernel> CudaCapturedGraph::kernels() const {
  calls_.require_device();
  CurrentDevice current(calls_);
  const KernelArguments arguments(calls_);
  std::vector<CapturedKernel> kernels;
  visit_nodes(graph_.get(), nullptr, nodes_, calls_,
              [&](cudaGraphNode_t node, cudaGraphNodeType type, const BoundNode* owner) {
                if (type != cudaGraphNodeTypeKernel) return;
                kernels.push_back({owner, arguments.read(node), nodes_.library_callers.contains(owner)});
              });
  return kernels;
}

// Profilers show the nodes of the graph that the executable graph was made from.
ProfiledNodes CudaCapturedGraph::profiled_nodes() const {
  if (is_taken_over_) return {};
  calls_.require_device();
  CurrentDevice current(calls_);
  const ProfilerIds ids;
  const KernelNames names(calls_);
  ProfiledNodes profiled{ids.of(exec_.get()), {}};
  visit_nodes(graph_.get(), nullptr, nodes_, calls_,
              [&](cudaGraphNode_t node, cudaGraphNodeType type, const BoundNode* owner) {
                std::string work = node_type_name(type);
                if (type == cudaGraphNodeTypeKernel) work += " " + names.of(node);
                profiled.nodes.push_back({ids.of(node), owner, std::move(work)});
              });
  return profiled;
}

CaptureInfo CudaCapturedGraph::info() const {
  CaptureInfo sum = once_;
  sum += bodies_;
  return sum;
}

void CudaCapturedGraph::count_launch(Counters& counters, std::uint64_t steps) const {
  counters.kernels += static_cast<std::uint64_t>(once_.kernels) + steps * static_cast<std::uint64_t>(bodies_.kernels);
  counters.copies += static_cast<std::uint64_t>(once_.copies) + steps * static_cast<std::uint64_t>(bodies_.copies);
  counters.host_nodes += static_cast<std::uint64_t>(once_.host_nodes);
}

}  // namespace graphsink
