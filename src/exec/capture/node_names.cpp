#include "exec/capture/node_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/at.h"
#include "base/json_writer.h"
#include "ir/bound_node.h"
#include "ir/count_tiles.h"
#include "ir/graph_data.h"

namespace graphsink {
namespace {

void add_op(const BoundNode& node, JsonWriter& line) {
  line.member("op", node.op->name);
  if (std::string where = line_of(node.where); !where.empty()) line.member("where", where);
  if (!node.where.scope().empty()) line.member("scope", node.where.scope());
  line.member("node", node.id);
  line.member("bytes", bytes_moved(node));
  if (node.op->flops) line.member("flops", flops_of(BodyArgs(node)));
}

// Returns 0, or the code of what failed. Never waits: not for the reader of a pipe, and not for room in it. `mode`:
// O_TRUNC or O_APPEND.
int write_all(const std::string& path, int mode, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | mode, 0666);
  if (file < 0) return errno;
  int code = 0;
  while (!text.empty() && code == 0) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      code = errno;
    }
  }
  if (::close(file) != 0 && code == 0) code = errno;
  return code;
}

}  // namespace

std::string node_names(const CapturedGraph& graph, std::string_view key) {
  const ProfiledNodes profiled = graph.profiled_nodes();
  std::string text;
  for (const ProfiledNode& node : profiled.nodes) {
    JsonWriter line;
    line.begin_object();
    line.member("id", node.id);
    line.member("graph", profiled.graph);
    if (!key.empty()) line.member("key", key);
    if (node.node) add_op(*node.node, line);
    line.member("work", node.work);
    line.end_object();
    text += line.take() + "\n";
  }
  return text;
}

void write_node_names(const std::string& path, const std::string& names, const Where& where) {
  if (names.empty()) {
    throw Error("write_node_names", where, "nothing is captured that a profiler of CUDA could show",
                "call it after a run that sinks, on a CUDA device");
  }
  if (const int code = write_all(path, O_TRUNC, names)) {
    throw Error("write_node_names", where, path + " cannot be written: " + std::generic_category().message(code),
                "name a file in a folder that exists");
  }
}

NodeNamesFile::NodeNamesFile(const Log& log, bool has_nodes) : log_(log) {
  const char* path = std::getenv("GRAPHSINK_NODE_NAMES");
  if (path == nullptr) return;
  path_ = path;
  if (!has_nodes) stop("the CPU has no nodes that a profiler of CUDA could show");
}

void NodeNamesFile::add(const CapturedGraph& graph, std::string_view key) {
  if (path_.empty()) return;
  try {
    if (const int code = write_all(path_, O_APPEND, node_names(graph, key)))
      stop("the file cannot be written: " + std::generic_category().message(code));
  } catch (const Error& e) {
    stop(e.problem() + "; remedy: " + e.remedy());
  }
}

void NodeNamesFile::stop(const std::string& problem) {
  if (!path_.empty()) log_.warn({"GRAPHSINK_NODE_NAMES=", path_, ": no names are written: ", problem});
  path_.clear();
}

}  // namespace graphsink
