// The planner's own form of a graph. verify() makes it of the user's graph and the shapes of the inputs; the passes up
// to lower() rewrite it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/at.h"
#include "ir/fusion_rules.h"
#include "ir/graph_data.h"
#include "ir/plan.h"

namespace graphsink {

struct IrNode {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueRef> inputs;     // values of nodes of the same PlannerIr
  std::vector<TensorType> outputs;  // all sizes are known
  std::vector<int> bodies;          // regions: those of an if_ or switch_ in order, the body of a while_
  Where where;
  Placement placement;
  int region = 0;  // that it is part of
  // The node's number in the user's graph. Random ops draw from it, and errors and reasons name it, whatever passes
  // make of the node.
  int origin = -1;
  bool is_inside = false;  // as Node::is_inside, of all outputs
  bool is_live = false;    // The others are not computed, and have no types.
  // Set by place().
  bool is_on_host = false;  // whether it runs on the host, and the target is a device with separate memory
  int device = 0;           // where it runs if it does not run on the host, counted as in PlanNode

  Access access(std::size_t operand) const { return access_of(*op, operand, inputs.size()); }
  // Whether it uses more of an operand than its type.
  bool reads(std::size_t operand) const { return access(operand) != Access::shape_only; }
  bool is_beside(const IrNode& other) const { return is_on_host == other.is_on_host && device == other.device; }
};

// See Stacked.
struct IrStacked {
  ValueRef value;
  ValueRef place;
  int output = 0;          // number of this output of the loop
  bool is_filled = false;  // every place is written, whenever the loop runs; set by count_iterations()
};

struct IrRegion {
  std::vector<int> nodes;  // In an order that respects dependencies.
  std::vector<ValueRef> parameters;
  std::vector<ValueRef> results;
  std::vector<IrStacked> stacked;
  // Number of iterations, if this is the body of a loop; -1: it depends on data or is more than 1024. Set by
  // count_iterations().
  int iterations = -1;
  // The iterations of the loop that a run of this body is, one after the other. Set by unroll().
  int iterations_in_body = 1;
};

// A value that Program::output() returns: by its name, or by the handle `origin` of the user's graph.
struct IrOutput {
  std::string name;
  ValueRef value;
  ValueRef origin;
};

struct PlannerIr {
  std::vector<IrNode> nodes;      // A node comes after those whose outputs it uses, and after those of its bodies.
  std::vector<IrRegion> regions;  // [0] is the step.
  std::vector<VariableUse> variables;
  std::map<const VariableData*, int> variable_index;
  std::vector<NamedValue> records, stops;
  std::vector<IrOutput> outputs;
  // By node, set by unroll(): its own number in the user's graph, or -1 if a pass added it. Copies of a node have the
  // same number. Empty as long as nodes stand at the places they have in the user's graph.
  std::vector<int> numbers;

  int number(int id) const { return numbers.empty() ? id : numbers[at(id)]; }
  IrNode& node(ValueRef v) { return nodes[at(v.node)]; }
  const IrNode& node(ValueRef v) const { return nodes[at(v.node)]; }
  const TensorType& type(ValueRef v) const { return node(v).outputs[at(v.output)]; }
  std::vector<TensorType> types(const std::vector<ValueRef>& values) const;
  // Calls visit(ValueRef&) for every use of a value that is not an input of a node: results and stacks of regions,
  // records, stops, outputs and what Variables are assigned.
  template <class Visit>
  void for_each_result(Visit&& visit) {
    for_each_result(*this, visit);
  }
  template <class Visit>
  void for_each_result(Visit&& visit) const {
    for_each_result(*this, visit);
  }
  // The part of it that a region returns or stacks.
  template <class Region, class Visit>
  static void for_each_result_of(Region& region, Visit&& visit) {
    for (auto& v : region.results) visit(v);
    for (auto& stacked : region.stacked) visit(stacked.value), visit(stacked.place);
  }

 private:
  template <class Ir, class Visit>
  static void for_each_result(Ir& ir, Visit& visit) {
    for (auto& region : ir.regions) for_each_result_of(region, visit);
    for (auto& record : ir.records) visit(record.value);
    for (auto& stop : ir.stops) visit(stop.value);
    for (auto& output : ir.outputs) visit(output.value);
    for (auto& use : ir.variables)
      if (use.assigned.node >= 0) visit(use.assigned);
  }
};

// A use of a value: as an operand of a node, or, if `operand` is -1, as what a body of the node returns or stacks.
struct Use {
  int node;
  int operand;

  bool is_of_body() const { return operand < 0; }
};

// The uses of each value by live nodes, as they are when this is made: what a pass changes meanwhile does not show.
class Uses {
 public:
  explicit Uses(const PlannerIr& ir);

  // In ascending order of nodes; a node that has several operands of this value stands there several times.
  std::span<const Use> of(ValueRef v) const {
    const std::size_t i = index(v);
    return {uses_.data() + begin_[i], begin_[i + 1] - begin_[i]};
  }
  // Whether it is a result of a region, an output, a record or what a Variable is assigned.
  bool is_result(ValueRef v) const { return is_result_[index(v)]; }

 private:
  std::size_t index(ValueRef v) const { return first_[at(v.node)] + at(v.output); }

  std::vector<std::size_t> first_;  // by node: the index of its first output
  std::vector<std::size_t> begin_;  // by output: in uses_
  std::vector<Use> uses_;
  std::vector<bool> is_result_;  // by output
};

// By value: the one that is used in its place.
using Replacements = std::map<ValueRef, ValueRef>;
inline void replace(ValueRef& v, const Replacements& replacements) {
  if (auto found = replacements.find(v); found != replacements.end()) v = found->second;
}
// Replaces them wherever they are used.
void replace_uses(PlannerIr& ir, const Replacements& replacements);

// The rules that a plan is made by, found by their op.
class FusionRules {
 public:
  struct OfOp {
    std::vector<decltype(FusionRule::fuse)> fuse;  // the first that returns an op counts
    decltype(FusionRule::strided) strided = nullptr;
    const RowReduction* rows = nullptr;
  };

  // Borrows the rules.
  explicit FusionRules(std::span<const std::span<const FusionRule>> lists);

  const OfOp& of(const OpDef& op) const {
    const auto found = by_op_.find(&op);
    return found == by_op_.end() ? none_ : found->second;
  }

 private:
  std::unordered_map<const OpDef*, OfOp> by_op_;
  OfOp none_;
};

// Copies the graph, drops what it does not need, and finds the types of what is left, which follow from the shapes of
// the open inputs. Throws Error where an op refuses these.
PlannerIr verify(const GraphData& graph, const InputShapes& shapes);

// Computes once what the graph computes several times: nodes of one op, with equal attributes and inputs, in one region
// and with one placement. Random ops, ops with an effect and ops that write Variables stay as they are. A node that
// only copies its operand is dropped, and the operand is used instead.
void simplify(PlannerIr& ir);

// Removes what nothing needs: nodes, and states of loops that reach neither a result that is used, nor the condition,
// nor an effect.
void drop_unused(PlannerIr& ir);

// Sets IrRegion::iterations and IrStacked::is_filled of loops.
void count_iterations(PlannerIr& ir);

// Decides which nodes run on the host and which on a further device; appends the reasons to the plan. Throws Error for
// a node that no body can serve where its placement wants it.
void place(PlannerIr& ir, const PlanOptions& options, Plan& plan);

// Replaces loops that no conditional node can hold by one copy of their body for each iteration, so that the launch
// holds them. It does so for loops whose number of iterations is known and at most kMostUnrolled, and appends the
// reasons to the plan. With `unroll_loops`, bodies of other loops become several copies of themselves, or all, as
// Tuning::unroll_loops says. `system` has the ops that write stacks.
void unroll(PlannerIr& ir, const SystemOps& system, bool unroll_loops, Plan& plan);
constexpr int kMostUnrolled = 16;

// Does without nodes that only move elements, where other nodes can read or write them where they are: see
// FusionRule::strided.
AvoidedCopies avoid_copies(PlannerIr& ir, const FusionRules& rules);

// Joins nodes with the one that uses them: see FusionRule::fuse.
void fuse(PlannerIr& ir, const FusionRules& rules);

// How many nodes later or sooner a pass lets an op run, whatever memory its operands or results take meanwhile.
constexpr int kNear = 16;

// Joins element-wise ops into nodes that compute them together (ir/fused.h): block by block on the CPU, and in one
// kernel on a CUDA device that compiles kernels. `plan` has the devices.
FusionReport fuse_elementwise(PlannerIr& ir, const FusionRules& rules, const SystemOps& system, const Plan& plan);

// Makes one node of those that take slices of stacks at the same place (kernels/runtime/stack.h), and are near.
void join_slices(PlannerIr& ir, const SystemOps& system);

// Makes nodes, buffers and one schedule per region, in the user's order, with the commit at the end and copies where a
// value crosses between host and device.
void lower(const PlannerIr& ir, const SystemOps& system, const PlanOptions& options, Plan& plan);

}  // namespace graphsink
