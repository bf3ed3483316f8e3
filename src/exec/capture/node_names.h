// Names for the nodes of captured graphs, of which profilers know only ids.
#pragma once

#include <string>
#include <string_view>

#include "base/log.h"
#include "device/device.h"

namespace graphsink {

// A line of JSON for each node of the graph, as Program::write_node_names() describes it. `key`: that of a SinkCache.
// Throws Error if the ids cannot be had.
std::string node_names(const CapturedGraph& graph, std::string_view key = {});

// Writes the file anew. Throws Error if that fails, and if there are no names. Does not wait for the reader of a pipe.
void write_node_names(const std::string& path, const std::string& names, const Where& where);

// The file that the environment variable GRAPHSINK_NODE_NAMES names, if it is set: names of whatever is captured are
// added to its end. Several programs and processes may use one file.
class NodeNamesFile {
 public:
  // `has_nodes`: whether what is captured has nodes that a profiler knows. If not, and the variable is set, it is
  // logged that no names are written.
  explicit NodeNamesFile(const Log& log, bool has_nodes = true);

  // Logs a warning if it fails, the first time. Does not wait for the reader of a pipe.
  void add(const CapturedGraph& graph, std::string_view key = {});
  bool is_wanted() const { return !path_.empty(); }

 private:
  void stop(const std::string& problem);

  std::string path_;  // empty: no names are written
  Log log_;
};

}  // namespace graphsink
