// Which values depend on which, as far as a gradient can follow.
#pragma once

#include <span>
#include <vector>

#include "base/at.h"
#include "ir/graph_data.h"

namespace graphsink {

// True if `op` reads the elements of an operand: what looks at a type alone hands no gradient on.
inline bool reads(const Node& node, std::size_t operand) {
  return access_of(*node.op, operand, node.inputs.size()) == Access::read;
}

// The values of a graph that depend on one of the `origins`: floats, along floats that ops read, through the bodies of
// branches and loops, too, those under construction included. Predicates hand nothing on. Borrows the graph, of which
// it sees the nodes that were there when it was made.
class Dependence {
 public:
  Dependence(const GraphData& graph, std::span<const ValueRef> origins);

  // Whether the value is one of the origins or depends on one.
  bool operator()(ValueRef v) const { return depends_[index(v)]; }

 private:
  std::size_t index(ValueRef v) const { return first_[at(v.node)] + at(v.output); }
  // Returns true if the value did not depend before.
  bool mark(ValueRef v);
  void visit(int id);
  // Hands on to the next iteration of loops; returns true if that was new.
  bool carry_on();

  const GraphData& graph_;
  std::vector<std::size_t> first_;  // per node: where its outputs are in depends_
  std::vector<bool> depends_;
};

}  // namespace graphsink
