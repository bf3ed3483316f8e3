// Unrolls loops: wholly, or so that a run of the body is several iterations.
//
// Wholly those that no conditional node of the target can hold, because an op of the body may not be part of one. The
// step then stays one launch, in which such an op is, for example, a copy, a host node and a copy back; otherwise the
// host would drive the loop, and wait for its predicate in each iteration.
//
// The others, with Tuning::unroll_loops, so far that a run of the body is several iterations: on a GPU each run takes
// some time beside that of its kernels, and so does each copy of a state to where the next run reads it. As the number
// of runs must be whole, a run is a divisor of the number of iterations.
//
// Nothing in the copies tells them from iterations: random ops still take the counter of the loop as an operand, nodes
// keep their origin, and stacks are written slice by slice. So the results have the same bits.
#include <algorithm>
#include <map>
#include <optional>

#include "base/at.h"
#include "ir/system_ops.h"
#include "passes/obstacle.h"
#include "passes/planner_ir.h"

namespace graphsink {
namespace {

// A loop that would become more nodes stays a loop: nested loops multiply.
constexpr std::size_t kMostNodes = 4096;
// The most iterations in a run of a body, and the most nodes. On an H200 a run of a body takes 4.3 us beside its
// kernels, and a kernel at least 0.7 us, so further ones would save little; but each node takes memory and time to
// capture.
constexpr int kMostCopies = 8;
constexpr std::size_t kMostNodesOfABody = 256;

constexpr int kWholly = -1;  // in the place of a number of iterations: no loop is left

// Decides which loops are unrolled, and how far.
class Choice {
 public:
  Choice(const PlannerIr& ir, const Target& target, bool unroll_loops)
      : ir_(ir), target_(target), unroll_loops_(unroll_loops), obstacles_(ir.nodes.size()), copies_(ir.nodes.size()) {}

  // Returns, by node, how many iterations a run of the body of a loop becomes, or kWholly. 0: the node stays as it is.
  std::vector<int> run() {
    for (std::size_t id = 0; id < ir_.nodes.size(); ++id)
      if (ir_.nodes[id].is_live) obstacles_[id] = find_obstacle(ir_.nodes[id]);
    const bool unrolls_in_launches = unroll_loops_ && !target_.runs_cpu_bodies();
    for (std::size_t id = 0; id < ir_.nodes.size() && unrolls_in_launches; ++id) {
      const IrNode& node = ir_.nodes[id];
      if (node.is_live && node.op == &while_op && !is_obstructed(static_cast<int>(id))) copies_[id] = copies_of(node);
    }
    choose(0);
    return copies_;
  }

  // Whether no conditional node can hold this control node, and the reason.
  bool is_obstructed(int id) const { return obstacles_[at(id)].op != nullptr; }
  const Obstacle& obstacle(int id) const { return obstacles_[at(id)]; }

 private:
  // Returns the obstacle to a node with bodies. For a node without bodies, returns the obstacle that it would be to a
  // control node around it. Obstacle::op is null if there is none.
  Obstacle find_obstacle(const IrNode& node) const {
    if (is_source(*node.op)) return {};
    if (node.bodies.empty()) return obstacle_of(target_, *node.op, node.where, node.is_on_host);
    if (!target_.conditional_nodes)
      return {node.op, node.where, false, "needs a conditional node", "use a driver of CUDA 12.8 or newer"};
    for (int body : node.bodies)
      for (int inner : ir_.regions[at(body)].nodes)
        if (is_obstructed(inner)) return obstacles_[at(inner)];
    return {};
  }

  void choose(int region) {
    for (int id : ir_.regions[at(region)].nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (!node.is_live || node.op != &while_op || !is_obstructed(id)) continue;
      const std::optional<std::size_t> size = unrolled_size(node);
      if (!size || *size > kMostNodes) continue;
      copies_[at(id)] = kWholly;
      choose(node.bodies[0]);
    }
  }

  // The value that run() returns for a loop in a launch.
  int copies_of(const IrNode& loop) const {
    const IrRegion& body = ir_.regions[at(loop.bodies[0])];
    std::size_t size = body.stacked.size();
    for (int id : body.nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (!node.is_live || is_source(*node.op)) continue;
      if (!node.bodies.empty() || writes_variables(*node.op, node.inputs.size())) return 0;
      ++size;
    }
    int copies = std::min(kMostCopies, body.iterations);
    while (copies > 1 && (body.iterations % copies != 0 || at(copies) * size > kMostNodesOfABody)) --copies;
    if (copies > 0 && copies == body.iterations) return kWholly;
    return copies > 1 ? copies : 0;
  }

  // The number of nodes that the loop becomes, or nothing if a launch could not hold those either.
  std::optional<std::size_t> unrolled_size(const IrNode& loop) const {
    const IrRegion& body = ir_.regions[at(loop.bodies[0])];
    if (body.iterations < 0 || body.iterations > kMostUnrolled) return {};
    std::size_t size = body.stacked.size();
    for (int id : body.nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (!node.is_live || is_source(*node.op)) continue;
      if (node.bodies.empty()) {
        const bool may_be_here = !writes_variables(*node.op, node.inputs.size()) && node.device == 0;
        if (!may_be_here || !launch_traits(target_, *node.op, node.is_on_host).capturable) return {};
        ++size;
      } else if (!is_obstructed(id)) {
        size += size_of(id);
      } else {
        const std::optional<std::size_t> inner = node.op == &while_op ? unrolled_size(node) : std::nullopt;
        if (!inner) return {};
        size += *inner;
      }
      if (size > kMostNodes) return {};
    }
    return size * static_cast<std::size_t>(body.iterations);
  }

  // The number of nodes that a node in a launch becomes.
  std::size_t size_of(int id) const {
    std::size_t size = 0;
    for (int body : ir_.nodes[at(id)].bodies) {
      std::size_t of_body = 0;
      for (int inner : ir_.regions[at(body)].nodes) of_body += size_of(inner);
      const int copies = copies_[at(id)] == kWholly ? ir_.regions[at(body)].iterations : std::max(copies_[at(id)], 1);
      size += of_body * at(copies);
    }
    return size + 1;
  }

  const PlannerIr& ir_;
  const Target& target_;
  const bool unroll_loops_;
  std::vector<Obstacle> obstacles_;  // by node
  std::vector<int> copies_;          // by node
};

// Builds the nodes and regions anew, in an order that respects dependencies, with the chosen loops unrolled.
class Unrolling {
 public:
  // `copies`: what Choice::run() returned.
  Unrolling(const PlannerIr& ir, const SystemOps& system, const std::vector<int>& copies)
      : ir_(ir), system_(system), copies_(copies) {
    for (const IrNode& node : ir.nodes) renamed_.emplace_back(node.outputs.size());
  }

  PlannerIr run() {
    next_.regions.resize(1);
    add_nodes(0, 0);
    next_.variables = ir_.variables;
    next_.variable_index = ir_.variable_index;
    next_.records = ir_.records;
    next_.stops = ir_.stops;
    next_.outputs = ir_.outputs;
    for (NamedValue& record : next_.records) record.value = renamed(record.value);
    for (NamedValue& stop : next_.stops) stop.value = renamed(stop.value);
    for (IrOutput& output : next_.outputs) output.value = renamed(output.value);
    for (VariableUse& use : next_.variables) {
      use.read = ir_.node(use.read).is_live ? renamed(use.read) : ValueRef{};
      if (use.assigned.node >= 0) use.assigned = renamed(use.assigned);
    }
    return std::move(next_);
  }

 private:
  // Invalid for a value that is not computed.
  ValueRef& renamed(ValueRef v) { return renamed_[at(v.node)][at(v.output)]; }

  int add(IrNode node, int number, int region) {
    const int id = static_cast<int>(next_.nodes.size());
    node.region = region;
    next_.nodes.push_back(std::move(node));
    next_.numbers.push_back(number);
    next_.regions[at(region)].nodes.push_back(id);
    return id;
  }

  // Copies the nodes of a region of the old form to one of the new form. The state of a loop is known by then.
  void add_nodes(int region, int target) {
    for (int id : ir_.regions[at(region)].nodes) {
      const IrNode& node = ir_.nodes[at(id)];
      if (!node.is_live || node.op == &parameter_op) continue;
      if (copies_[at(id)] == kWholly) {
        unroll_loop(node, id, target);
      } else {
        add_copy(node, id, target);
      }
    }
  }

  void add_copy(const IrNode& node, int id, int target) {
    IrNode copy = node;
    for (ValueRef& v : copy.inputs) v = renamed(v);
    for (int& body : copy.bodies) body = add_region(body, std::max(copies_[at(id)], 1));
    const int added = add(std::move(copy), ir_.number(id), target);
    for (int j = 0; j < static_cast<int>(node.outputs.size()); ++j) renamed({id, j}) = {added, j};
  }

  // `copies`: how many iterations of a loop its body becomes; 1 for a branch.
  int add_region(int index, int copies) {
    const IrRegion& body = ir_.regions[at(index)];
    const int added = static_cast<int>(next_.regions.size());
    next_.regions.emplace_back();
    IrRegion region;
    for (ValueRef parameter : body.parameters) {
      add_copy(ir_.node(parameter), parameter.node, added);
      region.parameters.push_back(renamed(parameter));
    }
    for (int i = 0; i < copies; ++i) {
      if (i > 0) set_state(body, renamed_results(body));
      add_nodes(index, added);
      for (const IrStacked& stacked : body.stacked)
        region.stacked.push_back({renamed(stacked.value), renamed(stacked.place), stacked.output, stacked.is_filled});
    }
    region.results = renamed_results(body);
    region.iterations = body.iterations;
    region.iterations_in_body = copies;
    region.nodes = std::move(next_.regions[at(added)].nodes);
    next_.regions[at(added)] = std::move(region);
    return added;
  }

  std::vector<ValueRef> renamed_results(const IrRegion& body) {
    std::vector<ValueRef> results;
    for (ValueRef v : body.results) results.push_back(renamed(v));
    return results;
  }

  // The next copy of the body finds these in the place of its parameters.
  void set_state(const IrRegion& body, const std::vector<ValueRef>& state) {
    for (std::size_t i = 0; i < body.parameters.size(); ++i) renamed(body.parameters[i]) = state[i];
  }

  void unroll_loop(const IrNode& loop, int id, int target) {
    const IrRegion& body = ir_.regions[at(loop.bodies[0])];
    std::vector<ValueRef> state, stacks;
    for (std::size_t i = 0; i < body.parameters.size(); ++i) state.push_back(renamed(loop.inputs[i]));
    for (const IrStacked& stacked : body.stacked)
      stacks.push_back(stacked.is_filled ? ValueRef{} : add_stack_op(*system_.clear, loop, stacked, {}, target));
    for (int i = 0; i < body.iterations; ++i) {
      set_state(body, state);
      add_nodes(loop.bodies[0], target);
      for (std::size_t k = 0; k < stacks.size(); ++k) {
        std::vector<ValueRef> inputs{renamed(body.stacked[k].value), renamed(body.stacked[k].place)};
        if (stacks[k].node >= 0) inputs.push_back(stacks[k]);
        stacks[k] = add_stack_op(*system_.store_at, loop, body.stacked[k], std::move(inputs), target);
      }
      if (!state.empty()) state = renamed_results(body);
    }
    for (std::size_t j = 0; j < body.parameters.size(); ++j) renamed({id, static_cast<int>(j)}) = state[j];
    for (std::size_t k = 0; k < stacks.size(); ++k) renamed({id, body.stacked[k].output}) = stacks[k];
  }

  ValueRef add_stack_op(const OpDef& op, const IrNode& loop, const IrStacked& stacked, std::vector<ValueRef> inputs,
                        int target) {
    IrNode node;
    node.op = &op;
    node.inputs = std::move(inputs);
    node.outputs = {loop.outputs[at(stacked.output)]};
    node.where = loop.where;
    node.origin = loop.origin;
    node.is_live = true;
    return {add(std::move(node), -1, target), 0};
  }

  const PlannerIr& ir_;
  const SystemOps& system_;
  const std::vector<int>& copies_;              // by node
  std::vector<std::vector<ValueRef>> renamed_;  // by node and output of the old form: the latest copy
  PlannerIr next_;
};

Reason reason_of(const IrNode& loop, int iterations, const Obstacle& obstacle, const Target& target) {
  const std::string times = std::to_string(iterations);
  return {"a loop of " + times + (iterations == 1 ? " iteration" : " iterations") + " is unrolled", loop.where,
          target.conditional_nodes ? rule_text(obstacle) : "this driver has no conditional nodes",
          "the launch holds its body " + times + (iterations == 1 ? " time" : " times") +
              "; this saves a wait for each predicate, and one more launch",
          obstacle.remedy + ", so that the loop is a WHILE node"};
}

}  // namespace

void unroll(PlannerIr& ir, const SystemOps& system, bool unroll_loops, Plan& plan) {
  auto is_loop = [](const IrNode& node) { return node.is_live && node.op == &while_op; };
  if (std::none_of(ir.nodes.begin(), ir.nodes.end(), is_loop)) return;
  Choice choice(ir, plan.target(), unroll_loops);
  const std::vector<int> copies = choice.run();
  if (std::all_of(copies.begin(), copies.end(), [](int n) { return n == 0; })) return;
  for (std::size_t id = 0; id < ir.nodes.size(); ++id) {
    if (copies[id] != kWholly || !choice.is_obstructed(static_cast<int>(id))) continue;
    const IrNode& loop = ir.nodes[id];
    plan.reasons.push_back(reason_of(loop, ir.regions[at(loop.bodies[0])].iterations,
                                     choice.obstacle(static_cast<int>(id)), plan.target()));
  }
  ir = Unrolling(ir, system, copies).run();
  drop_unused(ir);
}

}  // namespace graphsink
