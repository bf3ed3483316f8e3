#include "api/program_impl.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "base/at.h"
#include "base/in_body.h"
#include "base/in_capture.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

// How often a step is run again before one of its results must have the size that was planned for.
constexpr std::int64_t kMostTries = 100;

// Whether ranks exchange values on the device. All of them must then issue a step in the same way, which must not
// depend on what one of them measures.
bool exchange_on_device(const GraphData& graph, const Target& target) {
  return target.separate_memory && std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
           return node.op->traits.agree != nullptr && body_for(*node.op, target.id.kind, target.sm) != nullptr;
         });
}

}  // namespace

Program::Impl::Impl(const Graph& graph, const CompileOptions& options, const Where& where)
    : options_(options),
      log_(options.log),
      graph_(*graph.data()),
      original_(graph.data()),
      session_(options.target, options.further_devices, log_,
               {options.flush_denormals, options.tuning.threads, options.guards.share_all}),
      variables_(session_),
      status_(graph_, session_, variables_),
      memory_(graph_, session_),
      records_(log_),
      inputs_(graph_, session_.device(), session_.shared_device(), session_.shared_stream()),
      has_result_sizes_(inputs_.have_result_sizes()),
      exchanges_on_device_(exchange_on_device(graph_, session_.device().target())),
      capture_policy_(inputs_.have_open_dimensions(), exchanges_on_device_
                                                          ? std::max<std::int64_t>(options.tuning.capture_after, 1)
                                                          : options.tuning.capture_after),
      runner_(session_, status_, capture_policy_, log_,
              [this](ShapeEntry& entry, const CapturedGraph& captured) {
                if (options_.guards.arguments) argument_audit_.examine(entry, captured);
                node_names_.add(captured);
              }),
      shapes_(options.limits.shape_cache_bytes, options.limits.shape_cache_shapes, capture_policy_, log_),
      runs_(shapes_, capture_policy_, runner_, status_),
      argument_audit_(session_.device(), log_),
      node_names_(log_, session_.device().target().has_profiled_nodes),
      replay_audit_(options.guards.replay_every, session_, runner_, status_, variables_, records_) {
  const Plan& plan = this->plan();
  if (static_cast<int>(plan.feeds.size()) > kMaxFeeds) {
    throw Error("compile", where,
                std::to_string(plan.feeds.size()) + " feeds; a program takes " + std::to_string(kMaxFeeds),
                "concatenate some of them");
  }
  if (has_result_sizes_) refuse_effects();
  if (options.require_whole_graph) require_whole("compile", "require_whole_graph", where);
  allocate_status(where);
  runner_.set_seed(options.seed);
  status_.set_on_acknowledged([this] { runner_.update_standing(); });
  runner_.set_shapes_of_ranks([this] { return shapes_.with_room(); },
                              [this](std::int64_t most) { shapes_.keep(most); });
  status_.set_require_ranks([this] { require_ranks(); });
}

void Program::Impl::require_ranks() {
  if (!rank_wait_) return;
  try {
    rank_wait_->require_whole();
  } catch (const Error&) {
    status_.note_ranks_told();
    throw;
  }
}

void Program::Impl::require_whole(const char* call, const char* wanted_by, const Where& where) {
  const Plan& plan = this->plan();
  if (sinks_whole(plan)) return;
  std::string problem = std::string(wanted_by) + ", but the step is not one launch";
  std::string remedy;
  std::optional<Where> first;
  for (const Reason& reason : plan.reasons) {
    std::string place = to_string(reason.where);
    problem += (&reason == plan.reasons.data() ? ": " : "; ") + reason.what +
               (place.empty() ? "" : " (" + place + ")") + ": " + reason.why;
    if (remedy.find(reason.remedy) == std::string::npos) remedy += (remedy.empty() ? "" : "; ") + reason.remedy;
    if (!first && reason.where.line()) first = reason.where;
  }
  throw Error(call, first.value_or(where), problem, remedy);
}

bool Program::Impl::log_failure(FunctionRef<void()> call) noexcept {
  try {
    call();
    return true;
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error != nullptr && error->code() == ErrorCode::stopped) return true;  // as it was asked to
    log_.warn({"a program ended with a failed step that nobody asked for: ", e.what()});
    return false;
  }
}

bool Program::Impl::finish() noexcept {
  if (fork_mark_.is_in_child()) return false;  // everything it owns belongs to the parent process
  const RunGate::Inside inside(variables_.gate());
  bool is_done = true;
  {
    const HostWatch::Wait waits(watch());
    session_.for_each_stream(
        [&](DeviceQueue& of, Stream& stream) { is_done = log_failure([&] { of.wait(stream); }) && is_done; });
  }
  turn_.retire();  // before the members go that finish_steps() uses
  if (is_done) {
    log_failure([&] { status_.report(Where()); });
    return true;
  }
  if (session_.wait_otherwise()) return true;
  watch_.reset();
  log_.error({"a destroyed program keeps its memory, which the device may still be using"});
  return false;
}

void Program::Impl::finish_steps() {
  require_caller("run", Where());
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  runner_.note_all_over();
}

void Program::Impl::settle() {
  if (!is_unsettled_) return;
  session_.for_each_stream([](DeviceQueue& of, Stream& stream) { of.wait(stream); });
  runner_.resume();
  status_.note_broken_off();
  is_unsettled_ = false;
}

bool Program::Impl::is_in_body() const {
  return InBody::here() && (InBody::owner() == &status_.host() || InBody::owner() == &device());
}

void Program::Impl::require_caller(const char* call, const Where& where) const {
  fork_mark_.require_parent(call, where);
  if (!is_in_body()) return;
  throw Error(call, where,
              "was called by the body of an op of the same program, which is a part of what it would wait for",
              "return from the body, and call it on the program's thread");
}

void Program::Impl::require_issuer(const char* call, const Where& where) const {
  require_caller(call, where);
  if (!InCapture::here()) return;
  throw Error(
      call, where,
      "was called in a function that a SinkCache captures: it would be done now, and be missing from every "
      "launch",
      "call it before or after SinkCache::run(); for a step that is a part of the captured work, call enqueue() "
      "with the stream that the function is given");
}

void Program::Impl::set_seed(std::uint32_t seed, const Where& where) {
  require_issuer("set_seed", where);
  runner_.set_seed(seed);
}

void Program::Impl::wait_for_caller(cudaStream_t stream, const Where& where) {
  try {
    device().make_wait(this->stream(), session_.borrowed_stream(stream));
  } catch (const Error& e) {
    throw Error("run", where, "RunOptions::stream: " + e.problem(), e.remedy(), e.code());
  }
}

void Program::Impl::require_run(const char* call, Mode mode, std::int64_t steps, const Where& where) {
  if (steps < 1 || steps > std::numeric_limits<std::int32_t>::max()) {
    throw Error(call, where, std::to_string(steps) + " steps", "ask for at least 1, and fewer than 2^31");
  }
  if (std::find(std::begin(kAllModes), std::end(kAllModes), mode) == std::end(kAllModes)) {
    throw Error(call, where, "there is no mode with the number " + std::to_string(static_cast<int>(mode)),
                "pass one of the modes, such as sink");
  }
  require_issuer(call, where);
  if (is_unsettled_) {
    const RunGate::Inside inside(variables_.gate());
    settle();
  }
  inputs_.check(plan(), steps, where);
}

void Program::Impl::run(Mode mode, const RunOptions& options, const Where& where) {
  require_run("run", mode, options.steps, where);
  for (std::int64_t first = 0, tries = 0; first < options.steps; ++tries) {
    const std::int64_t next = run_from(first, mode, options, where);
    if (next > first) tries = 0;
    first = next;
    if (first < options.steps && tries > kMostTries) {
      throw Error("run", where, "a result has had another size each time the same step ran",
                  "give the result an upper bound, or let all ops return the same for the same step");
    }
  }
}

std::int64_t Program::Impl::run_from(std::int64_t first, Mode mode, const RunOptions& options, const Where& where) {
  bind(where);
  turn_.take(where);
  std::optional<RunGate::Inside> inside;
  variables_.enter_run(inside);
  if (options.stream) wait_for_caller(*options.stream, where);
  inputs_.upload_feed_table(plan(), &memory_.control()->feeds);
  const std::uint32_t committed = has_result_sizes_ ? committed_steps() : 0;
  const bool may_miss = has_result_sizes_ && !status_.has_failed();  // else no step commits before that was reported
  is_unsettled_ = true;
  status_.set_has_outputs(false);
  issue_run(mode, first, options.steps, nullptr, where);
  is_unsettled_ = false;
  status_.set_has_outputs(true);
  if (may_miss && has_missed_size()) {
    first += committed_steps() - committed;
  } else {
    first = options.steps;
  }
  end_call(options.stream);
  if (runner_.has_captured()) trim_shapes();
  return first;
}

std::uint32_t Program::Impl::committed_steps() const {
  return std::atomic_ref(status_.progress().records).load(std::memory_order_acquire);
}

bool Program::Impl::has_missed_size() {
  {
    const HostWatch::Wait waits(watch());
    device().wait(stream());
  }
  const auto miss = status_.size_miss();
  if (!miss) return false;
  const int size = graph_.nodes[at(miss->node)].inputs[1].node;
  if (!inputs_.set_result_size(size, miss->elements)) return false;  // the failure stays, for the user
  status_.forget_size_miss();
  shapes_.select(inputs_.shapes());
  return true;
}

void Program::Impl::refuse_effects() const {
  for (const Node& node : graph_.nodes) {
    if (!node.op->traits.host_effect || node.op->traits.repeatable) continue;
    throw Error(std::string(node.op->name), node.where,
                "has an effect on the host, which would happen twice in a step that finds another size for a result",
                "give results whose sizes depend on data upper bounds, or declare the op with .traits = {.repeatable = "
                "true} if "
                "it may run more than once for a step");
  }
}

void Program::Impl::issue_run(Mode mode, std::int64_t first, std::int64_t end, OpClock* clock, const Where& where) {
  ShapeEntry& entry = *shapes_.current();
  require_ranks();
  if (mode == automatic && exchanges_on_device_) mode = sink;
  tell_watch(entry, mode);
  const HostWatch::Wait waits(watch());
  try {
    if (options_.guards.poison) poison(entry, memory_, session_);
    refresh_invariant_copies();
    if (clock) {
      runner_.run_timed(entry, *clock, first, end);
    } else if (replay_audit_.is_due(mode)) {
      replay_audit_.run(entry, mode, first, end, where);
    } else {
      runs_.run(entry, mode, first, end);
    }
  } catch (const BrokenCommit& e) {
    // Set this before leaving the gate, so that other users cannot see the values without the mark.
    variables_.set_broken(e);
    throw;
  }
}

void Program::Impl::tell_watch(const ShapeEntry& entry, Mode mode) {
  if (!watch_ || !entry.ranks) return;
  const std::pair<const RankWait*, Mode> run(entry.ranks.get(), mode);
  if (std::exchange(told_run_, run) == run) return;
  std::string how = "in mode " + std::string(to_string(mode));
  const char* before = " with ";
  for (const auto& [node, shape] : inputs_.shapes()) {
    const auto& input = graph_.nodes[at(node)].attrs.as<InputAttrs>();
    if (input.is_result_size || input.size_of >= 0) continue;  // which are not of the user
    how += std::exchange(before, ", ") + input.name + " " + to_string(TensorType{input.dtype, shape});
  }
  watch_->set_run(entry.ranks, std::move(how));
}

void Program::Impl::refresh_invariant_copies() {
  BoundPlan& bound = shapes_.current()->bound;
  const Plan& plan = bound.plan();
  for (std::size_t i = 0; i < plan.invariant_copies.size(); ++i) {
    const InvariantCopy& copy = plan.invariant_copies[i];
    const Buffer& origin = plan.buffers[at(copy.origin)];
    const bool is_input = origin.storage == Storage::input;
    const Variable* variable = is_input ? nullptr : &plan.variables[at(origin.index)];
    std::uint64_t version = is_input ? inputs_.version(origin.index) : variables_.version(*variable);
    bool is_callers = is_input ? inputs_.is_callers(origin.index) : variables_.is_callers(*variable);
    if (!is_callers && bound.is_fresh(i, version)) continue;
    // The copy is issued after the work that wrote the origin, and before the work that writes it next.
    const int to = plan.buffers[at(copy.destination)].device;
    session_.issue_on(to > 0 ? to : plan.buffers[at(copy.source)].device,
                      [&](DeviceQueue& there, Stream& on) { bound.refresh(i, version, there, on); });
  }
}

}  // namespace graphsink
