#include "api/program_impl.h"

#include <algorithm>
#include <atomic>
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
  const RunGate::Inside inside(*gate_);
  bool is_done = true;
  auto wait = [&](Device& device, Stream& stream) {
    try {
      device.sync(stream);
    } catch (const std::exception& e) {
      log_.warn({"a program was destroyed with a failed step that nobody asked for: ", e.what()});
      is_done = false;
    }
  };
  for (const auto& stream : streams_) wait(*device_, *stream);
  for (const FurtherDevice& further : further_) wait(*further.device, *further.stream);
  if (is_done) return true;
  bool all_wait = std::all_of(devices_.begin(), devices_.end(), [](Device* d) { return d->wait_otherwise(); });
  if (all_wait) return true;
  watch_.reset();
  log_.error({"a destroyed program keeps its memory, which the device may still be using"});
  return false;
}

Program::Impl::~Impl() {
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
  for (const auto& stream : streams_) device_->sync(*stream);
  for (const FurtherDevice& further : further_) further.device->sync(*further.stream);
  launches_.resume();
  is_unsettled_ = false;
}

void Program::Impl::run(Mode mode, std::int64_t steps, const Where& where) {
  if (steps < 1 || steps > std::numeric_limits<std::int32_t>::max()) {
    throw Error("run", where, std::to_string(steps) + " steps", "ask for at least 1, and fewer than 2^31");
  }
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
  device_->sync(*streams_[0]);
  return block;
}

Tensor Program::Impl::download(const TensorType& type, const void* address) {
  Tensor tensor(type);
  device_->copy(*streams_[0], tensor.data(), address, tensor.bytes());
  device_->sync(*streams_[0]);
  return tensor;
}

// Reports the first step that failed since the last call, and lets steps commit again.
void Program::Impl::check_failed_step(const Where& where) {
  std::optional<Error> thrown;
  try {
    device_->sync(*streams_[0]);
  } catch (const Error& e) {
    thrown = e;
  }
  StepBlock block;
  try {
    block = download_block();
  } catch (const Error&) {
    if (thrown) throw *thrown;  // the device is lost; what came first says why
    throw;
  }
  auto& status = *static_cast<HostStatus*>(host_status_.get());
  bool has_failed = block.error_node >= 0 || !block.ok || status.failed;
  // On a device with separate memory it is the wait that failed, and a failed step is reported by the next call.
  if (thrown && (!has_failed || device_->target().separate_memory)) throw *thrown;
  if (!has_failed) return;

  int node = status.failed ? status.node : block.error_node;
  std::string message = status.failed ? "its body threw: " + std::string(status.message)
                                      : "a bad or non-finite value, or an index out of range";
  StepBlock clean = block;
  clean.error_node = -1;
  clean.ok = 1;
  device_->upload(*streams_[0], &control()->block, &clean, sizeof clean);
  status.clear();
  progress().failed = 0;
  bool is_known = node >= 0 && node < static_cast<int>(graph_.nodes.size());
  const Node* source = is_known ? &graph_.nodes[static_cast<std::size_t>(node)] : nullptr;
  if (source && writes_variables(*source->op, source->inputs.size())) {
    BrokenCommit broken(std::string(source->op->name), source->where,
                        "the step broke off while it committed: " + (thrown ? thrown->problem() : message),
                        "an op that writes Variables must not throw");
    break_variables(broken);
    throw broken;
  }
  if (thrown) throw *thrown;
  throw Error(source ? std::string(source->op->name) : "step", source ? source->where : where,
              message + ", in step " + std::to_string(block.error_step),
              "the step committed nothing; mend its input, or lower the learning rate, and run it again");
}

void Program::Impl::sync(const Where& where) {
  const RunGate::Inside inside(*gate_);
  settle();
  check_failed_step(where);
  require_whole_variables();
}

bool Program::Impl::poll(const Where& where) {
  const RunGate::Inside inside(*gate_);
  std::size_t busy = is_unsettled_ ? streams_.size() : 1;
  for (std::size_t i = 0; i < busy; ++i)
    if (!device_->is_done(*streams_[i])) return false;
  if (is_unsettled_)
    for (const FurtherDevice& further : further_)
      if (!further.device->is_done(*further.stream)) return false;
  // Steps that broke off say nothing at their end; there is nothing left to wait for.
  if (is_unsettled_ || progress().failed) sync(where);
  require_whole_variables();
  return true;
}

std::size_t Program::Impl::record_index(std::string_view name, const Where& where) const {
  for (std::size_t i = 0; i < graph_.records.size(); ++i)
    if (graph_.records[i].name == name) return i;
  throw Error("read", where, "no record \"" + std::string(name) + "\"",
              "call graph.record(name, value) before compile()");
}

std::vector<double> Program::Impl::read_record(std::string_view name, const Where& where) {
  (void)record_index(name, where);
  sync(where);
  return take_record(name, false, where);
}

std::vector<double> Program::Impl::take_record(std::string_view name, bool may_run, const Where& where) {
  std::size_t index = record_index(name, where);
  double* ring = static_cast<double*>(record_ring_.get()) + static_cast<std::int64_t>(index) * kRecordCapacity;
  std::atomic_ref recorded(progress().records);
  std::uint32_t end = recorded.load(std::memory_order_acquire);
  std::uint32_t count = std::min<std::uint32_t>(end - records_read_[index], kRecordCapacity);
  std::uint32_t first = end - count;
  std::vector<double> values(count);
  for (std::uint32_t i = 0; i < count; ++i)
    values[i] = std::atomic_ref(ring[(first + i) % kRecordCapacity]).load(std::memory_order_acquire);
  records_read_[index] = end;
  if (!may_run) return values;
  // Steps that ended meanwhile, and one that has not, may have written over the oldest.
  std::uint32_t oldest = recorded.load(std::memory_order_relaxed) + 1 - kRecordCapacity;
  auto lost = static_cast<std::int32_t>(oldest - first);
  if (lost > 0) values.erase(values.begin(), values.begin() + std::min<std::int64_t>(lost, count));
  return values;
}

Tensor Program::Impl::read_output(std::string_view name, const Where& where) {
  for (const PlanOutput& output : plan().outputs) {
    if (output.name != name) continue;
    return read_output(Value(original_, output.node, output.output), where);
  }
  throw Error("read", where, "no output \"" + std::string(name) + "\"",
              "call graph.output(name, value) before compile()");
}

Tensor Program::Impl::read_output(const Value& value, const Where& where) {
  const RunGate::Inside inside(*gate_);
  if (!value.valid() || value.graph() != original_) {
    throw Error("read", where, "the Value belongs to another graph", "pass a Value of the graph that was compiled");
  }
  if (!current_ || !current_->ran_once) throw Error("read", where, "the program has not run yet", "call run() first");
  for (const PlanOutput& output : current_->plan().outputs) {
    if (output.node != value.node() || output.output != value.output()) continue;
    sync(where);
    return download(output.type, current_->address(output.buffer));
  }
  throw Error("read", where, "the Value is not an output", "call graph.output(name, value) before compile()");
}

std::int64_t Program::Impl::steps() {
  const RunGate::Inside inside(*gate_);
  return download_block().step;
}

void Program::Impl::set_steps(std::int64_t steps, const Where& where) {
  if (steps < 0 || steps > std::numeric_limits<std::int32_t>::max())
    throw Error("set_steps", where, std::to_string(steps) + " steps", "give a number from 0 to 2^31 - 1");
  const RunGate::Inside inside(*gate_);
  sync(where);
  auto step = static_cast<std::int32_t>(steps);
  device_->upload(*streams_[0], &control()->block.step, &step, sizeof step);
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
