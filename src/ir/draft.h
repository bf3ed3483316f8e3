// Parts of a graph that may be taken back, and what Variables are while bodies are built.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph_data.h"

namespace graphsink {

// A Draft can take back all that is built after its construction in bodies of the current region, as if it had never
// been. Stacks that were added to loops from before stay, unused.
class Draft {
 public:
  explicit Draft(GraphData& graph);
  void take_back();

 private:
  GraphData& graph_;
  std::size_t nodes_, regions_, undivided_, records_, stops_, outputs_, next_made_;
  std::vector<VariableUse> variables_;
  // State of the current region, or of one around it, at construction.
  struct Around {
    int region;
    LoopCounter counter;
    std::size_t checks;
  };
  std::vector<Around> around_;
};

// The Values that are assigned to Variables, which a body may change for its own nodes.
class AssignedValues {
 public:
  explicit AssignedValues(const GraphData& graph) : variables_(graph.variables) {}

  // The numbers of the Variables to which another Value is assigned than here.
  std::vector<int> changed(const GraphData& graph) const;
  // The Value that the Variable has here.
  ValueRef value(const GraphData& graph, int variable) const;
  // Where it was assigned.
  Where where(int variable) const {
    return at(variable) < variables_.size() ? variables_[at(variable)].assigned_where : Where();
  }
  // Assigns what was assigned here.
  void restore(GraphData& graph) const;

 private:
  std::vector<VariableUse> variables_;  // those that were used so far
};

}  // namespace graphsink
