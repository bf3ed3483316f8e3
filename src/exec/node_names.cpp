#include "exec/node_names.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

using Json = nlohmann::ordered_json;

void add_op(const BoundNode& node, Json& line) {
  line["op"] = node.op->name;
  if (std::string where = to_string(node.where); !where.empty()) line["where"] = std::move(where);
  line["node"] = node.id;
  line["bytes"] = bytes_moved(node);
  if (node.op->flops) line["flops"] = node.op->flops(BodyArgs(node));
}

}  // namespace

std::string node_names(const CapturedGraph& graph, std::string_view key) {
  const ProfiledNodes profiled = graph.profiled_nodes();
  std::string text;
  for (const ProfiledNode& node : profiled.nodes) {
    Json line = {{"id", node.id}, {"graph", profiled.graph}};
    if (!key.empty()) line["key"] = key;
    if (node.node) add_op(*node.node, line);
    line["work"] = node.work;
    // Names may contain any bytes, but JSON must be UTF-8. So invalid bytes are replaced.
    text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

void write_node_names(const std::string& path, const std::string& names, const Where& where) {
  if (names.empty()) {
    throw Error("write_node_names", where, "nothing is captured that a profiler of CUDA could show",
                "call it after a run that sinks, on a CUDA device");
  }
  std::ofstream file(path, std::ios::binary);
  file << names << std::flush;
  if (!file) throw Error("write_node_names", where, path + " cannot be written", "name a file in a folder that exists");
}

NodeNamesFile::NodeNamesFile(const Log& log) : log_(log) {
  if (const char* path = std::getenv("GRAPHSINK_NODE_NAMES")) path_ = path;
}

void NodeNamesFile::add(const CapturedGraph& graph, std::string_view key) {
  if (path_.empty()) return;
  std::string problem = "the file cannot be written";
  try {
    const std::string names = node_names(graph, key);
    std::ofstream file(path_, std::ios::binary | std::ios::app);
    if (file << names << std::flush) return;
  } catch (const Error& e) {
    problem = e.problem() + "; remedy: " + e.remedy();
  }
  log_.warn({"GRAPHSINK_NODE_NAMES=", path_, ": no names are written: ", problem});
  path_.clear();
}

}  // namespace graphsink
