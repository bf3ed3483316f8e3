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

// The second derivatives of a case in one float dtype, for operands that are held exactly by `exact_in`, too, and none
// of which are equal. "s" is the sum of the gradients of sum(weight * op * op) for all float operands, each element
// with a weight, and "si" is the gradient of s for operand i. Operand i is input "xi". Halves are summed in f32.
struct SecondCase {
  SecondCase(const OpRow& row, const Case& operands, DType type, DType exact_in);

  // Whether the result is of floats, so that it has gradients.
  bool has_gradients() const { return is_float(output.dtype()); }
  bool has_gradient(std::size_t operand) const { return dtypes[operand] == dtype; }

  DType dtype;
  Graph graph;
  Arrays arrays;
  std::vector<DType> dtypes;
  std::vector<Value> values;
  Value output;

 private:
  void add_gradients(std::mt19937& random);
};

}  // namespace graphsink::testing
