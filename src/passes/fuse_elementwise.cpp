// Joins element-wise ops that use each other's results into groups, and reductions of rows with the ops before them. A
// group is one node. On the CPU it is computed block by block, so that results within the group stay in the cache of
// the core; on a CUDA device it is one kernel, and they stay in registers. They are never stored in the arena.
//
// Small groups that have nothing to do with each other are then packed into one, where that costs less than a node.
//
// Nothing is computed twice, and each op rounds as it would alone, so the bits do not change. A group runs where the
// last of its ops was. Therefore it must not contain an op whose result is needed before that, and what its ops read is
// kept in memory until then: an op that comes much earlier is not part of it if that takes more memory. Nor is one that
// comes before an op on the host, beside which it could run.
#include <algorithm>
#include <vector>

#include "base/at.h"
#include "ir/call_of_op.h"
#include "ir/fused.h"
#include "ir/system_ops.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

std::int64_t elements(const TensorType& type) { return type.shape.size(); }

// Whether an op can be part of a group, and how it reads its operands.
enum class Role : std::uint8_t {
  none,
  by_element,  // it is element-wise
  by_part,     // it computes parts of its result, from any elements of its operands: these must not be in the group
  by_row,      // it reduces rows of its operand: its result must not be used in the group
};

// The width of the rows that the op reduces, or 0.
std::int64_t row_width(const PlannerIr& ir, const IrNode& node, const RowReduction* rows) {
  return rows ? rows->width(ir.type(node.inputs[0]), node.attrs) : 0;
}

// On a CUDA device, where the group becomes a kernel that is made of the ops' expressions.
Role role_in_kernel(const PlannerIr& ir, const IrNode& node, const RowReduction* rows) {
  const OpDef& op = *node.op;
  const std::size_t operands = node.inputs.size();
  if (rows && rows->operation && row_width(ir, node, rows) > 0) return Role::by_row;
  if (!op.elements.is_written() || operands < 1 || operands > 3) return Role::none;
  if (node.outputs.size() != 1 || elements(node.outputs[0]) == 0) return Role::none;
  for (std::size_t i = 0; i < operands; ++i)
    if (node.access(i) != Access::read) return Role::none;
  return Role::by_element;
}

Role role_of(const PlannerIr& ir, const IrNode& node, const RowReduction* rows, const Target& target) {
  if (target.separate_memory) return node.is_on_host ? Role::none : role_in_kernel(ir, node, rows);
  if (row_width(ir, node, rows) > 0) return Role::by_row;
  if (!node.op->elements.row && !part_of(*node.op)) return Role::none;
  if (node.outputs.size() != 1 || elements(node.outputs[0]) == 0) return Role::none;
  if (node.inputs.size() > kMaxFusedOperands) return Role::none;
  if (part_of(*node.op)) return Role::by_part;
  std::vector<TensorType> types = ir.types(node.inputs);
  types.push_back(node.outputs[0]);
  const ElementwiseRow row =
      call_of_op(node.op->name, node.where, "Elements::row", [&] { return node.op->elements.row(types); });
  return row ? Role::by_element : Role::none;
}

// Packing groups saves a node, but they run one after the other where they could run side by side. That pays up to so
// many elements of each result. On a GPU a node of a graph costs a microsecond or two, in which so few elements are
// computed by a part of its processors. (Not verified on a GPU.) On the CPU a node costs some ten nanoseconds.
std::int64_t most_packed_elements(const Target& target) { return target.separate_memory ? 1 << 16 : 1 << 8; }

struct Group {
  std::vector<int> ops;      // nodes
  std::vector<int> exposed;  // those whose results are needed outside of the group
  std::vector<ValueRef> inputs;
  std::vector<ValueRef> whole_inputs;  // those that ops read by part
  std::int64_t elements = 0;           // elements of each result, except results of reductions
  std::size_t widest = 0;              // bytes of an element of a value
  std::int64_t width = 0;              // elements of each row that is reduced; 0: none is
  bool has_parts = false;              // ops that compute parts
};

class Grouping {
 public:
  Grouping(PlannerIr& ir, const FusionRules& rules, const SystemOps& system, const Plan& plan)
      : ir_(ir),
        rules_(rules),
        system_(system),
        plan_(plan),
        position_(ir.nodes.size(), -1),
        roles_(ir.nodes.size(), Role::none),
        uses_(ir),
        group_of_(ir.nodes.size(), -1) {
    number_nodes(0);
    for (int id : order_) on_host_before_.push_back(on_host_before_.back() + ir_.nodes[at(id)].is_on_host);
    for (int id : order_) roles_[at(id)] = role_of(ir_, ir_.nodes[at(id)], rows_of(id), target_of(id));
  }

  FusionReport run() {
    for (int id : order_)
      if (roles_[at(id)] != Role::none) join(id);
    for (int id : order_)
      if (const int group = group_of_[at(id)]; group >= 0 && groups_[at(group)].ops[0] == id) pack(group);
    for (const Group& group : groups_) {
      if (group.ops.size() < 2) continue;
      const Target& target = target_of(group.ops[0]);
      if (target.separate_memory && !target.compiles_kernels) {
        report_.obstacle = target.fusion_obstacle;
      } else {
        make_node(group);
      }
    }
    replace_uses(ir_, replacements_);
    return report_;
  }

 private:
  const RowReduction* rows_of(int id) const { return rules_.of(*ir_.nodes[at(id)].op).rows; }
  const Target& target_of(int id) const { return plan_.devices[at(ir_.nodes[at(id)].device)].target; }

  // The order in which nodes run: those of a body come before the node whose body it is.
  void number_nodes(int region) {
    for (int id : ir_.regions[at(region)].nodes) {
      if (!ir_.nodes[at(id)].is_live) continue;
      for (int body : ir_.nodes[at(id)].bodies) number_nodes(body);
      position_[at(id)] = static_cast<int>(order_.size());
      order_.push_back(id);
    }
  }

  // Begins a group with the node, and joins the groups of its operands with it, as many as possible.
  void join(int id) {
    const int own = static_cast<int>(groups_.size());
    groups_.push_back(alone(id));
    group_of_[at(id)] = own;
    if (roles_[at(id)] == Role::by_part) return;
    std::vector<int> candidates = candidates_of(id);
    // All at once first, because one of two groups may use results of the other.
    if (candidates.size() > 1 && take(own, candidates)) return;
    while (true) {
      auto taken = std::find_if(candidates.rbegin(), candidates.rend(), [&](int other) { return take(own, {other}); });
      if (taken == candidates.rend()) return;
      candidates.erase(std::next(taken).base());
    }
  }

  // Makes small groups of the same shape that run shortly before this one part of it.
  void pack(int own) {
    const int last = groups_[at(own)].ops[0];
    const IrNode& node = ir_.nodes[at(last)];
    if (groups_[at(own)].width > 0 || elements(node.outputs[0]) > most_packed_elements(target_of(last))) return;
    for (int position = position_[at(last)] - 1; position >= std::max(0, position_[at(last)] - kNear); --position) {
      const int id = order_[at(position)], other = group_of_[at(id)];
      if (other < 0 || other == own || groups_[at(other)].ops[0] != id || groups_[at(other)].width > 0) continue;
      const IrNode& earlier = ir_.nodes[at(id)];
      if (earlier.region == node.region && earlier.is_beside(node) && earlier.outputs[0].shape == node.outputs[0].shape)
        take(own, {other});
    }
  }

  Group alone(int id) const {
    const IrNode& node = ir_.nodes[at(id)];
    Group group{{id}, {id}, {}, {}};
    group.elements = elements_of(id);
    group.widest = size_of(node.outputs[0].dtype);
    if (roles_[at(id)] == Role::by_row) group.width = row_width(ir_, node, rows_of(id));
    group.has_parts = roles_[at(id)] == Role::by_part;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.reads(i)) continue;
      add(group.inputs, node.inputs[i]);
      group.widest = std::max(group.widest, size_of(ir_.type(node.inputs[i]).dtype));
      if (roles_[at(id)] == Role::by_part) add(group.whole_inputs, node.inputs[i]);
    }
    return group;
  }

  // The number of elements that the op computes or, if it reduces rows, reads.
  std::int64_t elements_of(int id) const {
    const IrNode& node = ir_.nodes[at(id)];
    return elements(roles_[at(id)] == Role::by_row ? ir_.type(node.inputs[0]) : node.outputs[0]);
  }

  static void add(std::vector<ValueRef>& values, ValueRef v) {
    if (std::find(values.begin(), values.end(), v) == values.end()) values.push_back(v);
  }

  // The groups of the operands, in ascending order, of which the node may become a part.
  std::vector<int> candidates_of(int id) const {
    const IrNode& node = ir_.nodes[at(id)];
    std::vector<int> candidates;
    for (ValueRef v : node.inputs) {
      const int group = group_of_[at(v.node)];
      if (group < 0) continue;
      const IrNode& member = ir_.nodes[at(groups_[at(group)].ops[0])];
      if (member.region == node.region && member.is_beside(node) && groups_[at(group)].elements == elements_of(id))
        candidates.push_back(group);
    }
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    return candidates;
  }

  // Makes the others part of the group `own`, whose first op is the last of all, if the result is a valid group.
  bool take(int own, const std::vector<int>& others) {
    auto is_inside = [&](int node) {
      const int group = group_of_[at(node)];
      return group >= 0 && (group == own || std::find(others.begin(), others.end(), group) != others.end());
    };
    Group all;
    std::size_t ops = groups_[at(own)].ops.size();
    const int last = position_[at(groups_[at(own)].ops[0])];
    auto examine = [&](const Group& group) {
      for (ValueRef v : group.whole_inputs) {
        if (is_inside(v.node)) return false;  // not complete while the group runs
        add(all.whole_inputs, v);
      }
      for (ValueRef v : group.inputs) {
        if (is_inside(v.node) && roles_[at(v.node)] == Role::by_row) return false;  // nor is that
        if (!is_inside(v.node)) add(all.inputs, v);
      }
      if (group.width > 0 && all.width > 0 && group.width != all.width) return false;
      all.width = std::max(all.width, group.width);
      all.widest = std::max(all.widest, group.widest);
      all.has_parts = all.has_parts || group.has_parts;
      for (int op : group.exposed) {
        bool is_exposed = uses_.is_result({op, 0});
        for (Use use : uses_.of({op, 0})) {
          if (is_inside(use.node)) continue;
          if (position_[at(use.node)] < last) return false;
          is_exposed = true;
        }
        if (is_exposed) all.exposed.push_back(op);
      }
      return true;
    };
    if (!examine(groups_[at(own)])) return false;
    for (int other : others) {
      ops += groups_[at(other)].ops.size();
      if (!examine(groups_[at(other)])) return false;
    }
    auto is_too_early = [&](int other) {
      const Group& group = groups_[at(other)];
      return is_before_host_work(last, group) || keeps_more_alive(last, group);
    };
    if (std::any_of(others.begin(), others.end(), is_too_early)) return false;
    if (ops > kMaxFusedOps || all.inputs.size() > kMaxFusedInputs || all.exposed.size() > kMaxFusedOutputs)
      return false;
    all.elements = groups_[at(own)].elements;
    if (all.width > 0 && !reduces_rows_fast(last, all, ops)) return false;
    all.ops = std::move(groups_[at(own)].ops);
    for (int other : others) {
      for (int op : groups_[at(other)].ops) group_of_[at(op)] = own;
      all.ops.insert(all.ops.end(), groups_[at(other)].ops.begin(), groups_[at(other)].ops.end());
      groups_[at(other)] = {};
    }
    groups_[at(own)] = std::move(all);
    return true;
  }

  // `ops` counts the ops of the group.
  bool reduces_rows_fast(int last, const Group& group, std::size_t ops) const {
    if (target_of(order_[at(last)]).separate_memory) return are_enough_rows(group.elements / group.width, group.width);
    return keeps_rows_in_cache(group, ops);
  }

  // See kMaxFusedRowBytes.
  bool keeps_rows_in_cache(const Group& group, std::size_t ops) const {
    const std::int64_t rows = std::min(rows_at_once(group.width, group.has_parts), group.elements / group.width);
    const std::size_t values = ops + group.inputs.size() + group.exposed.size();
    return static_cast<std::size_t>(group.width) <= kMaxFusedRowBytes / group.widest &&
           values * static_cast<std::size_t>(rows * group.width) * group.widest <= kMaxFusedRowBytes;
  }

  // Whether an op runs on the host after the group and before the position `now`.
  bool is_before_host_work(int now, const Group& group) const {
    return on_host_before_[at(now)] > on_host_before_[at(position_[at(group.ops[0])])];
  }

  // Whether more bytes would be alive for long if the group ran at the position `now`: operands that nobody else reads
  // as late as that, against results that would be made later.
  bool keeps_more_alive(int now, const Group& group) const {
    if (now - position_[at(group.ops[0])] <= kNear) return false;
    std::size_t operands = 0, results = 0;
    for (ValueRef v : group.inputs) {
      const IrNode& node = ir_.node(v);
      if (is_source(*node.op) || uses_.is_result(v)) continue;
      const std::span<const Use> uses = uses_.of(v);
      if (std::none_of(uses.begin(), uses.end(), [&](Use use) { return position_[at(use.node)] >= now; }))
        operands += ir_.type(v).bytes();
    }
    for (int op : group.exposed) results += ir_.nodes[at(op)].outputs[0].bytes();
    return operands > results;
  }

  // The inputs of a group, and how many of them, at most kMaxFusedInPlace, outputs may overwrite: those of which each
  // op that reads them reads only the element that it computes. They come first.
  struct Inputs {
    std::vector<ValueRef> values;
    std::size_t in_place = 0;
  };

  Inputs inputs_of(const std::vector<int>& ops) const {
    std::vector<ValueRef> own_element, other_elements;
    for (int op : ops) {
      const IrNode& node = ir_.nodes[at(op)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueRef v = node.inputs[i];
        if (std::find(ops.begin(), ops.end(), v.node) != ops.end() || !node.reads(i)) continue;
        const bool is_own = roles_[at(op)] == Role::by_element && elements(ir_.type(v)) == elements(node.outputs[0]);
        add(is_own ? own_element : other_elements, v);
      }
    }
    Inputs inputs;
    for (ValueRef v : own_element)
      if (std::find(other_elements.begin(), other_elements.end(), v) == other_elements.end())
        inputs.values.push_back(v);
    inputs.in_place = std::min(inputs.values.size(), kMaxFusedInPlace);
    inputs.values.insert(inputs.values.end(), other_elements.begin(), other_elements.end());
    return inputs;
  }

  // Puts a node in the place of the last op of the group.
  void make_node(const Group& group) {
    std::vector<int> ops = group.ops;
    std::sort(ops.begin(), ops.end(), [&](int a, int b) { return position_[at(a)] < position_[at(b)]; });
    const Inputs inputs = inputs_of(ops);
    const int last = ops.back();
    FusedAttrs attrs;
    attrs.width = group.width;
    for (int op : ops) attrs.ops.push_back(fused_op(op, ops, inputs.values));
    std::vector<TensorType> outputs;
    for (std::size_t k = ops.size(); k-- > 0;) {
      const IrNode& node = ir_.nodes[at(ops[k])];
      if (std::find(group.exposed.begin(), group.exposed.end(), ops[k]) != group.exposed.end()) {
        replacements_[{ops[k], 0}] = {last, static_cast<int>(outputs.size())};
        outputs.push_back(node.outputs[0]);
        attrs.outputs.push_back(static_cast<int>(k));
      } else {
        report_.bytes += node.outputs[0].bytes();
      }
      ir_.nodes[at(ops[k])].is_live = ops[k] == last;
    }
    report_.ops += ops.size();
    ++report_.nodes;
    IrNode& node = ir_.nodes[at(last)];
    const bool is_kernel = target_of(last).separate_memory && group.width == 0;
    node.op = &(is_kernel ? system_.fused_kernel : system_.fused)[inputs.in_place];
    node.attrs = std::move(attrs);
    node.inputs = inputs.values;
    node.outputs = std::move(outputs);
  }

  FusedOp fused_op(int id, const std::vector<int>& ops, const std::vector<ValueRef>& inputs) const {
    const IrNode& node = ir_.nodes[at(id)];
    FusedOp op{node.op, node.attrs, node.where, node.origin, ir_.number(id), {}, ir_.types(node.inputs)};
    op.types.push_back(node.outputs[0]);
    if (roles_[at(id)] == Role::by_row) op.rows = rows_of(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueRef v = node.inputs[i];
      FusedOperand operand;
      if (auto found = std::find(ops.begin(), ops.end(), v.node); found != ops.end()) {
        operand.op = static_cast<int>(found - ops.begin());
      } else if (node.reads(i)) {
        operand.input = static_cast<int>(std::find(inputs.begin(), inputs.end(), v) - inputs.begin());
      }
      op.operands.push_back(operand);
    }
    return op;
  }

  PlannerIr& ir_;
  const FusionRules& rules_;
  const SystemOps& system_;
  const Plan& plan_;
  std::vector<int> order_, position_;
  std::vector<int> on_host_before_{0};  // by position: the number of ops on the host before it
  std::vector<Role> roles_;
  Uses uses_;
  std::vector<int> group_of_;  // by node: an index into groups_, or -1
  std::vector<Group> groups_;  // those that became part of another are empty
  Replacements replacements_;
  FusionReport report_;
};

}  // namespace

FusionReport fuse_elementwise(PlannerIr& ir, const FusionRules& rules, const SystemOps& system, const Plan& plan) {
  return Grouping(ir, rules, system, plan).run();
}

}  // namespace graphsink
