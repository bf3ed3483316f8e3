// Common code of ops that are made of other ops.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"

namespace graphsink {

// Data that the parts of one composed op share: its name, the user's line and placement. Errors name the op, not its
// parts, and CompileOptions::check_finite checks its results alone: finish() says which these are.
class Composed {
 public:
  Composed(std::string_view op, Where where, Placement placement = {}) : placement(placement), op_(op), where_(where) {}

  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    throw Error(std::string(op_), where_, problem, remedy);
  }

  // The operands as Values of one graph, as emit() takes them. The parts are made from here on.
  std::vector<Value> values(std::initializer_list<Arg> operands) {
    std::vector<Value> values = operand_values(op_, std::span(operands.begin(), operands.size()));
    begin(values[0]);
    return values;
  }
  // In place of values(), for an operand that is a Value. Ops of an Eager have run already, so nothing is noted.
  void begin(const Value& operand) {
    if (operand.eager()) return;
    graph_ = operand.graph();
    first_ = static_cast<int>(graph_->nodes.size());
  }
  // Called last, with all results. A result may be older than the parts.
  void finish(std::initializer_list<Value> results) const {
    if (!graph_) return;
    std::vector<ValueRef> made;
    for (const Value& result : results) made.push_back({result.node(), result.output()});
    graph_->compose(graph_->add_composition({op_}), first_, made);
  }
  Value finished(Value result) const {
    finish({result});
    return result;
  }
  template <class T>
  Arg arg(const T& operand) const {
    return Arg(operand, where_);
  }

  void expect_floats(const Value& x, const char* what) const {
    if (!is_float(x.dtype())) fail(std::string(what) + " is not of floats: " + to_string(x.type()), "cast() it");
  }

  Value as(DType dtype, const Value& x) const { return x.dtype() == dtype ? x : cast(arg(x), dtype, placement); }
  // Halves are computed in f32.
  Value wide(const Value& x) const { return as(is_half(x.dtype()) ? DType::f32 : x.dtype(), x); }

  const Placement placement;

 private:
  std::string_view op_;
  Where where_;
  std::shared_ptr<GraphData> graph_;
  int first_ = 0;  // the first part
};

}  // namespace graphsink
