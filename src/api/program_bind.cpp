// What a Program does before it runs: plans for the shapes written last, memory, addresses.
#include <algorithm>
#include <system_error>
#include <utility>

#include "api/program_impl.h"
#include "base/at.h"
#include "base/trace.h"
#include "ir/system_ops.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

constexpr const char* kEndOthers = "end other programs on this device";

std::vector<Mode> candidates(const Plan& plan) {
  if (plan.split_islands.empty()) return {sink, interactive_serial};
  return {sink, split_sink, interactive_serial};
}

}  // namespace

ShapeEntry::ShapeEntry(std::size_t number_, std::shared_ptr<const Plan> plan, std::vector<Prepared> nodes,
                       const Addresses& addresses, Devices devices)
    : number(number_),
      bound(std::move(plan), std::move(nodes), addresses, devices),
      islands(bound.plan().islands.size()),
      split_islands(bound.plan().split_islands.size()),
      chooser(candidates(bound.plan())) {}

bool ShapeEntry::is_captured(Mode mode) const {
  const auto& all = bound.islands_of(mode);
  const auto& slots = mode == split_sink ? split_islands : islands;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].sunk && !slots[i].is_captured()) return false;
  return true;
}

std::size_t ShapeEntry::bytes() const {
  std::size_t sum = sizeof *this + bound.bytes() + loop.bytes();
  for (const auto* slots : {&islands, &split_islands})
    for (const CaptureSlot& slot : *slots) sum += slot.bytes();
  return sum;
}

Plan Program::Impl::make_current_plan() const {
  TraceRange range("plan");
  PlanOptions options;
  options.check_finite = options_.check_finite;
  options.default_place = options_.default_place;
  options.fuse = options_.fuse;
  for (int number = 1; number < session_.count(); ++number) options.further_targets.push_back(device(number).target());
  // The passes only read the snapshot; the handle does not own it.
  Graph view(std::shared_ptr<GraphData>(std::shared_ptr<void>(), const_cast<GraphData*>(&graph_)));
  return make_plan(view, device().target(), system_ops(), inputs_->shapes(), options);
}

void Program::Impl::write(const Value& input, const TensorType& type, const void* data, bool shape_is_known,
                          const Where& where) {
  require_caller("write", where);
  const RunGate::Inside inside(*gate_);
  settle();
  if (input.valid() && input.graph() != original_) {
    throw Error("write", where, "the Value belongs to another graph", "pass an input of the graph that was compiled");
  }
  bool is_reshaped = allocate(
      "what was written (" + bytes_text(type.bytes()) + ")",
      "write fewer slices at once and run fewer steps per launch, use smaller batches, or " + std::string(kEndOthers),
      where, [&] { return inputs_->write(input, type, data, shape_is_known, where); });
  if (!is_reshaped) return;
  current_ = shapes_.find(inputs_->shapes());
  unbound_.reset();  // planned when it is asked for: the shapes of several inputs may have to change together
  prepared_.reset();
}

const Plan& Program::Impl::plan() {
  if (current_) return current_->bound.plan();
  if (!unbound_) unbound_ = std::make_shared<const Plan>(make_current_plan());
  return *unbound_;
}

void Program::Impl::upload_constants(const Plan& plan, const Where& where) {
  for (const Buffer& buffer : plan.buffers) {
    std::pair key(buffer.device, buffer.index);
    if (buffer.storage != Storage::constant || constants_.contains(key)) continue;
    const Tensor& tensor = *graph_.nodes[at(buffer.index)].attrs.as<ConstantAttrs>().tensor;
    Memory memory =
        allocate("a constant (" + bytes_text(tensor.bytes()) + ")", "make it smaller, or " + std::string(kEndOthers),
                 where, [&] { return device(buffer.device).allocate(tensor.bytes()); });
    device(buffer.device).upload(session_.stream(buffer.device), memory.get(), tensor.data(), tensor.bytes());
    constants_[key] = memory;
  }
}

void Program::Impl::allocate_status(const Where& where) {
  allocate("what steps report", "end other programs on this device", where, [&] {
    for (Device* each : session_.devices())
      memory_.push_back({each->reserve(), each == &device() ? nullptr : each->allocate(sizeof(StepBlock))});
    control_ = device().allocate(sizeof(Control));
    host_status_ = device().allocate_host(sizeof(HostStatus));
    (new (host_status_.get()) HostStatus)->running = &running_calls_;
    progress_ = device().allocate_host(sizeof(Progress));
    new (progress_.get()) Progress;
    step_times_ = device().allocate_host(sizeof(StepTimes));
    new (step_times_.get()) StepTimes;
    launches_.allocate(device(), &control()->block, &control()->next_launch);
    StepBlock block;
    device().upload(stream(), &control()->block, &block, sizeof block);
  });
  allocate_records(where);
}

void Program::Impl::allocate_records(const Where& where) {
  const Plan& plan = this->plan();
  std::size_t bytes = ring_bytes(plan);
  record_ring_ = allocate("the rings of " + count_text(plan.records.size(), "record") + " (" + bytes_text(bytes) + ")",
                          "give record() a smaller capacity, record fewer values, or " + std::string(kEndOthers), where,
                          [&] { return device().allocate_host(bytes); });
  auto* ring = static_cast<double*>(record_ring_.get());
  for (const PlanRecord& record : plan.records) {
    records_.push_back({record.name, ring, static_cast<std::uint32_t>(record.capacity)});
    ring += record.capacity;
  }
}

DeviceAddresses Program::Impl::further_addresses(const PlanDevice& needs, int number, const Where& where) {
  const DeviceMemory& memory = memory_[at(number)];
  std::string name = to_string(needs.target.id);
  DeviceAddresses a;
  allocate("the arena of " + name + " (" + bytes_text(needs.arena_bytes) + ")",
           "use smaller batches, or label fewer ops with it", where, [&] { memory.arena->grow(needs.arena_bytes); });
  a.arena = memory.arena->base();
  a.block = static_cast<StepBlock*>(memory.block.get());
  if (needs.hoisted_bytes > 0) {
    a.hoisted = allocate("copies on " + name + " of what no step changes (" + bytes_text(needs.hoisted_bytes) + ")",
                         "label fewer ops with it, or end other programs on it", where,
                         [&] { return device(number).allocate(needs.hoisted_bytes); });
  }
  return a;
}

Addresses Program::Impl::addresses(const Plan& plan, const Where& where) {
  Addresses a;
  allocate("the arena (" + bytes_text(plan.devices[0].arena_bytes) + ")",
           "use smaller batches, f16 or bf16 for the largest values, or " + std::string(kEndOthers), where,
           [&] { memory_[0].arena->grow(plan.devices[0].arena_bytes); });
  a.devices.push_back({memory_[0].arena->base(), &control()->block});
  for (int number = 1; number < session_.count(); ++number)
    a.devices.push_back(further_addresses(plan.devices[at(number)], number, where));
  if (std::size_t bytes = host_arena_bytes(plan, facts()); bytes > 0) {
    a.host_arena = allocate("the values and workspaces of ops on the host (" + bytes_text(bytes) + ")",
                            "use smaller batches, or give these ops a CUDA body", where,
                            [&] { return device().allocate_host(bytes); });
  }
  if (std::size_t hoisted = plan.host_hoisted_bytes; hoisted > 0) {
    a.host_hoisted = allocate("copies on the host of what no step changes (" + bytes_text(hoisted) + ")",
                              "give the ops that read them a CUDA body, or " + std::string(kEndOthers), where,
                              [&] { return device().allocate_host(hoisted); });
  }
  a.feed_table = control()->feeds.rings;
  a.feed_strides = control()->feeds.strides;
  a.record_ring = record_ring_.get();
  a.progress = &progress();
  a.host_status = static_cast<HostStatus*>(host_status_.get());
  upload_constants(plan, where);
  a.sources.assign(graph_.nodes.size(), nullptr);
  a.host_constants.assign(graph_.nodes.size(), nullptr);
  for (const Buffer& buffer : plan.buffers) {
    auto index = at(buffer.index);
    if (buffer.storage == Storage::constant)
      a.constants[{buffer.device, buffer.index}] = constants_.at({buffer.device, buffer.index}).get();
    if (buffer.storage == Storage::host_constant) {
      // CPU bodies only read it: the graph's own copy will do.
      const Tensor& tensor = *graph_.nodes[index].attrs.as<ConstantAttrs>().tensor;
      a.host_constants[index] = const_cast<std::byte*>(tensor.data());
    }
    if (buffer.storage != Storage::input) continue;
    a.sources[index] =
        allocate("an input (" + bytes_text(buffer.bytes) + ")", "use smaller shapes, or " + std::string(kEndOthers),
                 where, [&] { return inputs_->address(buffer.index, buffer.bytes); });
  }
  for (const Variable& variable : plan.variables) a.variables.push_back(used(variable).home->address());
  return a;
}

// Takes locks of Variables, and so must not be called inside.
void Program::Impl::bring_variables(const Plan& plan, const Where& where) {
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    const Variable& variable = plan.variables[i];
    if (variables_.contains(variable.data().get())) continue;
    auto home = allocate("Variable \"" + variable.name() + "\" (" + bytes_text(variable.type().bytes()) + ")",
                         "use a smaller model, an optimizer with less state (sgd), or " + std::string(kEndOthers),
                         where, [&] { return home_of(variable, transfer_, gate_, where); });
    variables_[variable.data().get()] = {variable, home, plan.variable_written[i]};
    if (plan.variable_written[i]) told_by_reads_->add(variable);
    gate_->touch();  // take_variables() has not seen it yet
  }
}

void Program::Impl::prepare_plan() {
  if (!current_) (void)plan();
  if (current_ || prepared_) return;
  const RunGate::Inside inside(*gate_);
  prepared_ = prepare(*unbound_, session_.devices());
}

void Program::Impl::watch_host_ops() {
  const auto& nodes = unbound_->nodes;
  bool has_any = std::any_of(nodes.begin(), nodes.end(), [](const PlanNode& node) { return node.on_host; });
  std::string loops;
  for (const Node& node : graph_.nodes)
    if (node.op == &while_op) loops += (loops.empty() ? "while_ (" : ", while_ (") + to_string(node.where) + ")";
  if (watch_ || (!has_any && loops.empty()) || options_.host_op_patience.count() <= 0) return;
  try {
    watch_.emplace(running_calls_, launches_, std::move(loops), options_.host_op_patience, log_);
  } catch (const std::system_error& e) {
    log_.warn({"nobody watches ops on the host and loops, there is no thread for it: ", e.what()});
  }
}

void Program::Impl::bind(const Where& where) {
  require_caller("bind", where);
  if (current_) return;
  TraceRange range("bind");
  prepare_plan();
  bring_variables(*unbound_, where);
  const RunGate::Inside inside(*gate_);
  Addresses a = addresses(*unbound_, where);
  auto entry = allocate("the workspaces of its ops", "use smaller batches, or " + std::string(kEndOthers), where, [&] {
    return std::make_unique<ShapeEntry>(shapes_.next_number(), unbound_, *prepared_, a, session_.devices());
  });
  watch_host_ops();
  current_ = &shapes_.add(inputs_->shapes(), std::move(entry));
  unbound_.reset();
  prepared_.reset();
  trim_shapes();
}

bool Program::Impl::is_busy(const ShapeEntry& entry) const {
  return &entry == current_ || !launches_.is_over(entry.last_launch);
}

void Program::Impl::trim_shapes() {
  if (is_unsettled_) return;                  // some launches may be running that no later one follows
  if (shapes_.size() > 1) read_step_times();  // while the entries are there whose steps took them
  std::size_t kept = shapes_.size(), bytes = shapes_.bytes();
  bool is_done = device().is_done(stream());
  std::size_t dropped =
      shapes_.trim([&](const ShapeEntry& entry) { return is_done ? &entry == current_ : is_busy(entry); });
  if (dropped == 0 || std::exchange(has_said_full_, true)) return;
  log_.warn({"the shape cache is full: ", count_text(kept, "set"), " of input shapes take ", bytes_text(bytes), ", so ",
             std::to_string(dropped), ", used least recently, ", dropped == 1 ? "was" : "were",
             " dropped; shapes that come back are planned and captured again; raise CompileOptions::shape_cache_bytes, "
             "or pad inputs to fewer shapes"});
}

bool Program::Impl::drop_other_shapes(const std::string& problem) {
  const std::size_t others = shapes_.size() - (current_ ? 1 : 0);
  if (others == 0) return false;
  log_.warn({"memory is short (", problem, "): ", bytes_text(shapes_.bytes() - (current_ ? current_->bytes() : 0)),
             " that are kept for ", count_text(others, "other set"),
             " of input shapes are given up; shapes that come back are planned and captured again"});
  const RunGate::Inside inside(*gate_);
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  read_step_times();
  return shapes_.clear([&](const ShapeEntry& entry) { return &entry == current_; }) > 0;
}

MemoryReport Program::Impl::report() {
  const Plan& plan = this->plan();
  MemoryReport report = memory_report(plan, facts(), inputs_->feed_bytes(plan));
  if (!memory_.empty()) report.arena = memory_[0].arena->size_for(report.arena);
  report.inputs = inputs_->input_bytes(plan);
  report.control = rounded_block(sizeof(Control));
  report.staging = device().staging_bytes();
  report.status = rounded_block(sizeof(HostStatus)) + rounded_block(sizeof(Progress)) +
                  rounded_block(sizeof(StepTimes)) + rounded_block(LaunchQueue::kBytes);
  report.hoisted = plan.host_hoisted_bytes ? rounded_block(plan.host_hoisted_bytes) : 0;
  report.host_arena = report.host_arena ? rounded_block(report.host_arena) : 0;
  return report;
}

MemoryReport Program::Impl::memory() {
  prepare_plan();
  return report();
}

// Called where an allocation failed: says what the plan needs as far as that is known by now.
Error Program::Impl::out_of_memory(const std::string& what, const std::string& remedy, const Where& where,
                                   const std::string& problem) {
  MemoryReport needs = report();
  std::string text = "no room for " + what + ": " + problem + "; the program needs " +
                     bytes_text(needs.device_bytes() + needs.host_bytes()) + ", its largest values are ";
  std::size_t count = std::min<std::size_t>(needs.largest.size(), 5);
  for (std::size_t i = 0; i < count; ++i) {
    const ValueMemory& value = needs.largest[i];
    std::string place = to_string(value.where);
    text += (i ? ", " : "") + value.name + " " + to_string(value.type) + " " + bytes_text(value.bytes) +
            (place.empty() ? "" : " (" + place + ")");
  }
  return Error("memory of " + to_string(device().target().id), where, text, remedy);
}

}  // namespace graphsink
