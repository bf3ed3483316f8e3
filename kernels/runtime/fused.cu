// Groups of element-wise ops on the CPU (ir/fused.h): each op computes a block of its result, one op after the other,
// then all compute the next block. The blocks of all results in the group fit into the first-level cache together. Ops
// of simple arithmetic that use each other's results are computed together: two, or more if all but one of their
// operands are numbers (fused_arithmetic.h). If the group reduces rows, a block is some of them, and they are reduced
// when they are computed. Slices of inputs are read where they are (fused_layout.h).
#include <array>
#include <cstring>
#include <vector>

#include "ir/bound_node.h"
#include "kernels/runtime/fused_plan.h"
#include "kernels/runtime/fusion_rules.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/strided_copy.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

// Calls run(CpuArgs) for a part or a reduction, with these addresses.
template <class Run>
void run_op(const FusedInstruction& instruction, const CpuArgs& a, void* const* pointers, const Run& run) {
  BoundNode node = bound_node(a);
  node.op = instruction.op->op;
  node.attrs = &instruction.op->attrs;
  node.pointers = pointers;
  node.types = instruction.op->types.data();
  node.inputs = instruction.operands;
  node.outputs = 1;
  node.local = instruction.local.get();
  node.workspace = nullptr;
  node.workspace_bytes = 0;
  node.id = instruction.op->id;
  node.where = instruction.op->where;
  run(CpuArgs(node));
}

void run_part(const FusedInstruction& instruction, const CpuArgs& a, const FusedFrame& frame, std::int64_t begin,
              std::int64_t size, void* out) {
  void* pointers[kMaxFusedOperands + 1] = {};
  for (int i = 0; i < instruction.operands; ++i)
    if (const int from = instruction.from[static_cast<std::size_t>(i)]; from >= 0) pointers[i] = frame.address(from, 0);
  run_op(instruction, a, pointers, [&](const CpuArgs& args) { instruction.part(args, begin, size, out); });
}

// Reduces rows of a result, of which `begin` and `size` count the elements.
void run_rows(const FusedInstruction& instruction, const CpuArgs& a, const FusedFrame& frame, std::int64_t begin,
              std::int64_t size) {
  const std::int64_t width = a.local<FusedPlan>().attrs.width;
  const void* in = frame.address(instruction.from[0], begin);
  void* out = frame.address(instruction.to, begin / width);
  void* const pointers[2] = {};
  run_op(instruction, a, pointers, [&](const CpuArgs& args) { instruction.rows(args, size / width, in, out); });
}

void run_affine_at(const std::vector<AffinePlaces>& places, const FusedFrame& frame, std::int64_t size, const void* x,
                   void* out) {
  Affine expressions[kMostAffine];
  auto number = [&](int place) {
    return place < 0 ? nullptr : reinterpret_cast<const float*>(frame.address(place, 0));
  };
  for (std::size_t k = 0; k < places.size(); ++k) {
    expressions[k] = {number(places[k].factor), number(places[k].summand), places[k].factor_sign,
                      places[k].summand_sign};
  }
  run_affine(size, static_cast<const float*>(x), std::span(expressions, places.size()), static_cast<float*>(out));
}

void store_runs(const FusedInstruction& instruction, const FusedLayout& layout, const FusedFrame& frame,
                std::int64_t runs, void* result) {
  with_word(instruction.word, [&]<class T>(T) {
    const auto* from = reinterpret_cast<const T*>(frame.address(instruction.from[0], 0));
    copy_rows(static_cast<T*>(result), layout.run, from, layout.pitch, runs, layout.run);
  });
}

void load_broadcast(const FusedInstruction& instruction, const FusedFrame& frame, std::int64_t begin, std::int64_t size,
                    void* out) {
  with_word(instruction.word, [&]<class T>(T) {
    const auto* operand = reinterpret_cast<const T*>(frame.address(instruction.from[0], 0));
    copy_elements(instruction.layout, operand, begin, begin + size, static_cast<T*>(out));
  });
}

// Computes `runs` runs from the run `begin`. Only ops of elements are in groups whose runs are more than an element.
void run_instruction(const FusedInstruction& instruction, const CpuArgs& a, const FusedFrame& frame, std::int64_t begin,
                     std::int64_t runs) {
  const FusedLayout& layout = a.local<FusedPlan>().layout;
  if (instruction.rows) return run_rows(instruction, a, frame, begin, runs);
  void* out = frame.address(instruction.to, begin);
  const std::int64_t size = (runs - 1) * layout.pitch + layout.run;
  if (!instruction.affine.empty())
    return run_affine_at(instruction.affine, frame, size, frame.address(instruction.from[0], begin), out);
  if (instruction.row) {
    const void* in[kMaxFusedOperands];
    for (std::size_t i = 0; i < static_cast<std::size_t>(instruction.operands); ++i)
      in[i] = frame.address(instruction.from[i], begin);
    return instruction.row(size, in, instruction.steps.data(), out);
  }
  if (instruction.part) return run_part(instruction, a, frame, begin, size, out);
  if (instruction.stores_runs) return store_runs(instruction, layout, frame, runs, out);
  load_broadcast(instruction, frame, begin, size, out);
}

// `scratch` is the memory of the registers. Computes runs [first, end).
void run_blocks(const CpuArgs& a, std::int64_t first, std::int64_t end, std::byte* scratch) {
  const auto& plan = a.local<FusedPlan>();
  FusedFrame frame;
  for (int i = 0; i < plan.inputs; ++i) frame.base[at(i)] = const_cast<std::byte*>(a.in<std::byte>(i));
  for (int j = 0; j < plan.outputs; ++j) frame.base[at(plan.inputs + j)] = a.out<std::byte>(j);
  for (std::size_t i = 0; i < plan.slices.size(); ++i)
    frame.base[at(plan.inputs + plan.outputs) + i] = frame.base[at(plan.slices[i].input)] + plan.slices[i].begin;
  const std::size_t first_register = at(plan.first_register());
  for (std::size_t r = first_register; r < plan.steps.size(); ++r)
    frame.base[r] = scratch + (r - first_register) * plan.register_bytes;
  std::copy(plan.steps.begin(), plan.steps.end(), frame.step.begin());
  std::array<const FusedHazard*, kMaxFusedOutputs> kept;
  std::array<std::byte*, kMaxFusedOutputs> stored;  // where these outputs belong
  std::size_t kept_outputs = 0;
  for (const FusedHazard& hazard : plan.hazards) {
    const auto output = at(hazard.output);
    if (frame.base[output] != frame.base[at(hazard.input)]) continue;
    stored[kept_outputs] = frame.base[output];
    kept[kept_outputs++] = &hazard;
    frame.base[output] = frame.base[at(hazard.kept)];
    frame.step[output] = 0;
  }
  for (std::int64_t begin = first; begin < end; begin += plan.block) {
    const std::int64_t size = std::min(plan.block, end - begin);
    for (const FusedInstruction& instruction : plan.instructions) run_instruction(instruction, a, frame, begin, size);
    for (std::size_t k = 0; k < kept_outputs; ++k) {
      const std::int64_t run = plan.steps[at(kept[k]->output)];
      std::memcpy(stored[k] + begin * run, frame.base[at(kept[k]->kept)], static_cast<std::size_t>(size * run));
    }
  }
}

// For groups that reduce rows, and those that have long runs. Each op, input and output takes at most one register, but
// an op with kMaxFusedOperands operands that are one broadcast input may take one more. kMaxFusedRowBytes holds at
// least four: an op, the reduction, an input and an output.
constexpr std::size_t kRowScratchBytes = kMaxFusedRowBytes + kMaxFusedRowBytes / 4;
static_assert(kMaxFusedOperands <= 4);

template <std::size_t bytes>
void run_with_scratch(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  alignas(64) std::byte scratch[bytes];
  run_blocks(a, first, end, scratch);
}

std::int64_t count_fused_tiles(const BodyArgs& a) {
  const auto& plan = a.local<FusedPlan>();
  return (plan.size + plan.tile - 1) / plan.tile;
}

void run_fused_tiles(const CpuArgs& a, std::int64_t first, std::int64_t last) {
  const auto& plan = a.local<FusedPlan>();
  const std::int64_t begin = first * plan.tile, end = std::min(last * plan.tile, plan.size);
  const std::size_t registers = plan.steps.size() - at(plan.first_register());
  const bool is_small = registers * plan.register_bytes <= kScratchBytes;
  (is_small ? run_with_scratch<kScratchBytes> : run_with_scratch<kRowScratchBytes>)(a, begin, end);
}

constexpr Tiles kFusedTiles{count_fused_tiles, run_fused_tiles};

Prepared prepare_fused(const PrepareArgs& p) { return p.cuda ? prepare_fused_kernel(p) : Prepared{compile_group(p)}; }

template <std::size_t inputs>
constexpr auto kInPlace = [] {
  std::array<Alias, kMaxFusedOutputs * inputs> aliases{};
  for (std::size_t j = 0; j < kMaxFusedOutputs; ++j)
    for (std::size_t i = 0; i < inputs; ++i) aliases[j * inputs + i] = {static_cast<int>(j), static_cast<int>(i)};
  return aliases;
}();

template <std::size_t inputs>
constexpr OpDef fused_op() {
  OpDef op{.name = "fused",
           .traits = {.kernels_wait = true},
           .prepare = prepare_fused,
           .bodies = {kFusedTiles, run_fused_kernel}};
  if constexpr (inputs > 0) op.in_place = kInPlace<inputs>;
  return op;
}

// Tensors within larger ones are not overwritten in place: fused_kernel_ops[0] has no output in place of an input.
Fused place_within(const StridedArgs& a) {
  FusedAttrs attrs = a.attrs.as<FusedAttrs>();
  attrs.places.assign(a.operands.begin(), a.operands.end());
  return {&fused_kernel_ops[0], std::move(attrs)};
}

}  // namespace

const OpDef fused_ops[] = {fused_op<0>(), fused_op<1>(), fused_op<2>(), fused_op<3>(), fused_op<4>(),
                           fused_op<5>(), fused_op<6>(), fused_op<7>(), fused_op<8>()};
const OpDef fused_kernel_ops[] = {fused_op<0>(), fused_op<1>(), fused_op<2>(), fused_op<3>(), fused_op<4>(),
                                  fused_op<5>(), fused_op<6>(), fused_op<7>(), fused_op<8>()};
const FusionRule fused_kernel_rules[] = {
    {.op = &fused_kernel_ops[0], .strided = place_within}, {.op = &fused_kernel_ops[1], .strided = place_within},
    {.op = &fused_kernel_ops[2], .strided = place_within}, {.op = &fused_kernel_ops[3], .strided = place_within},
    {.op = &fused_kernel_ops[4], .strided = place_within}, {.op = &fused_kernel_ops[5], .strided = place_within},
    {.op = &fused_kernel_ops[6], .strided = place_within}, {.op = &fused_kernel_ops[7], .strided = place_within},
    {.op = &fused_kernel_ops[8], .strided = place_within}};
static_assert(std::size(fused_ops) == kMaxFusedInPlace + 1 && std::size(fused_kernel_ops) == kMaxFusedInPlace + 1);

}  // namespace graphsink
