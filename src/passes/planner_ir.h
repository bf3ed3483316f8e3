// The planner's own form of a graph. verify() makes it of the user's graph and the shapes of the inputs; the passes up
// to lower() rewrite it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/at.h"
#include "graphsink/plan.h"
#include "ir/graph_data.h"

namespace graphsink {

struct IrNode {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueRef> inputs;     // of nodes of the same PlannerIr
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
  bool is_on_host = false;  // of a device with separate memory
  int device = 0;           // where it runs if it does not run on the host, counted as in PlanNode

  bool is_beside(const IrNode& other) const { return is_on_host == other.is_on_host && device == other.device; }
};

// See Stacked.
struct IrStacked {
  ValueRef value;
  ValueRef place;
  int output = 0;          // of the loop
  bool is_filled = false;  // every place is written, whenever the loop runs; set by count_iterations()
};

struct IrRegion {
  std::vector<int> nodes;  // In an order that respects dependencies.
  std::vector<ValueRef> parameters;
  std::vector<ValueRef> results;
  std::vector<IrStacked> stacked;
  // Of a loop: how often it runs, or -1 if that depends on data or is more than 1024; set by count_iterations().
  int iterations = -1;
};

// A value that Program::read_output() returns: by its name, or by the handle `origin` of the user's graph.
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
  std::vector<NamedValue> records;
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
  // records, outputs and what Variables are assigned.
  template <class Visit>
  void for_each_result(Visit&& visit) {
    for (IrRegion& region : regions) {
      for (ValueRef& v : region.results) visit(v);
      for (IrStacked& stacked : region.stacked) visit(stacked.value), visit(stacked.place);
    }
    for (NamedValue& record : records) visit(record.value);
    for (IrOutput& output : outputs) visit(output.value);
    for (VariableUse& use : variables)
      if (use.assigned.node >= 0) visit(use.assigned);
  }
};

// By node and output of a value: the value that is used in its place.
using Replacements = std::map<std::pair<int, int>, ValueRef>;
inline void replace(ValueRef& v, const Replacements& replacements) {
  if (auto found = replacements.find({v.node, v.output}); found != replacements.end()) v = found->second;
}
// Replaces them wherever they are used.
void replace_uses(PlannerIr& ir, const Replacements& replacements);

// Copies what the graph computes, with the types that follow from the shapes of its open inputs. Nodes that nothing
// needs, and that have no effect, are not live. Throws Error where an op refuses the shapes.
PlannerIr verify(const GraphData& graph, const InputShapes& shapes);

// Computes once what the graph computes several times: nodes of one op, with equal attributes and inputs, in one region
// and with one placement. Random ops, ops with an effect and ops that write Variables stay as they are. Of a node that
// only copies its operand, the operand is used instead.
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
// reasons to the plan. `system` has the ops that write stacks.
void unroll(PlannerIr& ir, const SystemOps& system, Plan& plan);
constexpr int kMostUnrolled = 16;

// Does without nodes that only move elements, where other nodes can read or write them where they are: see
// OpDef::strided.
AvoidedCopies avoid_copies(PlannerIr& ir);

// Joins nodes with the one that uses them: see OpDef::fuse.
void fuse(PlannerIr& ir);

// How many nodes later or sooner a pass lets an op run, whatever memory its operands or results take meanwhile.
constexpr int kNear = 16;

// Joins element-wise ops into nodes that compute them together (ir/fused.h): block by block on the CPU, and in one
// kernel on a CUDA device that compiles kernels. `plan` has the devices.
FusionReport fuse_elementwise(PlannerIr& ir, const SystemOps& system, const Plan& plan);

// Makes one node of those that take slices of stacks at the same place (kernels/runtime/stack.h), and are near.
void join_slices(PlannerIr& ir, const SystemOps& system);

// Makes nodes, buffers and one schedule per region, in the user's order, with the commit at the end and copies where a
// value crosses between host and device.
void lower(const PlannerIr& ir, const SystemOps& system, const PlanOptions& options, Plan& plan);

}  // namespace graphsink
