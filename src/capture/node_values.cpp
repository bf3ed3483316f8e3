#include "capture/node_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>

#include "device/cuda/arguments.h"
#include "device/cuda/captured_graph.h"
#include "device/cuda/driver.h"
#include "device/cuda/kernel_names.h"

namespace graphsink {
namespace {

struct Node {
  std::string name;
  std::vector<std::pair<std::string, Bytes>> values;
};

template <class T>
Bytes bytes_of(const T& value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

class NodeReader {
 public:
  explicit NodeReader(Calls& calls) : calls_(calls), arguments_(calls), names_(calls) {
    find_driver_function(calls, "cuGraphKernelNodeGetParams", get_params_);
  }

  Node read(cudaGraphNode_t node) const {
    switch (type_of(node)) {
      case cudaGraphNodeTypeKernel:
        return read_kernel(node);
      case cudaGraphNodeTypeMemcpy:
        return read_copy(node);
      case cudaGraphNodeTypeMemset:
        return read_fill(node);
      case cudaGraphNodeTypeHost:
        return read_host(node);
      case cudaGraphNodeTypeGraph:
        return {"child graph", {}};
      default:
        return {"node of type " + std::to_string(type_of(node)), {}};
    }
  }

  cudaGraphNodeType type_of(cudaGraphNode_t node) const {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    calls_.check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return type;
  }

 private:
  Node read_kernel(cudaGraphNode_t node) const {
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    calls_.check(runtime_code(get_params_(node, &kernel)), "cuGraphKernelNodeGetParams");
    Node read{"kernel " + names_.of(kernel), {}};
    read.values.emplace_back("grid", bytes_of(std::array{kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ}));
    read.values.emplace_back("block", bytes_of(std::array{kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ}));
    read.values.emplace_back("shared memory", bytes_of(kernel.sharedMemBytes));
    Arguments arguments = arguments_.read(node);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      read.values.emplace_back("parameter " + std::to_string(i), std::move(arguments[i]));
    }
    return read;
  }
  Node read_copy(cudaGraphNode_t node) const {
    cudaMemcpy3DParms copy = {};
    calls_.check(cudaGraphMemcpyNodeGetParams(node, &copy), "cudaGraphMemcpyNodeGetParams");
    return {"memcpy",
            {{"destination", bytes_of(copy.dstPtr.ptr)},
             {"source", bytes_of(copy.srcPtr.ptr)},
             {"size", bytes_of(std::array{copy.extent.width, copy.extent.height, copy.extent.depth})}}};
  }
  Node read_fill(cudaGraphNode_t node) const {
    cudaMemsetParams fill = {};
    calls_.check(cudaGraphMemsetNodeGetParams(node, &fill), "cudaGraphMemsetNodeGetParams");
    return {"memset",
            {{"destination", bytes_of(fill.dst)},
             {"value", bytes_of(fill.value)},
             {"size", bytes_of(std::array{fill.width * fill.elementSize, fill.height})}}};
  }
  Node read_host(cudaGraphNode_t node) const {
    cudaHostNodeParams host = {};
    calls_.check(cudaGraphHostNodeGetParams(node, &host), "cudaGraphHostNodeGetParams");
    return {"host function", {{"function", bytes_of(host.fn)}, {"data", bytes_of(host.userData)}}};
  }

  Calls& calls_;
  KernelArguments arguments_;
  KernelNames names_;
  decltype(&cuGraphKernelNodeGetParams) get_params_ = nullptr;
};

// Numbers for classes of nodes: those of one name that depend on nodes of the same classes.
using Classes = std::map<std::pair<std::string, std::vector<int>>, int>;
// By class, what its nodes were given.
using NodesByClass = std::map<int, std::vector<Node>>;

class GraphReader {
 public:
  explicit GraphReader(Calls& calls) : calls_(calls), nodes_(calls) {}

  NodesByClass read(cudaGraph_t graph) {
    NodesByClass read;
    read_into(read, graph, {});
    for (auto& [number, nodes] : read) {
      std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.values < b.values; });
    }
    return read;
  }

 private:
  // `around`: the class of the child graph's node, if it is one.
  void read_into(NodesByClass& read, cudaGraph_t graph, const std::vector<int>& around) {
    std::map<cudaGraphNode_t, int> classes;
    for (cudaGraphNode_t node : nodes_in_order(graph, calls_)) {
      std::vector<int> before = around;
      for (cudaGraphNode_t earlier : dependencies_of(node)) before.push_back(classes.at(earlier));
      std::sort(before.begin(), before.end());
      Node values = nodes_.read(node);
      const auto next = static_cast<int>(numbers_.size());
      const int number = numbers_.try_emplace({values.name, std::move(before)}, next).first->second;
      classes[node] = number;
      read[number].push_back(std::move(values));
      if (nodes_.type_of(node) != cudaGraphNodeTypeGraph) continue;
      cudaGraph_t child = nullptr;
      calls_.check(cudaGraphChildGraphNodeGetGraph(node, &child), "cudaGraphChildGraphNodeGetGraph");
      read_into(read, child, {number});
    }
  }

  std::vector<cudaGraphNode_t> dependencies_of(cudaGraphNode_t node) const {
    std::size_t count = 0;
    calls_.check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count), "cudaGraphNodeGetDependencies");
    std::vector<cudaGraphNode_t> nodes(count);
    std::vector<cudaGraphEdgeData> edges(count);
    if (count > 0) {
      calls_.check(cudaGraphNodeGetDependencies(node, nodes.data(), edges.data(), &count),
                   "cudaGraphNodeGetDependencies");
    }
    return nodes;
  }

  Calls& calls_;
  NodeReader nodes_;
  Classes numbers_;
};

// "2a 00 00 00 (42)".
std::string text_of(const Bytes& bytes) {
  std::string text;
  for (std::byte byte : std::span(bytes).first(std::min<std::size_t>(bytes.size(), 32))) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto value = std::to_integer<unsigned>(byte);
    text += (text.empty() ? "" : " ") + std::string{kDigits[value / 16], kDigits[value % 16]};
  }
  if (bytes.size() > 32) text += " ...";
  if (bytes.size() == sizeof(std::int32_t)) {
    std::int32_t integer = 0;
    float number = 0;
    std::memcpy(&integer, bytes.data(), sizeof integer);
    std::memcpy(&number, bytes.data(), sizeof number);
    text += " (as an integer " + std::to_string(integer) + ", as a float " + std::to_string(number) + ")";
  }
  return text;
}

std::string first_difference(const Node& before, const Node& now) {
  for (std::size_t i = 0; i < std::min(before.values.size(), now.values.size()); ++i) {
    if (before.values[i] == now.values[i]) continue;
    return before.name + ", " + before.values[i].first + ": " + text_of(before.values[i].second) + " before, " +
           text_of(now.values[i].second) + " now";
  }
  return before.name + " has another number of parameters than before";
}

}  // namespace

void visit_values(cudaGraph_t graph, Calls& calls, const std::function<void(const NodeValue&)>& visit) {
  GraphReader reader(calls);
  for (const auto& [number, nodes] : reader.read(graph)) {
    for (const Node& node : nodes) {
      for (const auto& [name, bytes] : node.values) visit({node.name, name, bytes});
    }
  }
}

std::string difference(cudaGraph_t before, cudaGraph_t now, Calls& calls) {
  GraphReader reader(calls);
  const NodesByClass old_nodes = reader.read(before), new_nodes = reader.read(now);
  for (const auto& [number, nodes] : old_nodes) {
    const auto found = new_nodes.find(number);
    if (found == new_nodes.end() || found->second.size() < nodes.size()) {
      return nodes.front().name + " was there before and is not enqueued now";
    }
    // Both are sorted: of nodes of one class, those that are the same in both are no difference.
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].values != found->second[i].values) return first_difference(nodes[i], found->second[i]);
    }
  }
  for (const auto& [number, nodes] : new_nodes) {
    const auto found = old_nodes.find(number);
    if (found == old_nodes.end() || found->second.size() < nodes.size()) {
      return nodes.front().name + " is enqueued now and was not before";
    }
  }
  return "";
}

}  // namespace graphsink
