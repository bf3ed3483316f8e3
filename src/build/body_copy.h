// Copies of bodies, for gradients, which need the values that were computed there.
#pragma once

#include <utility>
#include <vector>

#include "base/at.h"
#include "ir/graph_data.h"

namespace graphsink {

// Computes the values of a body once more, in the body under construction. The copies have the bits of the originals:
// random ops draw the same numbers. Ops with an effect on the host are not repeated.
class BodyCopy {
 public:
  // `where`: of the call of grad(). `parameters`, the outputs 0 of their nodes, take the place of those of a loop's
  // body. Throws Error if an op uses what one with an effect returns.
  BodyCopy(GraphData& graph, int body, const Where& where, const std::vector<ValueRef>& parameters = {})
      : graph_(graph), where_(where), copies_(graph.nodes.size()) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      copies_[at(graph.regions[at(body)].parameters[i].node)] = 1 + parameters[i].node;
    copy_nodes(body);
  }

  // The copy of a value of the body; the value itself if it was made outside.
  ValueRef operator()(ValueRef v) const;

 private:
  void copy_nodes(int body);
  void copy_node(int id);
  int copy_body(int body);
  void copy_all(std::vector<ValueRef>& values) const {
    for (ValueRef& v : values) v = (*this)(v);
  }

  GraphData& graph_;
  Where where_;
  // By node that existed at construction: 1 + the number of its copy or of the node that takes its place; 0: it is
  // outside; -1: it is not copied.
  std::vector<int> copies_;
};

}  // namespace graphsink
