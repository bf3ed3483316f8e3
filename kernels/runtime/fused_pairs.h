// Pairs of arithmetic ops in a group of element-wise ops on the CPU: one loop computes both, and the result of the
// first stays in a register of the processor. A loop of one such op is as slow as its stores are.
#pragma once

#include "ir/fused.h"

namespace graphsink {

// Two ops of a group, of which the second is the only one that uses the result of the first.
struct FusedPair {
  const FusedOp& first;
  const FusedOp& second;
  int operand;  // of `second`: the result of `first`
  // Of the operands of `first`, and of the other operand of `second`: as in ElementwiseRow, 0 or 1.
  std::int64_t steps[3];
};

// Returns the function that computes both from these three operands, with the bits of the separate ops; nullptr if
// there is none. It may be called where an ElementwiseRow may: the result may be an operand whose step is 1.
ElementwiseRow row_of(const FusedPair& pair);

}  // namespace graphsink
