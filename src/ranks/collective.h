// Attributes of the ops that exchange values between ranks, and the op by which ranks agree.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "graphsink/op.h"
#include "graphsink/ranks.h"
#include "ir/agreement.h"
#include "ir/bound_node.h"
#include "ir/graph_data.h"
#include "ranks/rank_group.h"

namespace graphsink {

struct CollectiveAttrs {
  std::shared_ptr<RankGroup> group;
  Reduction reduction = Reduction::sum;
  int root = 0;
  bool same_loss = false;         // see AllReduceOptions
  std::vector<int> sources = {};  // see send_receive()
  bool same_program = false;      // see AverageOptions
};

// "all_reduce (sum, root 0) of f32[4] f32[4]": what must be equal on all ranks. The types are those of the operands,
// then those of the results.
std::string described(std::string_view op, const CollectiveAttrs& attrs, std::span<const TensorType> types);

// The step follows a failed one that was not reported yet, and commits nothing. Such steps exchange nothing, because a
// rank whose launch ended with the failed step has none of them.
inline bool is_dead(const BodyArgs& a) {
  const HostStatus* status = bound_node(a).status;
  return status != nullptr && status->step_failed != nullptr &&
         std::atomic_ref(*status->step_failed).load(std::memory_order_acquire) != 0;
}

// For a body, which is a part of a step or of a call of an Eager. Only the steps of a Program follow others.
inline Exchange exchange_of(const BodyArgs& a) {
  const HostStatus* status = bound_node(a).status;
  const bool has_steps = status != nullptr && status->step_failed != nullptr;
  return {bound_node(a).op->name, a.where(), has_steps ? status : nullptr, true};
}

// all_reduce() and reduce_scatter() of gradients, for their means. `same_program`: see AverageOptions.
Value all_reduce_gradients(Arg x, const Comm& comm, bool same_program);
Value reduce_scatter_gradients(Arg x, const Comm& comm, bool same_program);

// Emits the form of an op for the group, which may be a collective of one rank alone.
Value emit_on_ranks(const OpDef& form, const Arg& x, CollectiveAttrs attrs);
// The rule, for the gradients of a collective: a single rank does not have the nodes that it makes.
template <Gradient::Rule rule>
std::vector<Value> on_ranks(const GradArgs& g) {
  GraphData& graph = *g.grads[0].graph();
  const std::size_t first = graph.nodes.size();
  std::vector<Value> gradients = rule(g);
  if (g.attrs.as<CollectiveAttrs>().group->size() > 1) graph.note_rank_nodes(first);
  return gradients;
}

// The gradient of all_reduce() with AllReduceOptions::same_loss.
std::vector<Value> gradient_of_same_loss(const GradArgs& g);

// In an Eager, which has no plan that the ranks could compare beforehand: compares what all ranks are about to call.
void compare_calls(const BodyArgs& a);

// The rank to which `rank` sends, of the sources of send_receive(); -1: to none.
int target_of(const std::vector<int>& sources, int rank);

// AgreeOp::agree_on_plan: the collectives of each group and, where it averages gradients, what updates_of() finds.
void agree_on_plan(const Agreement& agreement, const GraphData& graph, const Error* failure, const Where& where);

// AgreeOp::mark: of what agree_on_plan() compares in the group of all ranks that run the plan, and the names of the
// Variables whose values it compares. 0 if the plan has no collective of that group.
std::uint64_t mark_of_plan(const Agreement& agreement, const GraphData& graph);

// By which the ranks agree on a step, and on their plans: OpTraits::agree of all collectives.
extern const AgreeOp agree_op;

}  // namespace graphsink
