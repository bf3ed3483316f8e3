#include "build/dependence.h"

#include <algorithm>

#include "base/at.h"

namespace graphsink {

Dependence::Dependence(const GraphData& graph, std::span<const ValueRef> origins, int begin)
    : graph_(graph), begin_(begin) {
  std::size_t outputs = 0;
  for (std::size_t id = at(begin); id < graph.nodes.size(); ++id) {
    first_.push_back(outputs);
    outputs += graph.nodes[id].outputs.size();
  }
  depends_.assign(outputs, false);
  for (ValueRef origin : origins) {
    if (origin.node < begin) early_origins_.push_back(origin);
    mark(origin);
  }
  do {
    for (std::size_t id = at(begin); id < graph.nodes.size(); ++id) visit(static_cast<int>(id));
  } while (carry_on());
}

bool Dependence::is_early_origin(ValueRef v) const {
  return std::find(early_origins_.begin(), early_origins_.end(), v) != early_origins_.end() &&
         is_float(graph_.type(v).dtype);
}

bool Dependence::mark(ValueRef v) {
  if (v.node < begin_ || depends_[index(v)] || !is_float(graph_.type(v).dtype)) return false;
  depends_[index(v)] = true;
  return true;
}

// Bodies come before their control node, and a parameter after its first value.
void Dependence::visit(int id) {
  const Node& node = graph_.nodes[at(id)];
  if (node.op == &parameter_op) {
    if ((*this)(node.attrs.as<ParameterAttrs>().initial)) mark({id, 0});
    return;
  }
  for (int body : node.bodies) {
    const Region& region = graph_.regions[at(body)];
    const auto& results = region.is_loop ? region.parameters : region.results;
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      const ValueRef v = j < results.size() ? results[j] : region.stacked[j - results.size()].value;
      if ((*this)(v)) mark({id, static_cast<int>(j)});
    }
  }
  if (!node.bodies.empty()) return;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!reads(node, i) || !(*this)(node.inputs[i])) continue;
    for (std::size_t j = 0; j < node.outputs.size(); ++j) mark({id, static_cast<int>(j)});
    return;
  }
}

bool Dependence::carry_on() {
  bool is_new = false;
  for (const Region& region : graph_.regions) {
    if (!region.is_loop) continue;
    std::size_t known =
        std::min(region.parameters.size(), region.results.size());  // a body under construction has no results
    for (std::size_t i = 0; i < known; ++i)
      if ((*this)(region.results[i]) && mark(region.parameters[i])) is_new = true;
  }
  return is_new;
}

}  // namespace graphsink
