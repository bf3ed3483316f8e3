// Names in a checkpoint that holds a graph, too: a program file.
#pragma once

#include <string_view>

namespace graphsink {

constexpr std::string_view kGraphKey = "graphsink.graph";            // metadata: the graph
constexpr std::string_view kConstantPrefix = "graphsink.constant.";  // tensors: constants of the graph

}  // namespace graphsink
