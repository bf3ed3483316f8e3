// Graphs in files (graphsink/program_file.h) that are damaged field by field, for fuzz_readers: damage to the bytes
// alone would hardly ever get past the parsers of JSON.
#pragma once

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "graph_for_files.h"
#include "graphsink/graphsink.h"
#include "ir/graph_data.h"
#include "reader_samples.h"

namespace graphsink::testing {

// A file, its header taken apart. A copy of it is damaged.
class DamagedGraph {
 public:
  using Json = nlohmann::json;

  explicit DamagedGraph(const std::string& bytes) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    header_ = Json::parse(bytes.substr(8, size));
    data_ = bytes.substr(8 + size);
    graph_ = Json::parse(text().get<std::string>());
  }

  // All texts and numbers of the graph, of which others become copies.
  void collect(std::vector<Json>& values) const { collect(graph_, values); }
  void use(const std::vector<Json>& values) { values_ = &values; }

  // Another value for some field of the graph.
  void damage(std::mt19937_64& random) {
    Json* place = &graph_;
    // Nodes and regions hold most of what is checked.
    const char* lists[] = {"nodes",     "nodes",   "nodes",   "regions", "regions",
                           "variables", "updates", "records", "outputs"};
    if (random() % 16 != 0) place = &graph_[lists[random() % std::size(lists)]];
    while (place->is_structured() && !place->empty() && (place->size() > 9 || random() % 8 != 0)) {
      auto next = place->begin();
      std::advance(next, static_cast<std::ptrdiff_t>(random() % place->size()));
      place = &*next;
    }
    change(*place, random);
  }

  std::string bytes() {
    text() = graph_.dump();
    return safetensors_file(header_.dump(), data_);
  }

 private:
  Json& text() { return header_["__metadata__"]["graphsink.graph"]; }

  static void collect(const Json& json, std::vector<Json>& values) {
    if (!json.is_structured()) return values.push_back(json);
    for (const auto& item : json) collect(item, values);
  }

  void change(Json& value, std::mt19937_64& random) {
    if (value.is_array() && !value.empty() && random() % 2 == 0) {
      const std::size_t i = random() % value.size(), k = random() % value.size();
      if (random() % 3 == 0) return void(value.erase(i));
      if (random() % 2 == 0) return std::swap(value[i], value[k]);
      return value.push_back(Json(value[i]));
    }
    if (value.is_object() && !value.empty() && random() % 2 == 0) {
      auto item = value.begin();
      std::advance(item, static_cast<std::ptrdiff_t>(random() % value.size()));
      return void(value.erase(item));
    }
    if (value.is_boolean()) return void(value = !value.get<bool>());
    if (value.is_number_integer() && random() % 4 != 0) {
      const std::int64_t known[] = {0,         1,        2, 3, -1, 8, 9, 64, 1 << 16, INT32_MAX, std::int64_t{1} << 53,
                                    INT64_MIN, INT64_MAX};
      const auto number = value.get<std::int64_t>();
      const std::int64_t near = static_cast<std::int64_t>(random() % 9) - 4;
      const bool is_near = random() % 2 == 0 && number > -1000 && number < 1000;
      return void(value = is_near ? number + near : known[random() % std::size(known)]);
    }
    value = (*values_)[random() % values_->size()];
  }

  Json header_, graph_;
  std::string data_;
  const std::vector<Json>* values_ = nullptr;
};

// Small graphs, which are read in a fraction of the time. Together they have most of what a file may have.
inline std::vector<Graph> small_graphs() {
  std::vector<Graph> graphs(6);
  const auto input = [](Graph& g) { return g.input("x", f32, {2, 3}); };
  {
    Graph& g = graphs[0];
    const Variable w("w", Tensor::uniform({3, 2}, 1));
    sgd(sum(matmul(input(g), w)), {w});
  }
  {
    Graph& g = graphs[1];
    const Value x = input(g);
    g.output("y", while_(
                      {x, 0.0}, [](const Value&, const Value& n) { return less(n, 3.0); },
                      [&](const Value& y, const Value& n) {
                        return std::array{tanh(y), n + 1.0};
                      })[0]);
  }
  {
    Graph& g = graphs[2];
    const Value x = input(g);
    const Value y = if_(
        greater(sum(x), 0.0), [&] { return x * 2.0; }, [&] { return x - 1.0; });
    g.record("y", sum(switch_(g.step(), {[&] { return y; }, [&] { return relu(y); }})), {.capacity = 16});
  }
  {
    Graph& g = graphs[3];
    const Value x = g.input("x", f32, {open(4, multiples_of(4)), 2});
    g.output("size", true_size(x, 0));
    g.output("y", softmax(x, 1));
  }
  {
    Graph& g = graphs[4];
    const Value x = input(g), y = dropout(slice(x, {0, 0}, {2, 2}), 0.25);
    g.output("y", pad(permute(y, {1, 0}), {0, 1}, {1, 0}, 0.5));
  }
  {
    Graph& g = graphs[5];
    const Value t = g.feed("t", i32, {2});
    const Variable v("v", Tensor::scalar(0.5f));
    g.assign(v, g.value(v) * 0.5);
    g.stop_when(less(v, sum(gather(g.constant(Tensor::uniform({4, 1}, 2)), t))));
    g.output("updated", g.updated(v));
  }
  return graphs;
}

// The graphs that are damaged: small ones, and one with everything.
class GoodGraphs {
 public:
  GoodGraphs() {
    std::vector<Graph> graphs = small_graphs();
    graphs.push_back(graph_for_files());
    for (const Graph& graph : graphs) {
      graphs_.emplace_back(bytes_of(graph));
      graphs_.back().collect(values_);
    }
  }

  // One of them, most often a small one.
  DamagedGraph choose(std::mt19937_64& random) const {
    const std::size_t large = graphs_.size() - 1;
    DamagedGraph graph = graphs_[random() % 64 == 0 ? large : random() % large];
    graph.use(values_);
    return graph;
  }

 private:
  static std::string bytes_of(const Graph& graph) {
    const TemporaryDirectory directory;
    write_graph(directory / "graph", graph);
    std::ifstream file(directory / "graph", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::vector<DamagedGraph> graphs_;
  std::vector<DamagedGraph::Json> values_;
};

// Whether the file is read. What is read can be planned, or is refused, and can be written again.
inline bool read_damaged_graph(const std::filesystem::path& path) {
  try {
    LoadedGraph loaded = read_graph(path);
    write_graph(path.string() + ".copy", loaded.graph);
    (void)read_graph(path.string() + ".copy");
    constexpr std::int64_t kMostElements = 1 << 20;  // a plan takes its memory
    const auto& nodes = loaded.graph.data()->nodes;
    const bool is_small = std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
      return std::all_of(node.outputs.begin(), node.outputs.end(),
                         [&](const TensorType& type) { return type.shape.examples().size() <= kMostElements; });
    });
    if (!is_small) return true;
    try {
      (void)compile(loaded.graph, {.target = cpu()});
    } catch (const Error&) {
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace graphsink::testing
