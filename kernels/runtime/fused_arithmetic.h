// Several arithmetic ops in a group of element-wise ops on the CPU: one loop computes them, and the results between
// them stay in registers of the processor. A loop of one such op is as slow as its stores are.
#pragma once

#include <span>

#include "ir/fused.h"

namespace graphsink {

// The function of an op that adds, subtracts or multiplies two operands of f32; Scalar::other for any other op.
Scalar arithmetic_of(const FusedOp& op);

// Two ops of a group, of which the second is the only one that uses the result of the first.
struct FusedPair {
  const FusedOp& first;
  const FusedOp& second;
  int operand;  // number of the operand of `second` that is the result of `first`
  // Steps of the two operands of `first`, then of the other operand of `second`: 0 or 1, as in ElementwiseRow.
  std::int64_t steps[3];
};

// Returns the function that computes both from these three operands, with the bits of the separate ops; nullptr if
// there is none. It may be called where an ElementwiseRow may: the result may be an operand whose step is 1.
ElementwiseRow row_of(const FusedPair& pair);

// x * factor + summand, each rounded: an addition, a subtraction or a multiplication of x and a number, or a
// multiplication and one of the others. It has the addresses of the numbers: a loop that read copies of them would
// wait until these are stored (see for_each_index_avx512()).
struct Affine {
  const float* factor = nullptr;   // times factor_sign; nullptr: 1
  const float* summand = nullptr;  // times summand_sign; nullptr: -0, which changes nothing
  float factor_sign = 1, summand_sign = 1;
};
constexpr std::size_t kMostAffine = 4;
// Computes the expressions one after the other, each of the result of the one before, for `size` elements. There are
// from 1 to kMostAffine of them. `out` may be x.
void run_affine(std::int64_t size, const float* x, std::span<const Affine> expressions, float* out);

}  // namespace graphsink
