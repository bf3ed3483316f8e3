// Lets ops read their operands, and write their results, where these lie within other tensors (FusionRule::strided), so
// that the ops around them that only move elements, such as the permute and split before attention, are not needed.
//
// An operand is followed back through such ops to the tensor that holds its elements. A result is followed forward, to
// the tensor that they all end in, which the op then writes itself; several results may end in one tensor, by concat.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/at.h"
#include "ir/fused.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// Gives a part of a tensor another shape with the same elements in the same order. Returns false if it takes more than
// one stride for an axis. (PyTorch's Tensor.view() has the same rule.)
bool reshape(Strided& part, const Shape& shape) {
  if (shape.size() == 0) return false;
  Strided result{.shape = shape, .first = part.first, .tensor = part.tensor};
  int axis = shape.rank();
  // Axes of the part that follow one another without gaps are one run of elements; it must be that of some axes of the
  // result.
  for (int d = part.shape.rank() - 1; d >= 0;) {
    const std::int64_t stride = part.strides[at(d)];
    std::int64_t run = 1;
    do run *= part.shape[d--];
    while (d >= 0 && (part.shape[d] == 1 || part.strides[at(d)] == stride * run));
    std::int64_t covered = 1;
    while (axis > 0 && (covered < run || shape[axis - 1] == 1)) {
      result.strides[at(--axis)] = stride * covered;
      covered *= shape[axis];
    }
    if (covered != run) return false;
  }
  while (axis > 0) result.strides[at(--axis)] = 1;  // axes of one element, left if the part has no axes
  part = result;
  return true;
}

// Whether the strides of the part are as StridedArgs promises.
bool is_supported(const Strided& part) {
  const int last = part.shape.rank() - 1;
  if (last >= 0 && part.shape[last] != 1 && part.strides[at(last)] != 1) return false;
  return std::all_of(part.strides.begin(), part.strides.end(), [](std::int64_t stride) {
    return stride >= 0 && stride <= std::numeric_limits<std::int32_t>::max();
  });
}

// Reading a part of a tensor keeps all of it in memory. So it is at most so many times as large as the part.
constexpr std::size_t kMostTimesLarger = 4;

// A part of the tensor `value`.
struct Place {
  ValueRef value;
  Strided part;
};

bool is_strided(const IrNode& node, const FusionRules& rules) { return node.is_live && rules.of(*node.op).strided; }

class Avoiding {
 public:
  Avoiding(PlannerIr& ir, const FusionRules& rules) : ir_(ir), rules_(rules), uses_(ir) {}

  AvoidedCopies run() {
    // Nodes change when all is decided: until then, values have their old names.
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (is_strided(ir_.nodes[id], rules_)) decide(static_cast<int>(id));
    for (auto& [id, node] : changed_) ir_.nodes[at(id)] = std::move(node);
    replace_uses(ir_, replacements_);
    const AvoidedCopies before = copies();
    drop_unused(ir_);
    const AvoidedCopies after = copies();
    return {before.ops - after.ops, before.bytes - after.bytes};
  }

 private:
  // All ops that only move elements, and the bytes of their results.
  AvoidedCopies copies() const {
    AvoidedCopies all;
    for (const IrNode& node : ir_.nodes) {
      if (!node.is_live || !node.op->moves) continue;
      ++all.ops;
      for (const TensorType& type : node.outputs) all.bytes += type.bytes();
    }
    return all;
  }

  // A node that moves a result on, and which of its operands that is.
  struct Step {
    int node;
    int operand;
  };
  // Where a result of a node ends: in `value`, after these steps.
  struct Path {
    ValueRef value;
    std::vector<Step> steps;
  };

  // Whether the output is the first operand, in another shape.
  bool is_view(const IrNode& node) const {
    if (!node.op->traits.only_views || node.outputs.size() != 1 || node.op->views[0].input != 0) return false;
    const TensorType &from = ir_.type(node.inputs[0]), &to = node.outputs[0];
    return from.dtype == to.dtype && from.shape.size() == to.shape.size();
  }
  // Whether the outputs are elements of the operand, moved.
  bool moves_to_outputs(const IrNode& node) const {
    return is_view(node) || (node.op->moves && reads_first_alone(node));
  }
  // Whether the output is all elements of all operands, moved.
  bool moves_operands(const IrNode& node) const {
    return is_view(node) || (node.op->moves && operand_map(node, 0).has_value());
  }
  static bool reads_all(const IrNode& node) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!node.reads(i)) return false;
    return true;
  }
  static bool reads_first_alone(const IrNode& node) {
    for (std::size_t i = 1; i < node.inputs.size(); ++i)
      if (node.reads(i)) return false;
    return node.reads(0);
  }

  // How output number `output` of a node that moves elements lies in its operand.
  AxisMap output_map(const IrNode& mover, int output) const {
    std::vector<TensorType> types = ir_.types(mover.inputs);
    types.insert(types.end(), mover.outputs.begin(), mover.outputs.end());
    return moves_of(*mover.op, {mover.attrs, types, static_cast<int>(mover.inputs.size())}, output, mover.where);
  }
  // How an operand lies in the output, or nothing if the output has not all elements of the operand.
  std::optional<AxisMap> operand_map(const IrNode& mover, int operand) const {
    const AxisMap map = output_map(mover, operand);
    if (reads_all(mover) && mover.inputs.size() > 1) return map;  // moves() names parts of the output then
    if (!reads_first_alone(mover)) return {};
    const Shape &from = ir_.type(mover.inputs[0]).shape, &to = mover.outputs[0].shape;
    AxisMap back;
    for (int d = 0; d < to.rank(); ++d) {
      const AxisMap::Axis& axis = map.axes[d];
      if (axis.begin != 0 || axis.step != 1 || to[d] != from[axis.of_whole]) return {};
      back.axes[axis.of_whole].of_whole = d;
    }
    return mover.outputs.size() == 1 ? std::optional(back) : std::nullopt;
  }

  void decide(int id) {
    const IrNode& node = ir_.nodes[at(id)];
    IrNode changed = node;
    std::vector<Strided> operands;
    // Adds an operand that lies at `place`, in one of the `tensors`.
    auto add = [&](const Place& place, std::vector<ValueRef>& tensors) {
      auto found = std::find(tensors.begin(), tensors.end(), place.value);
      operands.push_back(place.part);
      operands.back().tensor = static_cast<int>(found - tensors.begin());
      if (found == tensors.end()) tensors.push_back(place.value);
    };
    changed.inputs.clear();
    bool is_other = false;
    for (ValueRef v : node.inputs) {
      const Place source = source_of(v, node);
      is_other = is_other || !(source.value == v);
      add(source, changed.inputs);
    }
    std::vector<ValueRef> results;
    for (const Place& place : destinations_of(id)) {
      is_other = is_other || place.value.node != id;
      add(place, results);
    }
    if (!is_other) return;

    Fused strided = rules_.of(*node.op).strided({node.attrs, operands});
    changed.op = strided.op;
    changed.attrs = std::move(strided.attrs);
    changed.outputs = ir_.types(results);
    for (std::size_t j = 0; j < results.size(); ++j) replacements_[results[j]] = {id, static_cast<int>(j)};
    for (std::size_t j = 0; j < node.outputs.size(); ++j)
      placed_[{id, static_cast<int>(j)}] = {results[at(operands[node.inputs.size() + j].tensor)],
                                            operands[node.inputs.size() + j]};
    changed_[id] = std::move(changed);
  }

  // --- operands

  // Where the elements of an operand of `user` lie: in an earlier tensor, of which copies were made, or in itself.
  Place source_of(ValueRef v, const IrNode& user) const {
    if (auto placed = placed_.find(v); placed != placed_.end()) return placed->second;
    std::vector<ValueRef> chain;  // values whose elements are moved ones, the operand first
    ValueRef tensor = v;
    while (moves_to_outputs(ir_.node(tensor)) && ir_.node(tensor).is_beside(user) && !replacements_.contains(tensor)) {
      chain.push_back(tensor);
      tensor = ir_.node(tensor).inputs[0];
    }
    Place place = whole(tensor);
    bool avoids_copies = false;
    for (auto moved = chain.rbegin(); moved != chain.rend(); ++moved) {
      const IrNode& mover = ir_.node(*moved);
      if (!is_view(mover)) {
        place.part = place.part.part(mover.outputs[at(moved->output)].shape, output_map(mover, moved->output));
        avoids_copies = true;
      } else if (!reshape(place.part, mover.outputs[0].shape)) {
        place = whole(*moved);
        avoids_copies = false;
      }
    }
    const bool is_small = ir_.type(v).bytes() < ir_.type(place.value).bytes() / kMostTimesLarger;
    return avoids_copies && is_supported(place.part) && !is_small ? place : whole(v);
  }

  Place whole(ValueRef v) const { return {v, Strided::whole(ir_.type(v).shape)}; }

  // --- results

  // By output of the node: the tensor that it becomes a part of.
  std::vector<Place> destinations_of(int id) {
    std::vector<Path> paths;
    for (std::size_t j = 0; j < ir_.nodes[at(id)].outputs.size(); ++j) paths.push_back({{id, static_cast<int>(j)}, {}});
    while (std::any_of(paths.begin(), paths.end(), [&](const Path& path) { return go_on(paths, path.value, id); })) {
    }
    std::vector<Place> places(paths.size());
    for (std::size_t j = 0; j < paths.size();) {
      const bool ends_in_view = !paths[j].steps.empty() && is_view(ir_.nodes[at(paths[j].steps.back().node)]);
      if (!ends_in_view && find_place(paths[j], places[j])) {
        ++j;
        continue;
      }
      // This also takes back a step of paths that were examined before, so that all are examined anew.
      go_back(paths, paths[j].value);
      j = 0;
    }
    return places;
  }

  // Takes all paths that end in `value` one step further, and those that meet them there. Returns whether that is
  // possible.
  bool go_on(std::vector<Path>& paths, ValueRef value, int id) {
    const int next = mover_of(value, id);
    if (next < 0) return false;
    const IrNode& mover = ir_.nodes[at(next)];
    std::vector<ValueRef> operands;
    for (std::size_t i = 0; i < mover.inputs.size(); ++i) {
      if (!mover.reads(i)) continue;
      const ValueRef v = mover.inputs[i];
      const auto ends_in = [&](const Path& path) { return path.value == v; };
      if (mover_of(v, id) != next || std::none_of(paths.begin(), paths.end(), ends_in)) return false;
      operands.push_back(v);
    }
    for (Path& path : paths) {
      auto found = std::find(mover.inputs.begin(), mover.inputs.end(), path.value);
      if (std::find(operands.begin(), operands.end(), path.value) == operands.end()) continue;
      path.steps.push_back({next, static_cast<int>(found - mover.inputs.begin())});
      path.value = {next, 0};
    }
    return true;
  }

  // Takes all paths that end in `value` one step back.
  void go_back(std::vector<Path>& paths, ValueRef value) const {
    for (Path& path : paths) {
      if (!(path.value == value)) continue;
      const Step step = path.steps.back();
      path.steps.pop_back();
      path.value = ir_.nodes[at(step.node)].inputs[at(step.operand)];
    }
  }

  // The one node that moves the value on, or -1. Other nodes may use a result of the node `id` itself, if they can read
  // it where it lies then.
  int mover_of(ValueRef value, int id) {
    if (uses_.is_result(value)) return -1;
    int mover = -1;
    for (Use use : uses_.of(value)) {
      const IrNode& node = ir_.nodes[at(use.node)];
      if (!node.reads(at(use.operand))) return -1;
      if (value.node == id && is_strided(node, rules_) && node.is_beside(ir_.nodes[at(id)])) continue;
      if (mover >= 0 || !moves_operands(node)) return -1;
      mover = use.node;
    }
    return mover >= 0 && ir_.nodes[at(mover)].is_beside(ir_.nodes[at(id)]) ? mover : -1;
  }

  bool find_place(const Path& path, Place& place) const {
    place = whole(path.value);
    for (auto step = path.steps.rbegin(); step != path.steps.rend(); ++step) {
      const IrNode& mover = ir_.nodes[at(step->node)];
      if (!is_view(mover)) {
        place.part =
            place.part.part(ir_.type(mover.inputs[at(step->operand)]).shape, *operand_map(mover, step->operand));
      } else if (!reshape(place.part, ir_.type(mover.inputs[0]).shape)) {
        return false;
      }
    }
    return path.steps.empty() || is_supported(place.part);
  }

  PlannerIr& ir_;
  const FusionRules& rules_;
  Uses uses_;
  std::map<int, IrNode> changed_;     // by number
  std::map<ValueRef, Place> placed_;  // results of changed nodes
  Replacements replacements_;
};

}  // namespace

AvoidedCopies avoid_copies(PlannerIr& ir, const FusionRules& rules) {
  const auto may_change = [&](const IrNode& node) { return is_strided(node, rules); };
  return std::any_of(ir.nodes.begin(), ir.nodes.end(), may_change) ? Avoiding(ir, rules).run() : AvoidedCopies();
}

}  // namespace graphsink
