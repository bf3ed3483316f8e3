#include "device/cuda/node_values.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "base/number_text.h"
#include "device/cuda/arguments.h"
#include "device/cuda/captured_graph.h"
#include "device/cuda/driver.h"
#include "device/cuda/kernel_names.h"

namespace graphsink {
namespace {

// An address in memory that the graph itself allocates.
struct OwnAddress {
  std::size_t at = 0;  // in the bytes of the value, which are zeros there
  int allocation = 0;  // the number of the node that allocates the memory, the same in both graphs
  std::uintptr_t offset = 0;

  auto operator<=>(const OwnAddress&) const = default;
};

struct Given {
  std::string name;
  Bytes bytes;
  std::vector<OwnAddress> own = {};

  auto operator<=>(const Given&) const = default;
};

struct Node {
  std::string name;
  std::vector<Given> values;
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
      case cudaGraphNodeTypeMemAlloc:
        return {"memory allocation", {{"size", bytes_of(allocation(node).bytesize)}}};
      case cudaGraphNodeTypeMemFree:
        return read_free(node);
      case cudaGraphNodeTypeEventRecord:
        return read_event(node, "event record", cudaGraphEventRecordNodeGetEvent, "cudaGraphEventRecordNodeGetEvent");
      case cudaGraphNodeTypeWaitEvent:
        return read_event(node, "event wait", cudaGraphEventWaitNodeGetEvent, "cudaGraphEventWaitNodeGetEvent");
      default:
        return {"node of type " + std::to_string(type_of(node)), {}};
    }
  }

  cudaGraphNodeType type_of(cudaGraphNode_t node) const {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    calls_.check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return type;
  }
  cudaMemAllocNodeParams allocation(cudaGraphNode_t node) const {
    cudaMemAllocNodeParams params = {};
    calls_.check(cudaGraphMemAllocNodeGetParams(node, &params), "cudaGraphMemAllocNodeGetParams");
    return params;
  }

 private:
  Node read_free(cudaGraphNode_t node) const {
    void* memory = nullptr;
    calls_.check(cudaGraphMemFreeNodeGetParams(node, &memory), "cudaGraphMemFreeNodeGetParams");
    return {"memory free", {{"memory", bytes_of(memory)}}};
  }
  using GetEvent = cudaError_t (*)(cudaGraphNode_t, cudaEvent_t*);
  Node read_event(cudaGraphNode_t node, const char* name, GetEvent get, const char* call) const {
    cudaEvent_t event = nullptr;
    calls_.check(get(node, &event), call);
    return {name, {{"event", bytes_of(event)}}};
  }
  Node read_kernel(cudaGraphNode_t node) const {
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    calls_.check(runtime_code(get_params_(node, &kernel)), "cuGraphKernelNodeGetParams");
    Node read{"kernel " + names_.of(kernel), {}};
    read.values.push_back({"grid", bytes_of(std::array{kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ})});
    read.values.push_back({"block", bytes_of(std::array{kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ})});
    read.values.push_back({"shared memory", bytes_of(kernel.sharedMemBytes)});
    const auto cluster = attribute(node, cudaLaunchAttributeClusterDimension).clusterDim;
    read.values.push_back({"cluster", bytes_of(std::array{cluster.x, cluster.y, cluster.z})});
    read.values.push_back({"cooperative", bytes_of(attribute(node, cudaLaunchAttributeCooperative).cooperative)});
    Arguments arguments = arguments_.read(node);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      read.values.push_back({"parameter " + std::to_string(i), std::move(arguments[i])});
    }
    return read;
  }
  cudaLaunchAttributeValue attribute(cudaGraphNode_t kernel, cudaLaunchAttributeID id) const {
    cudaLaunchAttributeValue value = {};
    calls_.check(cudaGraphKernelNodeGetAttribute(kernel, id, &value), "cudaGraphKernelNodeGetAttribute");
    return value;
  }
  Node read_copy(cudaGraphNode_t node) const {
    cudaMemcpy3DParms copy = {};
    calls_.check(cudaGraphMemcpyNodeGetParams(node, &copy), "cudaGraphMemcpyNodeGetParams");
    return {"memcpy",
            {{"destination", bytes_of(copy.dstPtr.ptr)},
             {"source", bytes_of(copy.srcPtr.ptr)},
             {"size", bytes_of(std::array{copy.extent.width, copy.extent.height, copy.extent.depth})},
             {"pitches", bytes_of(std::array{copy.dstPtr.pitch, copy.srcPtr.pitch})}}};
  }
  Node read_fill(cudaGraphNode_t node) const {
    cudaMemsetParams fill = {};
    calls_.check(cudaGraphMemsetNodeGetParams(node, &fill), "cudaGraphMemsetNodeGetParams");
    const std::size_t pitch = fill.height > 1 ? fill.pitch : 0;  // which means nothing for one row
    return {"memset",
            {{"destination", bytes_of(fill.dst)},
             {"value", bytes_of(fill.value)},
             {"size", bytes_of(std::array{fill.width * fill.elementSize, fill.height})},
             {"element size", bytes_of(fill.elementSize)},
             {"pitch", bytes_of(pitch)}}};
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

// Numbers for nodes that are the same in what a description says of them and of the nodes that they depend on.
template <class Description>
class Numbers {
 public:
  int of(const Description& description, const std::vector<int>& before) {
    return numbers_.try_emplace({description, before}, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<std::pair<Description, std::vector<int>>, int> numbers_;
};

// A node's class says its name and those of all work that it depends on. Its identity says all their values, too.
struct Reading {
  std::map<int, std::vector<Node>> by_class;
  std::map<int, std::vector<std::string>> by_identity;  // the names of such nodes
};

class GraphReader {
 public:
  explicit GraphReader(Calls& calls) : calls_(calls), nodes_(calls) {}

  Reading read(cudaGraph_t graph) {
    Reading read;
    allocations_.clear();
    read_into(read, graph, nullptr);
    for (auto& [number, nodes] : read.by_class) {
      std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.values < b.values; });
    }
    return read;
  }

 private:
  struct Place {
    int of_class = 0, identity = 0;
  };
  struct Allocation {
    std::uintptr_t bytes = 0;
    int identity = 0;
  };

  // `around`: the child graph's node, if it is one.
  void read_into(Reading& read, cudaGraph_t graph, const Place* around) {
    std::map<cudaGraphNode_t, Place> places;
    for (cudaGraphNode_t node : nodes_in_order(graph, calls_)) {
      std::vector<int> classes, identities;
      auto depends_on = [&](const Place& place) {
        classes.push_back(place.of_class);
        identities.push_back(place.identity);
      };
      if (around) depends_on(*around);
      Bytes ports;  // not 0 where a kernel may begin before the one that it depends on has ended
      for (const auto& [earlier, port] : dependencies_of(node)) {
        depends_on(places.at(earlier));
        ports.push_back(port);
      }
      std::sort(classes.begin(), classes.end());
      std::sort(identities.begin(), identities.end());
      std::sort(ports.begin(), ports.end());

      Node values = nodes_.read(node);
      values.values.push_back({"ports of its dependencies", std::move(ports)});
      for (Given& value : values.values) find_own_addresses(value);
      const Place place{classes_.of(values.name, classes), identities_.of({values.name, values.values}, identities)};
      places[node] = place;
      read.by_identity[place.identity].push_back(values.name);
      read.by_class[place.of_class].push_back(std::move(values));
      const cudaGraphNodeType type = nodes_.type_of(node);
      if (type == cudaGraphNodeTypeMemAlloc) {
        const cudaMemAllocNodeParams made = nodes_.allocation(node);
        allocations_[reinterpret_cast<std::uintptr_t>(made.dptr)] = {made.bytesize, place.identity};
      }
      if (type != cudaGraphNodeTypeGraph) continue;
      cudaGraph_t child = nullptr;
      calls_.check(cudaGraphChildGraphNodeGetGraph(node, &child), "cudaGraphChildGraphNodeGetGraph");
      read_into(read, child, &place);
    }
  }

  void find_own_addresses(Given& value) const {
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= value.bytes.size(); at += sizeof(std::uintptr_t)) {
      std::uintptr_t address = 0;
      std::memcpy(&address, &value.bytes[at], sizeof address);
      auto next = allocations_.upper_bound(address);
      if (next == allocations_.begin()) continue;
      const auto& [begin, allocation] = *std::prev(next);
      if (address - begin >= allocation.bytes) continue;
      value.own.push_back({at, allocation.identity, address - begin});
      std::memset(&value.bytes[at], 0, sizeof address);
    }
  }

  struct Dependency {
    cudaGraphNode_t node;
    std::byte port;  // from_port of the edge
  };
  std::vector<Dependency> dependencies_of(cudaGraphNode_t node) const {
    std::size_t count = 0;
    calls_.check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count), "cudaGraphNodeGetDependencies");
    std::vector<cudaGraphNode_t> nodes(count);
    std::vector<cudaGraphEdgeData> edges(count);
    if (count > 0) {
      calls_.check(cudaGraphNodeGetDependencies(node, nodes.data(), edges.data(), &count),
                   "cudaGraphNodeGetDependencies");
    }
    std::vector<Dependency> dependencies;
    for (std::size_t i = 0; i < count; ++i) dependencies.push_back({nodes[i], std::byte{edges[i].from_port}});
    return dependencies;
  }

  Calls& calls_;
  NodeReader nodes_;
  // The same for all graphs that this reads.
  Numbers<std::string> classes_;
  Numbers<std::pair<std::string, std::vector<Given>>> identities_;
  std::map<std::uintptr_t, Allocation> allocations_;  // allocations of the graph that is read, by address
};

template <class T>
T read_as(const Bytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// "2a 00 00 00 (as an integer 42, as a float 0.000000)"; 32 bytes of longer values, from `first` on.
std::string text_of(const Given& value, std::size_t first) {
  constexpr std::size_t kMost = 32;
  const Bytes& bytes = value.bytes;
  const std::size_t count = std::min(bytes.size() - first, kMost);
  std::string text = first > 0 ? "..." : "";
  for (std::byte byte : std::span(bytes).subspan(first, count)) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto digits = std::to_integer<unsigned>(byte);
    text += (text.empty() ? "" : " ") + std::string{kDigits[digits / 16], kDigits[digits % 16]};
  }
  if (first + count < bytes.size()) text += " ...";
  if (bytes.size() == sizeof(std::int32_t)) {
    text += " (as an integer " + std::to_string(read_as<std::int32_t>(bytes)) + ", as a float " +
            std::to_string(read_as<float>(bytes)) + ")";
  }
  if (bytes.size() == sizeof(std::uint64_t) && value.own.empty()) {
    text += " (as an address " + address_text(read_as<std::uintptr_t>(bytes)) + ", as an integer " +
            std::to_string(read_as<std::int64_t>(bytes)) + ", as a double " + std::to_string(read_as<double>(bytes)) +
            ")";
  }
  for (const OwnAddress& own : value.own) {
    text += (&own == value.own.data() ? " (" : ", ") + std::string("at byte ") + std::to_string(own.at) +
            " an address in memory that the graph allocates, " + std::to_string(own.offset) + " bytes into it";
  }
  return value.own.empty() ? text : text + ")";
}

std::string first_difference(const Node& before, const Node& now) {
  for (std::size_t i = 0; i < std::min(before.values.size(), now.values.size()); ++i) {
    const Given &old_value = before.values[i], &new_value = now.values[i];
    if (old_value == new_value) continue;
    const Bytes &old_bytes = old_value.bytes, &new_bytes = new_value.bytes;
    const auto differs = std::mismatch(old_bytes.begin(), old_bytes.end(), new_bytes.begin(), new_bytes.end()).first;
    const auto at = static_cast<std::size_t>(differs - old_bytes.begin());
    // From a multiple of eight on, where a member of a structure may begin; all of what is short.
    const std::size_t first = at < 32 || at == old_bytes.size() ? 0 : at / 8 * 8;
    return before.name + ", " + old_value.name + (first > 0 ? " from byte " + std::to_string(first) + " on" : "") +
           ": " + text_of(old_value, first) + " before, " + text_of(new_value, std::min(first, new_bytes.size())) +
           " now";
  }
  return before.name + " has another number of parameters than before";
}

// Names the first work that depends on other work than before; "" if there is none. Precondition: the work of both
// graphs is the same but for its order.
std::string first_reordered(const Reading& before, const Reading& now) {
  for (const auto& [identity, names] : before.by_identity) {
    const auto found = now.by_identity.find(identity);
    if (found == now.by_identity.end() || found->second.size() != names.size()) {
      return names.front() + " depends on other work than before";
    }
  }
  return "";
}

}  // namespace

void visit_values(cudaGraph_t graph, Calls& calls, const std::function<void(const NodeValue&)>& visit) {
  GraphReader reader(calls);
  for (const auto& [number, nodes] : reader.read(graph).by_class) {
    for (const Node& node : nodes) {
      for (const Given& value : node.values) visit({node.name, value.name, value.bytes});
    }
  }
}

std::string difference(cudaGraph_t before, cudaGraph_t now, Calls& calls) {
  GraphReader reader(calls);
  const Reading old_graph = reader.read(before), new_graph = reader.read(now);
  for (const auto& [number, nodes] : old_graph.by_class) {
    const auto found = new_graph.by_class.find(number);
    if (found == new_graph.by_class.end() || found->second.size() < nodes.size()) {
      return nodes.front().name + " was there before and is not enqueued now";
    }
    // Both are sorted: of nodes of one class, those that are the same in both are no difference.
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].values != found->second[i].values) return first_difference(nodes[i], found->second[i]);
    }
  }
  for (const auto& [number, nodes] : new_graph.by_class) {
    const auto found = old_graph.by_class.find(number);
    if (found == old_graph.by_class.end() || found->second.size() < nodes.size()) {
      return nodes.front().name + " is enqueued now and was not before";
    }
  }
  return first_reordered(old_graph, new_graph);
}

}  // namespace graphsink
