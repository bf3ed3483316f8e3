// Rules by which the planner computes ops together with others. An op says what it computes (OpDef); a rule says how
// the planner may compute it in another way, with the same bits. A rule is a constant beside its op, and
// kernels/runtime/fusion_rules.h lists all of them; passes see them as data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graphsink/op.h"
#include "ir/strided.h"

namespace graphsink {

// An op that takes the place of others, with its attributes. No op means that there is none.
struct Fused {
  const OpDef* op = nullptr;
  Attrs attrs;
};

// A node with one output, and the first of the nodes that use this output. The inputs of the fused op are those of the
// node, then the other inputs of `next`. Its outputs are those of `next`, then, if `is_kept`, the output of the node.
struct FuseArgs {
  const Attrs& attrs;
  std::span<const TensorType> inputs;
  const TensorType& output;
  bool is_kept;  // other nodes use the output, too
  const OpDef& next;
  const Attrs& next_attrs;
  std::span<const TensorType> next_inputs;
  int operand;  // the number of the input of `next` that is the output
};

// A node, and where its operands lie.
struct StridedArgs {
  const Attrs& attrs;
  // Places of the inputs, then of the outputs. `tensor` is a number among the inputs of the op that the rule returns,
  // and for an output among its outputs. Strides are from 0 to 2^31 - 1; that of the last axis is 1, unless the axis
  // has one element.
  std::span<const Strided> operands;
};

// How an op that makes one element of each row of its operand, such as a sum over the last axes, is computed together
// with the element-wise ops that compute these rows.
struct RowReduction {
  // The number of elements of a row, at least 2, where rows lie one after the other in the operand; or 0 if an op with
  // these attributes does something else.
  std::int64_t (*width)(const TensorType& operand, const Attrs& attrs) = nullptr;
  // Makes elements of the result, on the CPU, of as many rows, which begin at `in`: with the bits of the CPU body and
  // with what prepare() returned, but without a workspace.
  void (*run)(const CpuArgs& args, std::int64_t rows, const void* in, void* out) = nullptr;
  // How the kernel of a group on a CUDA device combines the elements of a row, with the bits of the CUDA body: a C++
  // expression in `width`, of one of the types of kernels/reduce/operations.h. nullptr: the op stays a kernel of its
  // own.
  std::string (*operation)(DType operand, const Attrs& attrs) = nullptr;
};

// A rule about one op, of one of these kinds. All results must be bit-identical to those of the separate ops. Several
// rules may fuse a node of the same op with different ones; of the other kinds, an op has one at most.
struct FusionRule {
  const OpDef* op = nullptr;
  // A node of the op and the next node become one: returns the op that computes both.
  Fused (*fuse)(const FuseArgs&) = nullptr;
  // The op can read and write parts of other tensors: returns the op that does so. The planner calls it where nodes
  // around this one only move elements, which are not needed then.
  Fused (*strided)(const StridedArgs&) = nullptr;
  // The op, which has one operand and one output, reduces rows. The planner joins it with the element-wise ops that
  // compute its operand.
  RowReduction rows = {};
};

}  // namespace graphsink
