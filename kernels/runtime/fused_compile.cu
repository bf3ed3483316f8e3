#include "kernels/runtime/fused_plan.h"

#include <algorithm>

#include "ir/call_of_op.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

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
      const bool has_parts =
          std::any_of(ops().begin(), ops().end(), [](auto& op) { return part_of(*op.op) != nullptr; });
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

  // Adds the slice of an input that is the result of op k. Such a result is not computed.
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
      FusedInstruction store;
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
    FusedInstruction made;
    made.op = &op;
    made.operands = static_cast<int>(op.operands.size());
    if (op.op->elements.row) {
      made.row = call_of_op(op.op->name, op.where, "Elements::row", [&] { return op.op->elements.row(op.types); });
    } else {
      made.part = part_of(*op.op);
      if (op.rows) made.rows = op.rows->run;
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
    FusedInstruction load;
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

  // Joins neighbouring instructions into one if each computes with a number, all but the first with the result of the
  // one before, and nothing else uses that result.
  void join_affine() {
    std::vector<FusedInstruction>& all = plan_->instructions;
    std::vector<FusedInstruction> joined;
    for (std::size_t first = 0; first < all.size();) {
      std::vector<AffinePlaces> places;
      std::size_t end = first;
      while (end < all.size() && (end == first || continues(all[end - 1], all[end])) && add_affine(all[end], places))
        ++end;
      if (end - first < kFewestAffine) {
        joined.push_back(std::move(all[first++]));
        continue;
      }
      FusedInstruction made = std::move(all[end - 1]);
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
  static std::size_t vector_operand(const FusedInstruction& made) { return made.steps[0] == 0 ? 1 : 0; }

  // Whether the result of `first` is in a register and only its neighbour `second` uses it.
  bool continues(const FusedInstruction& first, const FusedInstruction& second) const {
    if (!first.op || !second.op || !is_register(first.to)) return false;
    return last_use_[at(number_of(*first.op))] == number_of(*second.op);
  }
  int number_of(const FusedOp& op) const { return static_cast<int>(&op - ops().data()); }

  // Adds the op to the expressions, if it is one of an element and a number and there is room for it.
  static bool add_affine(const FusedInstruction& made, std::vector<AffinePlaces>& places) {
    if (!made.row || made.operands != 2 || made.steps[0] + made.steps[1] != 1) return false;
    const Scalar kind = arithmetic_of(*made.op);
    if (kind == Scalar::other) return false;
    const std::size_t x = vector_operand(made);
    const int number = made.from[1 - x];
    const bool is_reversed = kind == Scalar::subtract && x == 1;  // the number - x
    const bool fits = !places.empty() && places.back().summand < 0 && kind != Scalar::multiply;
    if (!fits && places.size() == kMostAffine) return false;
    if (!fits) places.emplace_back();
    AffinePlaces& last = places.back();
    if (kind == Scalar::multiply) {
      last.factor = number;
    } else {
      last.summand = number;
      if (is_reversed) last.factor_sign = -1;
      if (kind == Scalar::subtract && !is_reversed) last.summand_sign = -1;
    }
    return true;
  }

  // Joins neighbouring instructions in pairs, if only the second uses the result of the first.
  void join_pairs() {
    std::vector<FusedInstruction>& all = plan_->instructions;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i, ++kept) {
      if (kept > 0 && joins(all[kept - 1], all[i])) --kept;
      if (kept != i) all[kept] = std::move(all[i]);
    }
    all.resize(kept);
  }

  // Makes `second` compute what `first` does, too, if it can.
  bool joins(const FusedInstruction& first, FusedInstruction& second) const {
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

  static bool reads(const FusedInstruction& made, int place) {
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
                                               [&](const FusedInstruction& made) { return reads(made, input); });
        if (!is_read_later) continue;  // input of any type: it may be a view of the one that the output overwrites
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
  std::int64_t elements_ = 0;   // elements of each result, except of reductions
  std::vector<int> result_of_;  // by op: the place of its result, or -1
  std::vector<int> last_use_;   // by op: the last op of the group that uses its result, or -1
  std::vector<int> free_;       // registers
  std::size_t widest_ = 1;      // bytes of the largest element in a register
};

}  // namespace

std::shared_ptr<const FusedPlan> compile_group(const PrepareArgs& p) { return Compiling(p).run(); }

}  // namespace graphsink
