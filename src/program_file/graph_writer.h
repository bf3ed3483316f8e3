// The JSON of a graph.
#pragma once

#include <map>
#include <string>

#include "graphsink/tensor.h"
#include "program_file/graph_form.h"

namespace graphsink {

struct WrittenGraph {
  std::string json;
  std::map<std::string, Variable, std::less<>> variables;       // by the names of their tensors in the file
  std::map<std::string, const Tensor*, std::less<>> constants;  // the same; borrowed from the graph
};

// Throws Error(file, where, ...) for a graph that cannot be read again.
WrittenGraph write_form(const GraphData& graph, const OpNames& ops, const std::string& file, const Where& where);

}  // namespace graphsink
