// A case of a row of the op table, as a graph.
#pragma once

#include <random>

#include "op_table.h"

namespace graphsink::testing {

Array make_array(const Operand& operand, DType dtype, bool is_coarse, std::mt19937& random);
Tensor to_tensor(const Array& array, DType dtype);

// One case of a row in one dtype, in one graph: the op, output "y", and the gradients of sum(weight * op) for each
// float operand i, output "gi".
struct OpCase {
  OpCase(const OpRow& row, const Case& operands, DType type, bool is_transposed);

  bool has_gradient(std::size_t operand) const { return has_grad && dtypes[operand] == dtype; }

  DType dtype;
  bool has_grad;
  Graph graph;
  Arrays arrays;
  std::vector<DType> dtypes;
  std::vector<Value> values;
  Value output;
  Array weight;

 private:
  void add_gradients(std::mt19937& random);
};

}  // namespace graphsink::testing
