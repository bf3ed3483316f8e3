// Preparation of a run: a Program plans for the shapes written last, allocates memory and binds the plan to addresses.
#include <algorithm>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include "api/program_impl.h"
#include "base/at.h"
#include "base/trace.h"
#include "ir/agreement.h"
#include "ir/system_ops.h"
#include "passes/explain.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// The node in which ranks agree; null if the plan exchanges no values with them.
template <class AnyPlan>
auto* agree_node(AnyPlan& plan) {
  const OpDef* agree = nullptr;
  for (const PlanNode& node : plan.nodes) agree = node.op->traits.agree ? node.op->traits.agree : agree;
  const auto found = std::find_if(plan.nodes.begin(), plan.nodes.end(),
                                  [&](const PlanNode& node) { return agree != nullptr && node.op == agree; });
  return found == plan.nodes.end() ? nullptr : &*found;
}

void mark_agreement(Plan& plan, const GraphData& graph) {
  PlanNode* const node = agree_node(plan);
  if (node == nullptr) return;
  Agreement agreement = node->attrs.as<Agreement>();
  agreement.mark = static_cast<const AgreeOp*>(node->op)->mark(agreement, graph);
  node->attrs = std::move(agreement);
}

void agree_on_plan(const PlanNode& node, const GraphData& graph, const Error* failure) {
  static_cast<const AgreeOp*>(node.op)->agree_on_plan(node.attrs.as<Agreement>(), graph, failure, node.where);
}

// Tells the other ranks that this one cannot bind the plan, so that they do not wait for its steps.
void tell_ranks(const PlanNode& node, const GraphData& graph, const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  const Error made("bind", node.where, failure.what(), "see what was thrown");
  try {
    agree_on_plan(node, graph, error ? error : &made);
  } catch (const Error&) {
    // The caller learns of its own failure.
  }
}

}  // namespace

Plan Program::Impl::make_current_plan() const {
  GRAPHSINK_TRACE(plan, "plan");
  PlanOptions options;
  options.check_finite = options_.check_finite;
  options.default_placement = options_.default_placement;
  options.fuse = options_.tuning.fuse;
  options.programmatic_launch = options_.tuning.programmatic_launch;
  options.unroll_loops = options_.tuning.unroll_loops;
  options.unrolled_nodes = options_.limits.unrolled_nodes;
  for (int number = 1; number < session_.count(); ++number)
    options.further_targets.push_back(session_.device(number).target());
  // The passes only read the snapshot of the graph. `view` does not own it.
  Graph view(std::shared_ptr<GraphData>(std::shared_ptr<void>(), const_cast<GraphData*>(&graph_)));
  Plan plan = make_plan(view, device().target(), system_ops(), inputs_.shapes(), options);
  mark_agreement(plan, graph_);
  return plan;
}

const Plan& Program::Impl::plan() {
  return shapes_.plan([&] { return make_current_plan(); });
}

void Program::Impl::allocate_status(const Where& where) {
  allocate("what steps report", "", where, [&] {
    memory_.allocate_control();
    status_.allocate(&memory_.control()->block, running_calls_);
    runner_.allocate(memory_.control());
    StepState block;
    device().upload(stream(), &memory_.control()->block, &block, sizeof block);
  });
  records_.allocate(plan(), device(), *this, where);
}

Addresses Program::Impl::addresses(const Plan& plan, const Where& where) {
  Addresses a = memory_.addresses(plan, facts(), *this, where);
  a.record_ring = records_.ring();
  a.progress = &status_.progress();
  a.host_status = &status_.host();
  a.sources.assign(graph_.nodes.size(), nullptr);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.storage != Storage::input) continue;
    a.sources[at(buffer.index)] = allocate("an input (" + bytes_text(buffer.bytes) + ")", "use smaller shapes", where,
                                           [&] { return inputs_.address(buffer.index, buffer.bytes); });
  }
  for (const Variable& variable : plan.variables) a.variables.push_back(variables_.address(variable));
  callers_memory_.place_outputs(plan, a, where);
  return a;
}

void Program::Impl::prepare_plan() {
  (void)plan();
  if (shapes_.current() || shapes_.is_prepared()) return;
  const RunGate::Inside inside(variables_.gate());
  shapes_.prepare(session_.devices());
}

void Program::Impl::watch_host_ops() {
  const auto& nodes = plan().nodes;
  bool has_any = std::any_of(nodes.begin(), nodes.end(), [](const PlanNode& node) { return node.on_host; });
  std::string loops;
  for (const Node& node : graph_.nodes)
    if (node.op == &while_op) loops += (loops.empty() ? "while_ (" : ", while_ (") + to_string(node.where) + ")";
  const bool is_asked = (has_any || !loops.empty()) && options_.limits.host_op_patience.count() > 0;
  rank_wait_ = exchanges_on_device_ ? shapes_.current()->bound.rank_wait() : nullptr;
  if (watch_ || !(is_asked || rank_wait_)) return;
  try {
    watch_.emplace(running_calls_, runner_.launches(), std::move(loops),
                   is_asked ? options_.limits.host_op_patience : std::chrono::milliseconds(0), log_,
                   WatchedRanks{rank_wait_, &status_.progress(), &variables_.gate()});
  } catch (const std::system_error& e) {
    log_.warn(
        {"nobody watches ops on the host, loops and waits for other ranks, there is no thread for it: ", e.what()});
  }
}

// Makes what the shapes written last need, which is not current yet.
std::unique_ptr<ShapeEntry> Program::Impl::make_entry(const Where& where) {
  prepare_plan();
  variables_.bring(plan(), status_.teller(), *this, where);
  const RunGate::Inside inside(variables_.gate());
  Addresses a = addresses(plan(), where);
  return allocate("the workspaces of its ops", "use smaller batches", where,
                  [&] { return shapes_.bind(a, session_.devices()); });
}

void Program::Impl::bind(const Where& where) {
  require_caller("bind", where);
  if (shapes_.current()) return;
  GRAPHSINK_TRACE(plan, "bind");
  const PlanNode* const agree = agree_node(plan());
  if (agree && !turn_.has_groups())
    turn_.set_groups(static_cast<const AgreeOp*>(agree->op)->turns(agree->attrs.as<Agreement>(), where),
                     agree->on_host);
  turn_.wait_for_others(where);
  std::unique_ptr<ShapeEntry> entry;
  try {
    entry = make_entry(where);
  } catch (const std::exception& e) {
    if (agree) tell_ranks(*agree, graph_, e);
    throw;
  }
  if (agree) agree_on_plan(*agree, graph_, nullptr);
  const RunGate::Inside inside(variables_.gate());
  shapes_.add(inputs_.shapes(), std::move(entry));
  watch_host_ops();
  trim_shapes();
}

void Program::Impl::trim_shapes() {
  runner_.forget_captures();
  if (is_unsettled_) return;                        // streams may be busy for which stream() does not wait
  if (shapes_.size() > 1) runs_.read_step_times();  // as long as the entries of these steps exist
  const HostWatch::Wait waits(watch());             // the software device may be at work meanwhile
  // All ranks drop the same, however fast each is: the others launch captures that this one still has.
  if (rank_wait_ && shapes_.is_full()) device().wait(stream());
  shapes_.trim(runner_.launches(), device().is_done(stream()));
}

}  // namespace graphsink
