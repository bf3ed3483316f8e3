#include "api/program_impl.h"

#include <algorithm>
#include <limits>
#include <mutex>

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

}  // namespace

Program::Impl::Impl(const Graph& graph, const CompileOptions& options, const Where& where)
    : options_(options),
      log_(options.log),
      graph_(*graph.data()),
      original_(graph.data()),
      device_(open_device(options.target, log_)) {
  transfer_ = std::make_shared<Transfer>(device_);
  streams_.push_back(device_->make_stream());
  devices_.push_back(device_.get());
  if (options.target.kind == DeviceKind::cuda) open_further_devices();
  inputs_.emplace(graph_, device_, streams_[0]);
  unbound_ = make_current_plan();
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
  auto wait = [&](Device& device, Stream& stream) { is_done = log_failure([&] { device.wait(stream); }) && is_done; };
  {
    const HostWatch::Wait waits(watch());
    for (const auto& stream : streams_) wait(*device_, *stream);
    for (const FurtherDevice& further : further_) wait(*further.device, *further.stream);
  }
  if (is_done) {
    log_failure([&] { report_failed_step(Where()); });
    return true;
  }
  bool all_wait = std::all_of(devices_.begin(), devices_.end(), [](Device* d) { return d->wait_otherwise(); });
  if (all_wait) return true;
  watch_.reset();
  log_.error({"a destroyed program keeps its memory, which the device may still be using"});
  return false;
}

Program::Impl::~Impl() {
  told_by_reads_->leave();
  for (const auto& [data, used] : variables_) {
    std::lock_guard lock(used.variable.data()->lock);
    used.home->released_by(*streams_[0], *gate_);
  }
}

Streams Program::Impl::streams(Mode mode, std::size_t on) {
  const std::vector<int>& stream_devices = current_->plan().stream_devices;
  std::size_t used = is_serial(mode) ? on : 0;  // of the target
  for (std::size_t i = 0; i < stream_devices.size(); ++i) {
    if (int device = stream_devices[i]; device > 0) {
      stream_array_[i] = further_[static_cast<std::size_t>(device - 1)].stream.get();
      continue;
    }
    if (used == streams_.size()) streams_.push_back(device_->make_stream());
    stream_array_[i] = streams_[used].get();
    if (!is_serial(mode)) ++used;
  }
  return {stream_array_.data(), stream_devices.size()};
}

void Program::Impl::settle() {
  if (!is_unsettled_) return;
  for (const auto& stream : streams_) device_->wait(*stream);
  for (const FurtherDevice& further : further_) further.device->wait(*further.stream);
  launches_.resume();
  note_broken_off_step();
  is_unsettled_ = false;
}

void Program::Impl::require_caller(const char* call, const Where& where) const {
  fork_mark_.require_parent(call, where);
  if (!InBody::here()) return;
  if (InBody::owner() != host_status_.get() && InBody::owner() != device_.get()) return;
  throw Error(call, where,
              "was called by the body of an op of the same program, which is a part of what it would wait for",
              "return from the body, and call it on the program's thread");
}

void Program::Impl::run(Mode mode, std::int64_t steps, const Where& where) {
  if (steps < 1 || steps > std::numeric_limits<std::int32_t>::max()) {
    throw Error("run", where, std::to_string(steps) + " steps", "ask for at least 1, and fewer than 2^31");
  }
  require_caller("run", where);
  {
    const RunGate::Inside inside(*gate_);
    settle();
  }
  inputs_->check(plan(), steps, where);
  bind(where);
  if (mode == split_sink && current_->plan().split_islands.empty()) mode = sink;
  std::optional<RunGate::Inside> inside;
  enter_run(inside);
  upload_feed_table();
  params_.times = nullptr;
  is_unsettled_ = true;
  has_outputs_ = false;
  const HostWatch::Wait waits(watch());
  try {
    if (options_.guards.poison) poison();
    refresh_hoisted();
    if (is_audited(mode)) {
      run_audited(mode, steps, where);
    } else if (mode == Mode::automatic) {
      run_automatic(steps);
    } else if (is_sunk(mode)) {
      run_sunk(mode, 0, steps);
    } else {
      run_interactive(mode, 0, steps);
    }
  } catch (const BrokenCommit& e) {
    break_variables(e);  // still inside: nobody sees what is neither whole nor broken
    throw;
  }
  is_unsettled_ = false;
  has_outputs_ = true;
}

void Program::Impl::upload_feed_table() {
  FeedTable table = inputs_->feed_table(current_->plan());
  if (feeds_ == table) return;
  feeds_.reset();
  device_->upload(*streams_[0], &control()->feeds, &table, sizeof table);
  feeds_ = table;
}

void Program::Impl::push_params(std::int64_t first_slice, std::int64_t end_slice) {
  params_.first_slice = static_cast<std::int32_t>(first_slice);
  params_.end_slice = static_cast<std::int32_t>(end_slice);
  params_.acknowledged = acknowledged_;
  launches_.push(params_, *device_, *streams_[0]);
}

void Program::Impl::run_interactive(Mode mode, std::int64_t first, std::int64_t end) {
  Streams all = streams(mode);
  push_params(first, end);
  device_->begin(*all[0], launches_.ring());
  HostCalls host_calls = is_split(mode) ? HostCalls::waiting : HostCalls::in_stream;
  for (std::int64_t step = first; step < end; ++step) current_->issue_all(devices_, all, host_calls);
  current_->ran_once = true;
}

StepBlock Program::Impl::download_block() {
  StepBlock block;
  device_->copy(*streams_[0], &block, &control()->block, sizeof block);
  device_->wait(*streams_[0]);
  return block;
}

Tensor Program::Impl::download(const TensorType& type, const void* address) {
  Tensor tensor(type);
  device_->copy(*streams_[0], tensor.data(), address, tensor.bytes());
  device_->wait(*streams_[0]);
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
  device_->upload(*streams_[0], &control()->block.step, &step, sizeof step);
}

std::vector<Variable> Program::Impl::variables() const {
  std::vector<Variable> variables;
  for (const VariableUse& use : graph_.variables) variables.push_back(use.variable);
  return variables;
}

Counters Program::Impl::counters() const {
  const RunGate::Inside inside(*gate_);
  Counters counters = device_->counters();
  for (const FurtherDevice& further : further_) counters += further.device->counters();
  counters.fallbacks = fallbacks_;
  return counters;
}

std::optional<RecordingInfo> Program::Impl::recording(bool several_steps) const {
  if (!current_) return std::nullopt;
  if (several_steps) return current_->loop ? std::optional(current_->loop->info()) : std::nullopt;
  std::optional<RecordingInfo> sum;
  for (const auto& recording : current_->recordings) {
    if (!recording) continue;
    RecordingInfo info = recording->info();
    if (!sum) sum.emplace();
    sum->kernels += info.kernels;
    sum->copies += info.copies;
    sum->host_nodes += info.host_nodes;
    sum->conditional_nodes += info.conditional_nodes;
    sum->empty_nodes += info.empty_nodes;
    sum->edges += info.edges;
  }
  return sum;
}

}  // namespace graphsink
