// Nodes whose outputs are known before they are inferred, such as those of a file.
#pragma once

#include <cstddef>
#include <optional>

#include "ir/graph_data.h"

namespace graphsink {

// infer_node() for a node with so many outputs. Throws Error, before it tries other sizes, if the op makes another
// number of them.
void infer_node(GraphData& graph, Node& node, std::optional<std::size_t> outputs);

}  // namespace graphsink
