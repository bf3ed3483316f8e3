#include "ir/draft.h"

#include "base/at.h"

namespace graphsink {

Draft::Draft(GraphData& graph)
    : graph_(graph),
      nodes_(graph.nodes.size()),
      regions_(graph.regions.size()),
      undivided_(graph.undivided.size()),
      records_(graph.records.size()),
      stops_(graph.stops.size()),
      outputs_(graph.outputs.size()),
      next_made_(graph.next_made),
      variables_(graph.variables) {
  for (int region = graph.current_region; region >= 0; region = graph.regions[at(region)].parent)
    around_.push_back({region, graph.regions[at(region)].counter, graph.regions[at(region)].checks.size()});
}

void Draft::take_back() {
  const int end = static_cast<int>(nodes_);
  graph_.nodes.erase(graph_.nodes.begin() + end, graph_.nodes.end());
  graph_.rank_nodes.erase(graph_.rank_nodes.lower_bound(end), graph_.rank_nodes.end());
  graph_.undivided.erase(graph_.undivided.begin() + static_cast<std::ptrdiff_t>(undivided_), graph_.undivided.end());
  graph_.regions.erase(graph_.regions.begin() + static_cast<std::ptrdiff_t>(regions_), graph_.regions.end());
  for (Region& region : graph_.regions) std::erase_if(region.nodes, [&](int id) { return id >= end; });
  for (const Around& around : around_) {
    Region& region = graph_.regions[at(around.region)];
    region.counter = around.counter;
    region.checks.resize(around.checks);
  }
  std::erase_if(graph_.variable_index, [&](const auto& item) { return at(item.second) >= variables_.size(); });
  graph_.variables = variables_;
  graph_.records.erase(graph_.records.begin() + static_cast<std::ptrdiff_t>(records_), graph_.records.end());
  graph_.stops.erase(graph_.stops.begin() + static_cast<std::ptrdiff_t>(stops_), graph_.stops.end());
  graph_.outputs.erase(graph_.outputs.begin() + static_cast<std::ptrdiff_t>(outputs_), graph_.outputs.end());
  std::erase_if(graph_.numbers, [&](const auto& item) { return item.second.node >= end; });
  if (graph_.random_state.node >= end) graph_.random_state = {};
  for (Update& update : graph_.updates)
    if (update.node >= end) update.node = -1;
  graph_.next_made = next_made_;
}

std::vector<int> AssignedValues::changed(const GraphData& graph) const {
  std::vector<int> changed;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ValueRef before = i < variables_.size() ? variables_[i].assigned : ValueRef{};
    if (!(graph.variables[i].assigned == before)) changed.push_back(static_cast<int>(i));
  }
  return changed;
}

ValueRef AssignedValues::value(const GraphData& graph, int variable) const {
  const bool is_known = at(variable) < variables_.size() && variables_[at(variable)].assigned.node >= 0;
  return is_known ? variables_[at(variable)].assigned : graph.variables[at(variable)].read;
}

void AssignedValues::restore(GraphData& graph) const {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    graph.variables[i].assigned = i < variables_.size() ? variables_[i].assigned : ValueRef{};
    graph.variables[i].assigned_where = where(static_cast<int>(i));
  }
}

}  // namespace graphsink
