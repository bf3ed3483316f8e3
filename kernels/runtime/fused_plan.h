// A group of element-wise ops on the CPU (fused.cu), as instructions that compute block after block of its results.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/at.h"
#include "kernels/runtime/fused_arithmetic.h"
#include "kernels/runtime/fused_layout.h"
#include "kernels/support/layout.h"

namespace graphsink {

constexpr std::size_t kScratchBytes = 24 << 10;  // bytes for registers, mostly results that are not outputs
constexpr std::int64_t kMostInBlock = 4096;      // elements
// Where elements are: the inputs, the outputs, slices in inputs, then registers, which are parts of the scratch memory.
// There is at most one slice or register for each op, and one register for each operand that is broadcast, and for each
// output.
constexpr std::size_t kMaxRegisters = kMaxFusedOps + kMaxFusedInputs + kMaxFusedOutputs;
constexpr std::size_t kMaxPlaces = kMaxFusedInputs + kMaxFusedOutputs + kMaxRegisters;
// Most results of a group that are alive at once: each op can end the lives of kMaxFusedOperands results at best, and
// begins one. The scratch memory has room for blocks of kPartElements even in the largest group.
constexpr std::size_t kMostAlive = ((kMaxFusedOperands - 1) * kMaxFusedOps + 1) / kMaxFusedOperands;
static_assert(kScratchBytes / (kMostAlive + kMaxFusedOperands + kMaxFusedOutputs) / sizeof(double) >=
              static_cast<std::size_t>(kPartElements));

// The addresses of one execution of the node.
struct FusedFrame {
  std::array<std::byte*, kMaxPlaces> base;
  std::array<std::int32_t, kMaxPlaces> step;  // bytes from run to run of the group (FusedLayout); of registers 0
  std::byte* address(int place, std::int64_t run) const { return base[at(place)] + run * step[at(place)]; }
};

// Where the numbers of an Affine are: its factor is factor_sign times the number at the place `factor`, or times 1 if
// that is -1; its summand is summand_sign times the number at the place `summand`, or -0 if that is -1.
struct AffinePlaces {
  int factor = -1, summand = -1;
  float factor_sign = 1, summand_sign = 1;
};

// Computes a block of one result.
struct FusedInstruction {
  ElementwiseRow row = nullptr;                // function of an element-wise op, or of a pair of them
  OutputPart part = nullptr;                   // function of an op that computes parts
  decltype(RowReduction::run) rows = nullptr;  // function of a reduction
  // Several ops that are computed together, each of one element and one number: the elements are at from[0], the
  // numbers at these places. Empty in other instructions.
  std::vector<AffinePlaces> affine;
  bool stores_runs = false;  // from a register to an output
  // Layout of a broadcast operand. If none of the above is set, the instruction copies the operand element by element
  // for the op that uses it.
  Layout<1> layout;
  int word = 1;  // bytes of an element

  const FusedOp* op = nullptr;
  std::shared_ptr<const void> local;  // data from OpDef::prepare, if `part` or `rows` is set
  int operands = 0;
  std::array<int, kMaxFusedOperands> from{};  // places; -1: only the type is used
  std::array<std::int64_t, kMaxFusedOperands> steps{};
  int to = -1;  // a place
};

// An output that an instruction stores before a later one reads an input, which may be in the same memory. If it is,
// the blocks of the output are kept in a register until the end of the block.
struct FusedHazard {
  int output = -1, input = -1, kept = -1;  // places
};

// A slice of an input.
struct FusedSlice {
  int input = -1;
  std::int64_t begin = 0;  // bytes
};

struct FusedPlan {
  FusedAttrs attrs;  // instructions point into it
  FusedLayout layout;
  std::vector<FusedInstruction> instructions;
  std::vector<FusedHazard> hazards;
  std::int64_t size = 0, block = 0, tile = 0;  // runs
  int inputs = 0, outputs = 0;
  std::vector<FusedSlice> slices;
  std::vector<std::int32_t> steps;  // FusedFrame::step, of all places
  std::size_t register_bytes = 0;

  int first_register() const { return inputs + outputs + static_cast<int>(slices.size()); }
};

// Makes the instructions of a group and chooses their registers.
std::shared_ptr<const FusedPlan> compile_group(const PrepareArgs&);

}  // namespace graphsink
