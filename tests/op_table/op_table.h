// The op table: a row for each op of ops.h, or for each way to call it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "op_reference.h"

namespace graphsink::testing {

// One operand of a case: of the dtype under test, or i32 indices below `limit`.
struct Operand {
  Shape shape;
  int limit = 0;
  Operand(Shape s) : shape(s) {}  // NOLINT: implicit
  Operand(std::initializer_list<std::int64_t> dims) : shape(dims) {}
};
Operand indices(const Shape& shape, int limit);
using Case = std::vector<Operand>;

struct OpRow {
  std::string name;  // in ops.h
  std::vector<DType> dtypes;
  std::vector<Case> cases;
  std::function<Value(const std::vector<Value>&)> apply;
  std::function<Array(const Arrays&)> reference;
  bool has_grad = false;
  bool is_coarse = false;    // inputs are multiples of a half, so that some are equal
  bool is_positive = false;  // inputs are
  // Why the op has no gradient, in the words of ops.h; for ops that have one in another row, empty.
  std::string no_gradient_because = {};
};

std::vector<OpRow> op_table();

}  // namespace graphsink::testing
