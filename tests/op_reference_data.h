// References for products and for ops that move data.
#pragma once

#include "op_reference.h"

namespace graphsink::testing {

inline Array batched_product(const Array& a, const Array& b, bool transpose_a, bool transpose_b) {
  auto leading = [](const Shape& s) { return Shape(s.dims().first(static_cast<std::size_t>(s.rank() - 2))); };
  auto matrix = [](const Array& x, std::int64_t index) {
    Array one({x.shape[-2], x.shape[-1]});
    for (std::int64_t i = 0; i < one.shape.size(); ++i) one[i] = x[index * one.shape.size() + i];
    return one;
  };
  Shape batch_a = leading(a.shape), batch_b = leading(b.shape);
  Shape batch = map(Array(batch_a), Array(batch_b), [](double, double) { return 0; }).shape;
  Array y;
  y.shape = batch;
  y.shape.push_back(a.shape[transpose_a ? -1 : -2]);
  y.shape.push_back(b.shape[transpose_b ? -2 : -1]);
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    Array one = product(matrix(a, position(i, batch, batch_a)), matrix(b, position(i, batch, batch_b)), transpose_a,
                        transpose_b);
    y.at.insert(y.at.end(), one.at.begin(), one.at.end());
  }
  return y;
}

}  // namespace graphsink::testing
