// The op that computes a group of element-wise ops. The pass that makes such groups describes them here. On the CPU
// kernels/runtime/fused.cu computes them block by block; on a CUDA device kernels/runtime/fused_source.h makes a kernel
// of them.
#pragma once

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "graphsink/op.h"
#include "ir/fusion_rules.h"

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
  int id = -1;          // the node's number in the user's graph
  int graph_node = -1;  // see PlanNode::graph_node
  std::vector<FusedOperand> operands;
  std::vector<TensorType> types;       // types of the operands, then of the result
  const RowReduction* rows = nullptr;  // set if the op reduces rows of its operand (FusionRule::rows)
};

// The attributes of a node that is a group. All results in the group have the same number of elements, except those of
// reductions of rows (FusedOp::rows), which are outputs. The first op is none of these.
struct FusedAttrs {
  std::vector<FusedOp> ops;  // an op comes after those whose results it uses
  std::vector<int> outputs;  // the ops whose results are the outputs of the node, in order
  std::int64_t width = 0;    // the elements of the rows that are reduced, all of the same width; 0: none are
  // On a CUDA device, of a group that reduces no rows: where operands and results lie within the inputs and outputs of
  // the node, first the operands that FusedOperand::input counts, then `outputs`. Empty: each is an input or output.
  std::vector<Strided> places;
};

// The function by which a group on the CPU computes the op, if that is no ElementwiseRow: part by part, or not at all.
inline OutputPart part_of(const OpDef& op) { return op.elements.row ? nullptr : op.bodies.cpu().part; }

// The largest group. More would not fit into the cache of a core together.
constexpr std::size_t kMaxFusedOps = 48, kMaxFusedInputs = 24, kMaxFusedOutputs = 8;
// An op of a group has at most this many operands.
constexpr std::size_t kMaxFusedOperands = 4;
// On the CPU, a group that reduces rows computes some rows of all its results, then reduces these. It computes so many
// rows together, or a multiple. Ops that compute parts (part_of()) begin at multiples of kPartElements, so with such
// ops these rows must together have a multiple of kPartElements elements.
inline std::int64_t rows_at_once(std::int64_t width, bool has_parts) {
  return has_parts ? kPartElements / std::gcd(kPartElements, width) : 1;
}
// On the CPU, a group has no reduction if rows_at_once() of all its results, inputs and outputs take more bytes than
// this: then they would not stay in the cache.
constexpr std::size_t kMaxFusedRowBytes = 64 << 10;
// On a CUDA device, a row of a group that reduces rows is computed by a thread, a warp or a block, as the reduction
// alone would be. Longer rows than this must be many, else most of the device would be idle while they are computed.
// (Not verified on a GPU.)
inline bool are_enough_rows(std::int64_t rows, std::int64_t width) { return width <= 4096 || rows >= 1024; }

// At most so many inputs of a node may share memory with its outputs. They come first.
constexpr std::size_t kMaxFusedInPlace = 8;

}  // namespace graphsink
