#include "graphsink/program_file.h"

#include <utility>

#include "graphsink/checkpoint.h"
#include "program_file/graph_form.h"
#include "program_file/graph_reader.h"
#include "program_file/graph_writer.h"
#include "program_file/json_fields.h"

namespace graphsink {
namespace {

// Finds the inputs and feeds as Graph::input() and Graph::feed() returned them: not the sizes that the program itself
// writes.
void find_inputs(LoadedGraph& loaded) {
  GraphData& graph = *loaded.graph.data();
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.op != &input_op && node.op != &feed_op) continue;
    const auto& attrs = node.attrs.as<InputAttrs>();
    if (attrs.size_of >= 0 || attrs.is_result_size) continue;
    auto& to = node.op == &feed_op ? loaded.feeds : loaded.inputs;
    to.emplace(attrs.name, graph.value({static_cast<int>(id), 0}));
  }
}

}  // namespace

void write_graph(const std::filesystem::path& path, const Graph& graph, const WriteGraphOptions& options, Where where) {
  const std::string file = path.string();
  const GraphData& data = data_of(graph, where);
  const OpNames ops(options.ops, "write_graph", where);
  if (options.step < 0)
    throw Error("write_graph", where, "the step is " + std::to_string(options.step), "give at least 0");
  for (std::string_view key : {kGraphKey, kStepKey}) {
    if (options.metadata.contains(key))
      throw Error("write_graph", where, "metadata has \"" + std::string(key) + "\", which write_graph() itself writes",
                  "use another key, and WriteGraphOptions::step for the step");
  }
  WrittenGraph written = write_form(data, ops, file, where);
  Checkpoint checkpoint;
  checkpoint.metadata = options.metadata;
  checkpoint.metadata.emplace(kGraphKey, std::move(written.json));
  checkpoint.metadata.emplace(kStepKey, std::to_string(options.step));
  for (const auto& [name, variable] : written.variables) checkpoint.tensors.emplace(name, variable.read(where));
  for (const auto& [name, tensor] : written.constants) checkpoint.tensors.emplace(name, *tensor);
  write_checkpoint(path, checkpoint, {}, where);
}

LoadedGraph read_graph(const std::filesystem::path& path, const ReadGraphOptions& options, Where where) {
  const std::string file = path.string();
  const OpNames ops(options.ops, "read_graph", where);
  Checkpoint checkpoint = read_checkpoint(path, where);
  LoadedGraph loaded;
  loaded.metadata = std::move(checkpoint.metadata);
  const auto found = loaded.metadata.find(kGraphKey);
  if (found == loaded.metadata.end()) {
    throw Error(file, where, "metadata \"" + std::string(kGraphKey) + "\": is missing, so the file has no graph",
                "read a checkpoint with read_checkpoint(), and write graphs with write_graph()", ErrorCode::io);
  }
  if (loaded.metadata.contains(kStepKey)) {
    checkpoint.metadata.insert(loaded.metadata.extract(std::string(kStepKey)));
    loaded.step = checkpoint.number(kStepKey, where);
  }
  {
    const std::string text = std::move(loaded.metadata.extract(found).mapped());
    const nlohmann::json json = parse_graph(text, file, where);
    loaded.graph = Graph(GraphReader(JsonField(json, file, where), ops, checkpoint).read());
  }
  GraphData& graph = *loaded.graph.data();
  find_inputs(loaded);
  for (const NamedValue& record : graph.records) loaded.records.emplace(record.name, graph.value(record.value));
  for (const NamedValue& output : graph.outputs) loaded.outputs.emplace(output.name, graph.value(output.value));
  for (const VariableUse& use : graph.variables) loaded.variables.push_back(use.variable);
  return loaded;
}

}  // namespace graphsink
