// Products of matrices, for passes that know what a product is.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

extern const OpDef matmul_op;

// Whether a product with these attributes multiplies each row of `a`, of any rank, by one matrix. Then a further axis
// in front of those of `a` only adds rows.
bool is_rows_by_matrix(const Attrs& attrs, const TensorType& a, const TensorType& b);

// The attributes of the same product with a result of f32. For operands of 16 bits it is not rounded then.
Attrs unrounded(const Attrs& attrs);

}  // namespace graphsink
