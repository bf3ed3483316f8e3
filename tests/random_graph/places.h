// On which device the plan of a graph runs each node of the graph.
#pragma once

#include <vector>

#include "ir/graph_data.h"
#include "ir/plan.h"

namespace graphsink::testing {

// A plan holds only some of the nodes: others it has joined, or found to be the same as an earlier one.
class Places {
 public:
  Places(const GraphData& graph, const Plan& plan);

  bool on_host(int node) const { return on_host_[static_cast<std::size_t>(node)]; }

 private:
  void runs(int id, bool on_host);
  void choose_for_same_nodes();

  const GraphData& graph_;
  std::vector<bool> on_host_, is_known_;
};

}  // namespace graphsink::testing
