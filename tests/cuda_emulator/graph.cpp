// Graph objects: edges, copies, handles.
#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

#include "profiler.h"
#include "runtime.h"

CUgraphNode_st::CUgraphNode_st(cudaGraph_t graph_, cudaGraphNodeType type_, emu::WorkRef work_)
    : id(emu::new_node_id()), graph(graph_), type(type_), work(std::move(work_)) {
  emu::runtime().nodes.insert(this);
}

CUgraphNode_st::~CUgraphNode_st() { emu::runtime().nodes.erase(this); }

CUgraph_st::CUgraph_st(cudaGraphNode_t owner_) : number(emu::runtime().next_graph++), owner(owner_) {
  emu::runtime().graphs.insert(this);
}

CUgraph_st::~CUgraph_st() {
  emu::Runtime& r = emu::runtime();
  r.graphs.erase(this);
  for (const emu::CaptureRef& capture : r.captures) {
    if (capture->graph != this) continue;
    r.last_failure = "a graph was destroyed while a stream captures into a body of it, which is undefined on a GPU";
    std::fprintf(stderr, "cuda emulator: %s\n", r.last_failure.c_str());
    capture->invalid = true;
    capture->owns_graph = false;
    capture->graph = nullptr;
  }
}

namespace emu {

cudaGraphNode_t add_node(cudaGraph_t graph, WorkRef work, const std::vector<Edge>& before) {
  const cudaGraphNodeType type = node_type(*work);
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(graph, type, std::move(work)));
  graph->nodes.back()->before = before;
  return graph->nodes.back().get();
}

bool depends_on(cudaGraphNode_t node, cudaGraphNode_t other) {
  std::unordered_set<cudaGraphNode_t> seen;
  std::vector<cudaGraphNode_t> todo{node};
  while (!todo.empty()) {
    const cudaGraphNode_t current = todo.back();
    todo.pop_back();
    if (current == other) return true;
    if (!seen.insert(current).second) continue;
    for (const Edge& edge : current->before) todo.push_back(edge.node);
  }
  return false;
}

bool has_conditional(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == cudaGraphNodeTypeConditional ||
           std::any_of(node->bodies.begin(), node->bodies.end(),
                       [](const auto& body) { return has_conditional(*body); });
  });
}

bool has_memory_nodes(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->type == cudaGraphNodeTypeMemAlloc || node->type == cudaGraphNodeTypeMemFree ||
           std::any_of(node->bodies.begin(), node->bodies.end(),
                       [](const auto& body) { return has_memory_nodes(*body); });
  });
}

bool can_free_in(Runtime& r, const CUgraph_st& graph, void* pointer) {
  const bool is_freed = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    const auto* freed = std::get_if<FreeWork>(node->work.get());
    return freed != nullptr && freed->pointer == pointer;
  });
  return !is_freed && r.memory.is_allocation_of_graph(pointer);
}

void clone_into(const CUgraph_st& source, CUgraph_st& target) {
  target.user_references = source.user_references;
  std::unordered_map<cudaGraphNode_t, cudaGraphNode_t> copies;
  for (const auto& node : source.nodes) {
    const cudaGraphNode_t copy = add_node(&target, node->work, {});
    copies[node.get()] = copy;
    for (const auto& body : node->bodies) {
      copy->bodies.push_back(std::make_unique<CUgraph_st>(copy));
      clone_into(*body, *copy->bodies.back());
    }
  }
  // Edges second: a program may add an edge from a younger node to an older one.
  for (const auto& node : source.nodes) {
    for (const Edge& edge : node->before) copies[node.get()]->before.push_back({copies[edge.node], edge.data});
  }
}

namespace {

// Why an edge from a node to one of this type cannot have this data; empty where it can.
std::string refuse_edge_data(const cudaGraphEdgeData& data, cudaGraphNode_t from, cudaGraphNodeType to) {
  const auto invalid = [](const char* field, unsigned value) {
    char text[80];
    std::snprintf(text, sizeof text, "Edge data '%s' field is invalid: 0x%x", field, value);
    return std::string(text);
  };
  if (data.to_port != 0) return invalid("to_port", data.to_port);
  for (const unsigned char byte : data.reserved) {
    if (byte != 0) return invalid("reserved", byte);
  }
  const bool is_programmatic = data.type == cudaGraphDependencyTypeProgrammatic;
  if (!is_programmatic && data.type != cudaGraphDependencyTypeDefault) return invalid("type", data.type);
  if (data.from_port == cudaGraphKernelNodePortDefault) {
    return is_programmatic ? "Programmatic edge type can't be used with CU_GRAPH_KERNEL_NODE_PORT_DEFAULT" : "";
  }
  if (from->type != cudaGraphNodeTypeKernel || data.from_port > cudaGraphKernelNodePortLaunchCompletion) {
    return invalid("from_port", data.from_port);
  }
  if (is_programmatic) return to == cudaGraphNodeTypeKernel ? "" : invalid("type", data.type);
  if (data.from_port == cudaGraphKernelNodePortLaunchCompletion) return "";
  return "CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC requires an edge type of CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC";
}

std::string index_text(std::size_t index) { return "Index " + std::to_string(index) + ": "; }

}  // namespace

cudaError_t make_edge(Runtime& r, cudaGraph_t graph, cudaGraphNode_t from, const cudaGraphEdgeData* data,
                      std::size_t index, cudaGraphNodeType to, Edge& edge) {
  edge = {from, data == nullptr ? cudaGraphEdgeData{} : data[index]};
  if (!r.nodes.contains(from) || from->graph != graph) return cudaErrorInvalidValue;
  const std::string refused = refuse_edge_data(edge.data, from, to);
  if (refused.empty()) return cudaSuccess;
  explain(cudaErrorInvalidValue, refused);
  return explain(cudaErrorInvalidValue, index_text(index) + "Edge data entry is invalid");
}

cudaError_t add_edge(std::vector<Edge>& before, const Edge& edge, std::size_t index) {
  if (std::none_of(before.begin(), before.end(), [&](const Edge& other) { return other.node == edge.node; })) {
    before.push_back(edge);
    return cudaSuccess;
  }
  explain(cudaErrorInvalidValue, "Attempted to add a graph edge that already exists");
  return explain(cudaErrorInvalidValue, index_text(index) + "Failed to add edge");
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return api("cudaGraphCreate", [&](Runtime&, Lock&) -> cudaError_t {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = new CUgraph_st(nullptr);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph)) return cudaErrorInvalidValue;
    if (graph->owner != nullptr) {
      return emu::explain(cudaErrorInvalidValue,
                          "Graph is owned by another graph and cannot be independently destroyed");
    }
    for (const emu::CaptureRef& capture : r.captures) {
      if (capture->graph == graph) return cudaErrorInvalidValue;
    }
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* data, size_t count) {
  return api("cudaGraphAddDependencies", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!r.graphs.contains(graph) || (count > 0 && (from == nullptr || to == nullptr))) return cudaErrorInvalidValue;
    std::vector<emu::Edge> edges(count);
    for (size_t i = 0; i < count; ++i) {
      if (!r.nodes.contains(to[i]) || to[i]->graph != graph || from[i] == to[i]) return cudaErrorInvalidValue;
      const cudaError_t invalid = emu::make_edge(r, graph, from[i], data, i, to[i]->type, edges[i]);
      if (invalid != cudaSuccess) return invalid;
    }
    // One after the other: the edges in front of one that is there already have been added.
    for (size_t i = 0; i < count; ++i) {
      const cudaError_t refused = emu::add_edge(to[i]->before, edges[i], i);
      if (refused != cudaSuccess) return refused;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* out, cudaGraph_t graph, unsigned value,
                                             unsigned flags) {
  return api("cudaGraphConditionalHandleCreate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr || !r.graphs.contains(graph)) return cudaErrorInvalidValue;
    if (flags > cudaGraphCondAssignDefault) {
      char why[32];
      std::snprintf(why, sizeof why, "Invalid flags 0x%x", flags);
      return emu::explain(cudaErrorInvalidValue, why);
    }
    *out = r.next_handle++;
    graph->handles.push_back({*out, value, flags == cudaGraphCondAssignDefault});
    return cudaSuccess;
  });
}
