// Graphs that go through a file.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "graphsink/graphsink.h"
#include "temporary_directory.h"

namespace graphsink::testing {

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The graph as it is read from its file. Throws if the graph that was read is written in another way: then something
// was lost.
inline LoadedGraph through_file(const Graph& graph, std::span<const FileOp> ops = {}) {
  const TemporaryDirectory directory;
  WriteGraphOptions options;
  options.ops = ops;
  write_graph(directory / "graph", graph, options);
  LoadedGraph loaded = read_graph(directory / "graph", {{ops}});
  write_graph(directory / "again", loaded.graph, options);
  if (file_bytes(directory / "graph") != file_bytes(directory / "again"))
    throw std::runtime_error("the graph that was read is written in another way");
  return loaded;
}

}  // namespace graphsink::testing
