// The op that computes a group of element-wise ops. The pass that makes such groups describes them here. On the CPU
// kernels/runtime/fused.cu computes them block by block; on a CUDA device kernels/runtime/fused_source.h makes a kernel
// of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graphsink/op.h"

namespace graphsink {

// Where an op of a group finds an operand.
struct FusedOperand {
  int op = -1;     // if it is not negative: the result of this earlier op of the group
  int input = -1;  // if it is not negative: this input of the node; if neither is given, only the type is used
};

// One op of a group, which has one result.
struct FusedOp {
  const OpDef* op = nullptr;
  Attrs attrs;
  Where where;
  int id = -1;  // the node's number in the user's graph
  std::vector<FusedOperand> operands;
  std::vector<TensorType> types;  // of the operands, then of the result
};

// The attributes of a node that is a group. All results in the group have the same number of elements.
struct FusedAttrs {
  std::vector<FusedOp> ops;  // an op comes after those whose results it uses
  std::vector<int> outputs;  // the ops whose results are the outputs of the node, in order
};

// The largest group. More would not fit into the cache of a core together.
constexpr std::size_t kMaxFusedOps = 48, kMaxFusedInputs = 24, kMaxFusedOutputs = 8;
// An op of a group has at most this many operands.
constexpr std::size_t kMaxFusedOperands = 4;
// At most so many inputs of a node may share memory with its outputs. They come first.
constexpr std::size_t kMaxFusedInPlace = 8;

}  // namespace graphsink
