// Which values depend on which, as far as a gradient can follow.
#pragma once

#include <span>
#include <vector>

#include "base/at.h"
#include "ir/graph_data.h"

namespace graphsink {

// Whether `op` reads the elements of an operand. No gradient flows through an operand of which only the type is used.
inline bool reads(const Node& node, std::size_t operand) {
  return access_of(*node.op, operand, node.inputs.size()) == Access::read;
}

// The float values of a graph that depend on one of the `origins` through floats that ops read, also through the bodies
// of branches and loops, including those under construction. Predicates do not count. Borrows the graph, and sees the
// nodes from `begin` on that exist at construction.
class Dependence {
 public:
  Dependence(const GraphData& graph, std::span<const ValueRef> origins, int begin = 0);

  // Whether the value is one of the origins or depends on one.
  bool operator()(ValueRef v) const { return v.node < begin_ ? is_early_origin(v) : depends_[index(v)]; }

 private:
  bool is_early_origin(ValueRef v) const;
  std::size_t index(ValueRef v) const { return first_[at(v.node - begin_)] + at(v.output); }
  // Returns true if the value did not depend before.
  bool mark(ValueRef v);
  void visit(int id);
  // Passes dependence on to the next iteration of loops. Returns true if a value did not depend before.
  bool carry_on();

  const GraphData& graph_;
  int begin_;
  std::vector<ValueRef> early_origins_;  // origins that are values of nodes before `begin_`
  std::vector<std::size_t> first_;       // per node from `begin_` on: where its outputs are in depends_
  std::vector<bool> depends_;
};

}  // namespace graphsink
