// OpTime: the time that an op of a program takes, with its bytes and floating-point operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// An op of a plan, as Program::time_ops() has measured it.
struct OpTime {
  std::string op;                   // "matmul"; "fused" for several element-wise ops; "copy" between host and device
  Where where;                      // your line of code; without a line for what the plan adds itself
  std::vector<TensorType> inputs;   // types of its inputs; empty for a copy
  std::vector<TensorType> outputs;  // types of its outputs; for a copy, u8 [bytes that it copies]
  std::int64_t runs = 0;            // in all steps: 0 for a body that was not run
  double us = 0;                    // mean time of one run in microseconds
  std::uint64_t bytes = 0;          // that one run reads and writes: all operands, twice what is changed
  std::uint64_t flops = 0;          // OpDef::flops of one run; 0 where the op has none
};

}  // namespace graphsink
