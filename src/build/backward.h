// The work of grad(): a walk back from a loss, which adds the nodes of the gradients to the graph.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "build/body_copy.h"
#include "build/dependence.h"
#include "graphsink/control.h"
#include "ir/graph_data.h"

namespace graphsink {

class Backward {
 public:
  // `wrt`: what the gradients are for. `where`: of the call of grad(). Gradients pass through the nodes from `begin`
  // on.
  Backward(const std::shared_ptr<GraphData>& graph, const std::vector<ValueRef>& wrt, Where where, int begin = 0)
      : graph_(graph), wrt_(wrt), where_(where), depends_(*graph, wrt, begin) {}

  // The gradients of the loss. Throws Error where an op on the way has none.
  std::vector<Value> run(ValueRef loss);
  // The same for values of a body, whose gradients are given; an invalid one: there is none. The nodes of the body are
  // those from `first` to the last one of the graph. A gradient of a 16-bit value from outside that loops of the body
  // add up is of f32, not rounded yet.
  std::vector<Value> run_body(const std::vector<ValueRef>& values, const std::vector<Value>& upstream, int first);

 private:
  // Values that the bodies of a control node take from outside and hand gradients on to.
  struct Captured {
    std::vector<ValueRef> values;
    // Nodes of a loop's body whose gradients come from all iterations at once, behind the loop: slice_at of a stack
    // from outside, and products of rows with a matrix from outside. No other node of the body uses that stack or
    // matrix.
    std::vector<int> slices, products;
  };
  struct LoopGradient;

  void walk_body(const std::vector<ValueRef>& values, const std::vector<Value>& upstream, int first);
  void walk_back(int last, int first);
  std::vector<Value> results();
  // Where the gradient of a value is kept; an invalid one: none has reached it.
  Value& gradient_at(ValueRef v);
  Value one(ValueRef like);
  Value zeros_like(const Value& like);
  static Value as(DType dtype, const Value& v, const Where& where);
  // Adds to the gradient of a value. That of a 16-bit value may be of f32: a sum that is rounded when it is complete.
  void accumulate(ValueRef to, const Value& g);
  // The complete gradient of a value, in the value's dtype.
  Value rounded(ValueRef of, const Value& g) const;

  void step(int id);
  void step_op(int id, const Node& node);
  [[noreturn]] void refuse_op(const Node& node) const;
  // The gradients of the inputs of a node of that kind, for inputs, outputs and gradients of outputs that may be others
  // than those of the node itself.
  std::vector<Value> gradients_of(int id, const Node& node, std::span<const Value> inputs,
                                  std::span<const Value> outputs, std::span<const Value> upstream,
                                  std::span<const bool> needed);
  // The gradients by a Gradient::Formula.
  std::vector<Value> gradients_by_formula(const Node& node, const GradArgs& a);
  void check_formula(const Node& node, std::span<const Value> made) const;
  // The number of the composition that is the gradient of the node, or of the composition that the node is a part of.
  int gradient_of(const Node& node);
  void check_count(const Node& node, std::size_t results) const;
  void check_gradient(const Node& node, std::size_t input, const Value& gradient) const;

  void step_branch(int id, const Node& node);
  void step_loop(int id, const Node& node);  // loop_gradient.cpp
  [[noreturn]] void refuse_loop(const Node& node, std::size_t output) const;
  std::string inside(const Node& node, std::size_t output) const;
  Captured captured_by(const Node& node) const;
  void add_captured(int body, int outermost, Captured& captured) const;

  std::shared_ptr<GraphData> graph_;
  std::vector<ValueRef> wrt_;
  Where where_;
  Dependence depends_;
  std::unordered_map<int, std::vector<Value>> grads_;  // per node and output, of nodes that have any
  std::map<int, int> gradients_of_compositions_;
};

}  // namespace graphsink
