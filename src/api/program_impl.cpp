#include "api/program_impl.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "base/trace.h"
#include "ir/system_ops.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// All reasons in one error, at the line of the first that has one.
[[noreturn]] void throw_not_whole(const std::vector<Reason>& reasons, const Where& where) {
  std::string problem = "require_whole_graph, but the step is not one launch";
  std::string remedy;
  std::optional<Where> first;
  for (const Reason& reason : reasons) {
    std::string place = to_string(reason.where);
    problem += "\n  " + reason.what + (place.empty() ? "" : " (" + place + ")") + ": " + reason.why;
    if (remedy.find(reason.remedy) == std::string::npos) remedy += (remedy.empty() ? "" : "; ") + reason.remedy;
    if (!first && reason.where.line()) first = reason.where;
  }
  throw Error("compile", first.value_or(where), problem, remedy);
}

// Only a program for a GPU has any.
std::span<const DeviceId> further_devices(const CompileOptions& options) {
  if (options.target.kind != DeviceKind::cuda) return {};
  return options.further_devices;
}

}  // namespace

Program::Impl::Impl(const Graph& graph, const CompileOptions& options, const Where& where)
    : options_(options),
      log_(options.log),
      graph_(*graph.data()),
      original_(graph.data()),
      session_(options.target, further_devices(options), log_),
      transfer_(std::make_shared<Transfer>(session_.shared_device())),
      shapes_(options.shape_cache_bytes) {
  inputs_.emplace(graph_, session_.shared_device(), session_.shared_stream());
  unbound_ = std::make_shared<const Plan>(make_current_plan());
  if (static_cast<int>(unbound_->feeds.size()) > kMaxFeeds) {
    throw Error("compile", where,
                std::to_string(unbound_->feeds.size()) + " feeds; a program takes " + std::to_string(kMaxFeeds),
                "concatenate some of them");
  }
  if (options.require_whole_graph && !sinks_whole(*unbound_)) throw_not_whole(unbound_->reasons, where);
  allocate_status(where);
  params_.seed = options.seed;
}

bool Program::Impl::finish() noexcept {
  if (fork_mark_.is_in_child()) return false;  // all that it owns is the parent's
  const RunGate::Inside inside(*gate_);
  bool is_done = true;
  auto log_failure = [&](auto&& call) {
    try {
      call();
      return true;
    } catch (const std::exception& e) {
      log_.warn({"a program was destroyed with a failed step that nobody asked for: ", e.what()});
      return false;
    }
  };
  {
    const HostWatch::Wait waits(watch());
    session_.for_each_stream(
        [&](Device& of, Stream& stream) { is_done = log_failure([&] { of.wait(stream); }) && is_done; });
  }
  if (is_done) {
    log_failure([&] { report_failed_step(Where()); });
    return true;
  }
  if (session_.wait_otherwise()) return true;
  watch_.reset();
  log_.error({"a destroyed program keeps its memory, which the device may still be using"});
  return false;
}

Program::Impl::~Impl() {
  told_by_reads_->leave();
  for (const auto& [data, used] : variables_) {
    std::lock_guard lock(used.variable.data()->lock);
    used.home->released_by(stream(), *gate_);
  }
}

void Program::Impl::settle() {
  if (!is_unsettled_) return;
  session_.for_each_stream([](Device& of, Stream& stream) { of.wait(stream); });
  launches_.resume();
  note_broken_off_step();
  is_unsettled_ = false;
}

void Program::Impl::require_caller(const char* call, const Where& where) const {
  fork_mark_.require_parent(call, where);
  if (!InBody::here()) return;
  if (InBody::owner() != host_status_.get() && InBody::owner() != &device()) return;
  throw Error(call, where,
              "was called by the body of an op of the same program, which is a part of what it would wait for",
              "return from the body, and call it on the program's thread");
}

void Program::Impl::wait_for_caller(void* stream, const Where& where) {
  try {
    device().fence(this->stream(), session_.borrowed_stream(stream));
  } catch (const Error& e) {
    throw Error("run", where, "RunOptions::stream: " + e.problem(), e.remedy());
  }
}

void Program::Impl::require_run(Mode mode, std::int64_t steps, const Where& where) {
  if (steps < 1 || steps > std::numeric_limits<std::int32_t>::max()) {
    throw Error("run", where, std::to_string(steps) + " steps", "ask for at least 1, and fewer than 2^31");
  }
  if (std::find(std::begin(kAllModes), std::end(kAllModes), mode) == std::end(kAllModes)) {
    throw Error("run", where, "no mode has this combination of execution, width and host_ops",
                "pass one of the constants in graphsink/mode.h, such as sink");
  }
  require_caller("run", where);
  {
    const RunGate::Inside inside(*gate_);
    settle();
  }
  inputs_->check(plan(), steps, where);
}

void Program::Impl::run(Mode mode, const RunOptions& options, const Where& where) {
  require_run(mode, options.steps, where);
  bind(where);
  std::optional<RunGate::Inside> inside;
  enter_run(inside);
  if (options.stream) wait_for_caller(*options.stream, where);
  upload_feed_table();
  is_unsettled_ = true;
  has_outputs_ = false;
  issue_run(mode, options.steps, where);
  is_unsettled_ = false;
  has_outputs_ = true;
  if (options.stream) device().fence(session_.borrowed_stream(*options.stream), stream());
  if (std::exchange(has_captured_, false)) trim_shapes();
}

void Program::Impl::issue_run(Mode mode, std::int64_t steps, const Where& where) {
  if (mode == split_sink && current_->bound.plan().split_islands.empty()) mode = sink;
  params_.times = nullptr;
  const HostWatch::Wait waits(watch());
  try {
    if (options_.guards.poison) poison();
    refresh_hoisted();
    if (is_audited(mode)) {
      run_audited(mode, steps, where);
    } else if (mode == automatic) {
      run_automatic(steps);
    } else if (mode.execution == Mode::Execution::sunk) {
      run_sunk(mode, 0, steps);
    } else {
      run_interactive(mode, 0, steps);
    }
  } catch (const BrokenCommit& e) {
    break_variables(e);  // still inside: nobody sees what is neither whole nor broken
    throw;
  }
}

void Program::Impl::upload_feed_table() {
  FeedTable table = inputs_->feed_table(current_->bound.plan());
  if (feeds_ == table) return;
  feeds_.reset();
  device().upload(stream(), &control()->feeds, &table, sizeof table);
  feeds_ = table;
}

void Program::Impl::push_params(std::int64_t first_slice, std::int64_t end_slice) {
  params_.first_slice = static_cast<std::int32_t>(first_slice);
  params_.end_slice = static_cast<std::int32_t>(end_slice);
  params_.acknowledged = acknowledged_;
  launches_.push(params_, device(), stream());
  current_->last_launch = launches_.pushed();
}

void Program::Impl::run_interactive(Mode mode, std::int64_t first, std::int64_t end) {
  Streams all = streams(mode);
  push_params(first, end);
  device().begin(*all[0], launches_.ring());
  for (std::int64_t step = first; step < end; ++step) current_->bound.issue_all(session_.devices(), all, mode.host_ops);
  current_->ran_once = true;
}

StepBlock Program::Impl::download_block() {
  StepBlock block;
  device().copy(stream(), &block, &control()->block, sizeof block);
  device().wait(stream());
  return block;
}

Tensor Program::Impl::download(const TensorType& type, const void* address) {
  Tensor tensor(type);
  device().copy(stream(), tensor.data(), address, tensor.bytes());
  device().wait(stream());
  return tensor;
}

std::int64_t Program::Impl::steps(const Where& where) {
  require_caller("steps", where);
  const RunGate::Inside inside(*gate_);
  const HostWatch::Wait waits(watch());
  return download_block().step;
}

void Program::Impl::set_steps(std::int64_t steps, const Where& where) {
  require_caller("set_steps", where);
  if (steps < 0 || steps > std::numeric_limits<std::int32_t>::max())
    throw Error("set_steps", where, std::to_string(steps) + " steps", "give a number from 0 to 2^31 - 1");
  const RunGate::Inside inside(*gate_);
  sync(where);
  auto step = static_cast<std::int32_t>(steps);
  device().upload(stream(), &control()->block.step, &step, sizeof step);
}

std::vector<Variable> Program::Impl::variables() const {
  std::vector<Variable> variables;
  for (const VariableUse& use : graph_.variables) variables.push_back(use.variable);
  return variables;
}

Counters Program::Impl::counters() const {
  const RunGate::Inside inside(*gate_);
  Counters counters = session_.counters();
  counters.fallbacks = fallbacks_;
  counters.cached_shapes = shapes_.size();
  counters.cached_bytes = shapes_.bytes();
  counters.evicted_shapes = shapes_.evicted();
  return counters;
}

std::optional<CaptureInfo> Program::Impl::captured(bool several_steps) const {
  if (!current_) return std::nullopt;
  if (several_steps) {
    const CaptureSlot& loop = current_->loop;
    return loop.is_captured() ? std::optional(loop.graph().info()) : std::nullopt;
  }
  std::optional<CaptureInfo> sum;
  for (const CaptureSlot& slot : current_->islands) {
    if (!slot.is_captured()) continue;
    if (!sum) sum.emplace();
    *sum += slot.graph().info();
  }
  return sum;
}

}  // namespace graphsink
