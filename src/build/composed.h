// What ops that are made of other ops have in common.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/op.h"
#include "graphsink/ops.h"
#include "ir/graph_data.h"

namespace graphsink {

// What the parts of one composed op share: its name, the user's line and placement.
class Composed {
 public:
  Composed(std::string_view op, Where where, Placement placement = {}) : placement(placement), op_(op), where_(where) {}

  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    throw Error(std::string(op_), where_, problem, remedy);
  }

  // The operands as Values of one graph, as emit() takes them.
  std::vector<Value> values(std::initializer_list<Arg> operands) const {
    return operand_values(op_, std::span(operands.begin(), operands.size()));
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
};

}  // namespace graphsink
