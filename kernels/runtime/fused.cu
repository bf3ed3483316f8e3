// Groups of element-wise ops on the CPU (ir/fused.h): each op computes a block of its result, one op after the other,
// then all compute the next block. The blocks of all results in the group fit into the first-level cache together. Ops
// of simple arithmetic that use each other's results are computed together: two, or more if all but one of their
// operands are numbers (fused_arithmetic.h). If the group reduces rows, a block is some of them, and they are reduced
// when they are computed. Slices of inputs are read where they are (fused_layout.h).
#include <array>
#include <cstring>
#include <vector>

#include "base/at.h"
#include "ir/fused.h"
#include "kernels/runtime/fused_arithmetic.h"
#include "kernels/runtime/fused_layout.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/strided_copy.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

constexpr std::size_t kScratchBytes = 24 << 10;  // of results that are not outputs
constexpr std::int64_t kMostInBlock = 4096;      // elements
// Where elements are: the inputs, the outputs, slices in inputs, then registers, which are parts of the scratch memory.
// There is at most one slice or register for each op, and one register for each operand that is broadcast, and for each
// output.
constexpr std::size_t kMaxRegisters = kMaxFusedOps + kMaxFusedInputs + kMaxFusedOutputs;
constexpr std::size_t kMaxPlaces = kMaxFusedInputs + kMaxFusedOutputs + kMaxRegisters;
// Even the largest group has blocks of kPartElements. So many results are alive at once at most, because each op can
// end the lives of kMaxFusedOperands results at best, and begins one.
constexpr std::size_t kMostAlive = ((kMaxFusedOperands - 1) * kMaxFusedOps + 1) / kMaxFusedOperands;
static_assert(kScratchBytes / (kMostAlive + kMaxFusedOperands + kMaxFusedOutputs) / sizeof(double) >=
              static_cast<std::size_t>(kPartElements));

// The addresses of one execution of the node.
struct Frame {
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
struct Instruction {
  ElementwiseRow row = nullptr;                // of an element-wise op
  OutputPart part = nullptr;                   // of an op that computes parts
  decltype(RowReduction::run) rows = nullptr;  // of a reduction
  // Of several ops of one element and one number each, computed together: the elements are at from[0], the numbers at
  // these places. Else it is empty.
  std::vector<AffinePlaces> affine;
  bool stores_runs = false;  // from a register to an output
  // Of an operand that is broadcast, which is laid out element by element for the ops that use it: if there is none of
  // the above.
  Layout<1> layout;
  int word = 1;  // bytes of an element

  const FusedOp* op = nullptr;
  std::shared_ptr<const void> local;  // of a part or a reduction
  int operands = 0;
  std::array<int, kMaxFusedOperands> from{};  // places; -1: only the type is used
  std::array<std::int64_t, kMaxFusedOperands> steps{};
  int to = -1;  // a place
};

// An output that an instruction stores before a later one reads an input, which may be in the same memory. If it is,
// the blocks of the output are kept in a register until the end of the block.
struct Hazard {
  int output = -1, input = -1, kept = -1;  // places
};

// A slice of an input.
struct Slice {
  int input = -1;
  std::int64_t begin = 0;  // bytes
};

struct FusedPlan {
  FusedAttrs attrs;  // instructions point into it
  FusedLayout layout;
  std::vector<Instruction> instructions;
  std::vector<Hazard> hazards;
  std::int64_t size = 0, block = 0, tile = 0;  // runs
  int inputs = 0, outputs = 0;
  std::vector<Slice> slices;
  std::vector<std::int32_t> steps;  // Frame::step, of all places
  std::size_t register_bytes = 0;

  int first_register() const { return inputs + outputs + static_cast<int>(slices.size()); }
};

// Calls run(CpuArgs) for a part or a reduction, with these addresses.
template <class Run>
void run_op(const Instruction& instruction, const CpuArgs& a, void* const* pointers, const Run& run) {
  BoundNode node = a.node();
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

void run_part(const Instruction& instruction, const CpuArgs& a, const Frame& frame, std::int64_t begin,
              std::int64_t size, void* out) {
  void* pointers[kMaxFusedOperands + 1] = {};
  for (int i = 0; i < instruction.operands; ++i)
    if (const int from = instruction.from[static_cast<std::size_t>(i)]; from >= 0) pointers[i] = frame.address(from, 0);
  run_op(instruction, a, pointers, [&](const CpuArgs& args) { instruction.part(args, begin, size, out); });
}

// Reduces rows of a result, of which `begin` and `size` count the elements.
void run_rows(const Instruction& instruction, const CpuArgs& a, const Frame& frame, std::int64_t begin,
              std::int64_t size) {
  const std::int64_t width = a.local<FusedPlan>().attrs.width;
  const void* in = frame.address(instruction.from[0], begin);
  void* out = frame.address(instruction.to, begin / width);
  void* const pointers[2] = {};
  run_op(instruction, a, pointers, [&](const CpuArgs& args) { instruction.rows(args, size / width, in, out); });
}

void run_affine_at(const std::vector<AffinePlaces>& places, const Frame& frame, std::int64_t size, const void* x,
                   void* out) {
  Affine expressions[kMostAffine];
  auto number = [&](int place) { return *reinterpret_cast<const float*>(frame.address(place, 0)); };
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (places[k].factor >= 0) expressions[k].factor = number(places[k].factor);
    if (places[k].summand >= 0) expressions[k].summand = places[k].summand_sign * number(places[k].summand);
    expressions[k].factor *= places[k].factor_sign;
  }
  run_affine(size, static_cast<const float*>(x), std::span(expressions, places.size()), static_cast<float*>(out));
}

void store_runs(const Instruction& instruction, const FusedLayout& layout, const Frame& frame, std::int64_t runs,
                void* result) {
  with_word(instruction.word, [&]<class T>(T) {
    const auto* from = reinterpret_cast<const T*>(frame.address(instruction.from[0], 0));
    for_each_index(runs, [=, out = static_cast<T*>(result), run = layout.run, pitch = layout.pitch](std::int64_t r) {
      copy_row(out + r * run, from + r * pitch, run);
    });
  });
}

void load_broadcast(const Instruction& instruction, const Frame& frame, std::int64_t begin, std::int64_t size,
                    void* out) {
  with_word(instruction.word, [&]<class T>(T) {
    const auto* operand = reinterpret_cast<const T*>(frame.address(instruction.from[0], 0));
    copy_elements(instruction.layout, operand, begin, begin + size, static_cast<T*>(out));
  });
}

// Computes `runs` runs from the run `begin`. Only ops of elements are in groups whose runs are more than an element.
void run_instruction(const Instruction& instruction, const CpuArgs& a, const Frame& frame, std::int64_t begin,
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
  Frame frame;
  for (int i = 0; i < plan.inputs; ++i) frame.base[at(i)] = const_cast<std::byte*>(a.in<std::byte>(i));
  for (int j = 0; j < plan.outputs; ++j) frame.base[at(plan.inputs + j)] = a.out<std::byte>(j);
  for (std::size_t i = 0; i < plan.slices.size(); ++i)
    frame.base[at(plan.inputs + plan.outputs) + i] = frame.base[at(plan.slices[i].input)] + plan.slices[i].begin;
  const std::size_t first_register = at(plan.first_register());
  for (std::size_t r = first_register; r < plan.steps.size(); ++r)
    frame.base[r] = scratch + (r - first_register) * plan.register_bytes;
  std::copy(plan.steps.begin(), plan.steps.end(), frame.step.begin());
  std::array<const Hazard*, kMaxFusedOutputs> kept;
  std::array<std::byte*, kMaxFusedOutputs> stored;  // where these outputs belong
  std::size_t kept_outputs = 0;
  for (const Hazard& hazard : plan.hazards) {
    const auto output = at(hazard.output);
    if (frame.base[output] != frame.base[at(hazard.input)]) continue;
    stored[kept_outputs] = frame.base[output];
    kept[kept_outputs++] = &hazard;
    frame.base[output] = frame.base[at(hazard.kept)];
    frame.step[output] = 0;
  }
  for (std::int64_t begin = first; begin < end; begin += plan.block) {
    const std::int64_t size = std::min(plan.block, end - begin);
    for (const Instruction& instruction : plan.instructions) run_instruction(instruction, a, frame, begin, size);
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

// Makes the instructions of a group and chooses their registers.
class Compiling {
 public:
  explicit Compiling(const PrepareArgs& p) : p_(p), plan_(std::make_shared<FusedPlan>()) {
    plan_->attrs = p.attrs.as<FusedAttrs>();
    plan_->inputs = p.inputs;
    plan_->outputs = static_cast<int>(plan_->attrs.outputs.size());
    plan_->layout = layout_of(plan_->attrs);
    elements_ = ops().front().types.back().shape.size();
    plan_->size = elements_ / layout().run;
  }

  std::shared_ptr<const FusedPlan> run() {
    for (const TensorType& type : p_.types)
      plan_->steps.push_back(element_bytes(type) * static_cast<std::int32_t>(layout().run));
    // An input of one element is read again and again.
    for (int i = 0; i < p_.inputs; ++i)
      if (p_.in(i).shape.size() == 1 && elements_ > 1) plan_->steps[at(i)] = 0;
    result_of_.assign(ops().size(), -1);
    if (!has_gaps())
      for (std::size_t j = 0; j < plan_->attrs.outputs.size(); ++j)
        result_of_[at(plan_->attrs.outputs[j])] = p_.inputs + static_cast<int>(j);
    for (std::size_t k = 0; k < ops().size(); ++k)
      if (layout().in_place[k]) add_slice(k);
    find_last_uses();
    for (std::size_t k = 0; k < ops().size(); ++k) {
      if (!layout().in_place[k]) add_op(k);
      if (has_gaps()) add_stores(static_cast<int>(k));
    }
    join_affine();
    join_pairs();
    add_hazards();
    choose_block();
    return plan_;
  }

 private:
  const std::vector<FusedOp>& ops() const { return plan_->attrs.ops; }
  const FusedLayout& layout() const { return plan_->layout; }
  // Between the runs of registers. Then ops cannot compute outputs, which have none.
  bool has_gaps() const { return layout().pitch > layout().run; }
  bool is_register(int place) const { return place >= plan_->first_register(); }

  // As many elements as fit into the scratch memory: whole parts or, if the group reduces rows, whole rows, or whole
  // runs.
  void choose_block() {
    const std::size_t registers = plan_->steps.size() - at(plan_->first_register());
    const std::int64_t width = plan_->attrs.width, pitch = layout().pitch;
    std::int64_t unit = kPartElements, most = kMostInBlock;
    if (width > 0) {
      const bool has_parts = std::any_of(ops().begin(), ops().end(), [](auto& op) { return op.op->part != nullptr; });
      unit = std::min(width * rows_at_once(width, has_parts), elements_);
    }
    if (has_gaps()) unit = 1;
    if (registers > 0) most = std::min(most, static_cast<std::int64_t>(kScratchBytes / registers / widest_));
    plan_->block = std::max<std::int64_t>(most / pitch / unit, 1) * unit;
    plan_->tile = std::max<std::int64_t>(kTileElements / pitch / unit, 1) * unit;
    plan_->register_bytes = static_cast<std::size_t>(plan_->block * pitch) * widest_;
  }

  static std::int32_t element_bytes(const TensorType& type) { return static_cast<std::int32_t>(size_of(type.dtype)); }

  void find_last_uses() {
    last_use_.assign(ops().size(), -1);
    for (std::size_t k = 0; k < ops().size(); ++k)
      for (FusedOperand operand : ops()[k].operands)
        if (operand.op >= 0) last_use_[at(operand.op)] = static_cast<int>(k);
  }

  int take_register() {
    if (!free_.empty()) {
      const int place = free_.back();
      free_.pop_back();
      return place;
    }
    plan_->steps.push_back(0);
    return static_cast<int>(plan_->steps.size()) - 1;
  }

  // Of the result of op k, which is not computed.
  void add_slice(std::size_t k) {
    const FusedOp& op = ops()[k];
    const std::int32_t element = element_bytes(op.types.back());
    result_of_[k] = static_cast<int>(plan_->steps.size());
    plan_->slices.push_back({op.operands[0].input, layout().in_place[k]->first * element});
    plan_->steps.push_back(element * static_cast<std::int32_t>(has_gaps() ? layout().pitch : 1));
  }

  // For the outputs that are the result of op k, which is in a register.
  void add_stores(int k) {
    for (std::size_t j = 0; j < plan_->attrs.outputs.size(); ++j) {
      if (plan_->attrs.outputs[j] != k) continue;
      Instruction store;
      store.stores_runs = true;
      store.word = element_bytes(ops()[at(k)].types.back());
      store.operands = 1;
      store.from[0] = result_of_[at(k)];
      store.to = p_.inputs + static_cast<int>(j);
      plan_->instructions.push_back(store);
    }
  }

  void add_op(std::size_t k) {
    const FusedOp& op = ops()[k];
    Instruction made;
    made.op = &op;
    made.operands = static_cast<int>(op.operands.size());
    if (op.op->row) {
      made.row = op.op->row(op.types);
    } else {
      made.part = op.op->part;
      if (!made.part) made.rows = op.op->row_reduction.run;
      if (op.op->prepare)
        made.local = op.op->prepare({op.op->name, op.where, op.types, made.operands, op.attrs, false, p_.device}).data;
    }
    const DType dtype = op.types.back().dtype;
    std::vector<int> loaded, loaded_alike;  // registers of operands; of the result's type
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const FusedOperand operand = op.operands[i];
      made.from[i] = operand.op >= 0 ? result_of_[at(operand.op)] : operand.input;
      made.steps[i] = op.types[i].shape.size() == 1 && elements_ > 1 ? 0 : 1;
      const bool is_broadcast = made.row && made.steps[i] == 1 && op.types[i].shape.size() != elements_;
      if (!is_broadcast) continue;
      made.from[i] = add_load(operand.input, op.types[i], op.types.back().shape);
      (op.types[i].dtype == dtype ? loaded_alike : loaded).push_back(made.from[i]);
    }
    // The result may take the place of an operand that is not used any more, if elements take the place of elements.
    release_operands(k, true);
    free_.insert(free_.end(), loaded_alike.begin(), loaded_alike.end());
    if (result_of_[k] < 0) {
      result_of_[k] = take_register();
      widest_ = std::max(widest_, size_of(dtype));
    }
    release_operands(k, false);
    free_.insert(free_.end(), loaded.begin(), loaded.end());
    made.to = result_of_[k];
    plan_->instructions.push_back(std::move(made));
  }

  // Lays an operand out in a register that no other operand of the op uses.
  int add_load(int input, const TensorType& type, const Shape& result) {
    Instruction load;
    load.layout = make_layout<1>(result, {type.shape});
    load.word = element_bytes(type);
    load.operands = 1;
    load.from[0] = input;
    load.to = take_register();
    widest_ = std::max(widest_, size_of(type.dtype));
    plan_->instructions.push_back(load);
    return load.to;
  }

  // Gives back the registers of the operands that op k is the last to use: those of the dtype of its result, or others.
  void release_operands(std::size_t k, bool is_of_result_dtype) {
    for (FusedOperand operand : ops()[k].operands) {
      if (operand.op < 0 || last_use_[at(operand.op)] != static_cast<int>(k)) continue;
      const int place = result_of_[at(operand.op)];
      const bool is_alike = ops()[at(operand.op)].types.back().dtype == ops()[k].types.back().dtype;
      if (!is_register(place) || is_alike != is_of_result_dtype) continue;
      if (std::find(free_.begin(), free_.end(), place) == free_.end()) free_.push_back(place);
    }
  }

  // Of neighbours that compute with numbers, each of the result of the one before, which nothing else uses.
  void join_affine() {
    std::vector<Instruction>& all = plan_->instructions;
    std::vector<Instruction> joined;
    for (std::size_t first = 0; first < all.size();) {
      std::vector<AffinePlaces> places;
      std::size_t end = first;
      while (end < all.size() && (end == first || continues(all[end - 1], all[end])) && add_affine(all[end], places))
        ++end;
      if (end - first < kFewestAffine) {
        joined.push_back(std::move(all[first++]));
        continue;
      }
      Instruction made = std::move(all[end - 1]);
      made.from[0] = all[first].from[vector_operand(all[first])];
      made.affine = std::move(places);
      made.operands = 1;
      made.row = nullptr;
      joined.push_back(std::move(made));
      first = end;
    }
    all = std::move(joined);
  }
  static constexpr std::size_t kFewestAffine = 3;  // two are a pair

  // The operand that is not one number, of an op of which the other is.
  static std::size_t vector_operand(const Instruction& made) { return made.steps[0] == 0 ? 1 : 0; }

  // Of neighbours: whether the second is the only one that uses the result of the first, which is in a register.
  bool continues(const Instruction& first, const Instruction& second) const {
    if (!first.op || !second.op || !is_register(first.to)) return false;
    return last_use_[at(number_of(*first.op))] == number_of(*second.op);
  }
  int number_of(const FusedOp& op) const { return static_cast<int>(&op - ops().data()); }

  // Adds the op to the expressions, if it is one of an element and a number and there is room for it.
  static bool add_affine(const Instruction& made, std::vector<AffinePlaces>& places) {
    if (!made.row || made.operands != 2 || made.steps[0] + made.steps[1] != 1) return false;
    const Arithmetic kind = arithmetic_of(*made.op);
    if (kind == Arithmetic::none) return false;
    const std::size_t x = vector_operand(made);
    const int number = made.from[1 - x];
    const bool is_reversed = kind == Arithmetic::sub && x == 1;  // the number - x
    const bool fits = !places.empty() && places.back().summand < 0 && kind != Arithmetic::mul;
    if (!fits && places.size() == kMostAffine) return false;
    if (!fits) places.emplace_back();
    AffinePlaces& last = places.back();
    if (kind == Arithmetic::mul) {
      last.factor = number;
    } else {
      last.summand = number;
      if (is_reversed) last.factor_sign = -1;
      if (kind == Arithmetic::sub && !is_reversed) last.summand_sign = -1;
    }
    return true;
  }

  // Of pairs of neighbours, of which the second is the only one that uses the result of the first.
  void join_pairs() {
    std::vector<Instruction>& all = plan_->instructions;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i, ++kept) {
      if (kept > 0 && joins(all[kept - 1], all[i])) --kept;
      if (kept != i) all[kept] = std::move(all[i]);
    }
    all.resize(kept);
  }

  // Makes `second` compute what `first` does, too, if it can.
  bool joins(const Instruction& first, Instruction& second) const {
    if (!first.row || !second.row || first.operands != 2 || second.operands != 2) return false;
    const int number = number_of(*first.op);
    const auto& operands = second.op->operands;
    const int operand = operands[0].op == number ? 0 : 1;
    if (operands[at(operand)].op != number || operands[at(1 - operand)].op == number) return false;
    if (!is_register(first.to) || last_use_[at(number)] != number_of(*second.op)) return false;
    const auto other = at(1 - operand);
    const ElementwiseRow row =
        row_of({*first.op, *second.op, operand, {first.steps[0], first.steps[1], second.steps[other]}});
    if (!row) return false;
    second.row = row;
    second.from = {first.from[0], first.from[1], second.from[other]};
    second.steps = {first.steps[0], first.steps[1], second.steps[other]};
    second.operands = 3;
    return true;
  }

  static bool reads(const Instruction& made, int place) {
    const auto end = made.from.begin() + made.operands;
    return std::find(made.from.begin(), end, place) != end ||
           std::any_of(made.affine.begin(), made.affine.end(), [&](const AffinePlaces& numbers) {
             return numbers.factor == place || numbers.summand == place;
           });
  }

  void add_hazards() {
    const auto& instructions = plan_->instructions;
    for (int j = 0; j < plan_->outputs; ++j) {
      const int output = p_.inputs + j;
      int kept = -1;
      auto stored =
          std::find_if(instructions.begin(), instructions.end(), [&](auto& made) { return made.to == output; });
      for (int input = 0; input < p_.inputs; ++input) {
        const bool is_read_later = std::any_of(std::next(stored), instructions.end(),
                                               [&](const Instruction& made) { return reads(made, input); });
        if (!is_read_later) continue;  // of any type: it may be a view of the input that the output overwrites
        if (kept < 0) {
          plan_->steps.push_back(0);
          kept = static_cast<int>(plan_->steps.size()) - 1;
          widest_ = std::max(widest_, size_of(p_.out(j).dtype));
        }
        plan_->hazards.push_back({output, input, kept});
      }
    }
  }

  const PrepareArgs& p_;
  std::shared_ptr<FusedPlan> plan_;
  std::int64_t elements_ = 0;   // of each result but those of reductions
  std::vector<int> result_of_;  // by op: the place of its result, or -1
  std::vector<int> last_use_;   // by op: the last op of the group that uses its result, or -1
  std::vector<int> free_;       // registers
  std::size_t widest_ = 1;      // bytes of the largest element in a register
};

Prepared prepare_fused(const PrepareArgs& p) { return p.cuda ? prepare_fused_kernel(p) : Prepared{Compiling(p).run()}; }

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
           .bodies = {run_all_tiles<kFusedTiles>, run_fused_kernel},
           .tiles = kFusedTiles};
  if constexpr (inputs > 0) op.in_place = kInPlace<inputs>;
  return op;
}

}  // namespace

const OpDef fused_ops[] = {fused_op<0>(), fused_op<1>(), fused_op<2>(), fused_op<3>(), fused_op<4>(),
                           fused_op<5>(), fused_op<6>(), fused_op<7>(), fused_op<8>()};
static_assert(std::size(fused_ops) == kMaxFusedInPlace + 1);

}  // namespace graphsink
