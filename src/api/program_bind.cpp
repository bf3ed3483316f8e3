// What a Program does before it runs: plans for the shapes written last, memory, bindings.
#include <algorithm>
#include <system_error>

#include "api/program_impl.h"
#include "base/trace.h"
#include "ir/system_ops.h"
#include "passes/explain.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

constexpr const char* kEndOthers = "end other programs on this device";

}  // namespace

Plan Program::Impl::make_current_plan() const {
  TraceRange range("plan");
  PlanOptions options;
  options.check_finite = options_.check_finite;
  options.default_place = options_.default_place;
  options.fuse = options_.fuse;
  for (const FurtherDevice& further : further_) options.further_targets.push_back(further.device->target());
  // The passes only read the snapshot; the handle does not own it.
  Graph view(std::shared_ptr<GraphData>(std::shared_ptr<void>(), const_cast<GraphData*>(&graph_)));
  return make_plan(view, device_->target(), system_ops(), inputs_->shapes(), options);
}

void Program::Impl::open_further_devices() {
  for (DeviceId id : options_.further_devices) {
    FurtherDevice further;
    further.device = open_device(id, log_, devices_);
    further.stream = further.device->make_stream();
    devices_.push_back(further.device.get());
    further_.push_back(std::move(further));
  }
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
  InputShapes shapes = inputs_->shapes();
  auto bound = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return b.first == shapes; });
  current_ = bound == bindings_.end() ? nullptr : bound->second.get();
  unbound_.reset();  // planned when it is asked for: the shapes of several inputs may have to change together
  is_prepared_ = false;
}

const Plan& Program::Impl::plan() {
  if (current_) return current_->plan();
  if (!unbound_) unbound_ = make_current_plan();
  return *unbound_;
}

void Program::Impl::upload_constants(const Plan& plan, const Where& where) {
  for (const Buffer& buffer : plan.buffers) {
    std::pair key(buffer.device, buffer.index);
    if (buffer.storage != Storage::constant || constants_.contains(key)) continue;
    Stream& stream = buffer.device == 0 ? *streams_[0] : *further_[static_cast<std::size_t>(buffer.device - 1)].stream;
    const Tensor& tensor = *graph_.nodes[static_cast<std::size_t>(buffer.index)].attrs.as<ConstantAttrs>().tensor;
    Memory memory =
        allocate("a constant (" + bytes_text(tensor.bytes()) + ")", "make it smaller, or " + std::string(kEndOthers),
                 where, [&] { return device(buffer.device).allocate(tensor.bytes()); });
    device(buffer.device).upload(stream, memory.get(), tensor.data(), tensor.bytes());
    constants_[key] = memory;
  }
}

void Program::Impl::allocate_status(const Where& where) {
  allocate("what steps report", "end other programs on this device", where, [&] {
    arena_ = device_->reserve();
    for (FurtherDevice& further : further_) {
      further.arena = further.device->reserve();
      further.block = further.device->allocate(sizeof(StepBlock));
    }
    control_ = device_->allocate(sizeof(Control));
    host_status_ = device_->allocate_host(sizeof(HostStatus));
    (new (host_status_.get()) HostStatus)->running = &running_calls_;
    progress_ = device_->allocate_host(sizeof(Progress));
    new (progress_.get()) Progress;
    step_times_ = device_->allocate_host(sizeof(StepTimes));
    new (step_times_.get()) StepTimes;
    launches_.allocate(*device_, &control()->block, &control()->next_launch);
    StepBlock block;
    device_->upload(*streams_[0], &control()->block, &block, sizeof block);
  });
  allocate_records(where);
}

void Program::Impl::allocate_records(const Where& where) {
  const Plan& plan = this->plan();
  std::size_t bytes = ring_bytes(plan);
  record_ring_ = allocate("the rings of " + count_text(plan.records.size(), "record") + " (" + bytes_text(bytes) + ")",
                          "give record() a smaller capacity, record fewer values, or " + std::string(kEndOthers), where,
                          [&] { return device_->allocate_host(bytes); });
  auto* ring = static_cast<double*>(record_ring_.get());
  for (const PlanRecord& record : plan.records) {
    records_.push_back({record.name, ring, static_cast<std::uint32_t>(record.capacity)});
    ring += record.capacity;
  }
}

Addresses Program::Impl::addresses(const Plan& plan, const Where& where) {
  Addresses a;
  allocate("the arena (" + bytes_text(plan.arena_bytes) + ")",
           "use smaller batches, f16 or bf16 for the largest values, or " + std::string(kEndOthers), where,
           [&] { arena_->grow(plan.arena_bytes); });
  a.arenas.push_back(arena_->base());
  a.blocks.push_back(&control()->block);
  for (std::size_t i = 0; i < further_.size(); ++i) {
    std::size_t bytes = plan.further_arena_bytes[i];
    allocate("the arena of " + to_string(further_[i].device->target().id) + " (" + bytes_text(bytes) + ")",
             "use smaller batches, or label fewer ops with it", where, [&] { further_[i].arena->grow(bytes); });
    a.arenas.push_back(further_[i].arena->base());
    a.blocks.push_back(static_cast<StepBlock*>(further_[i].block.get()));
  }
  if (std::size_t bytes = host_arena_bytes(plan); bytes > 0) {
    a.host_arena = allocate("the values and workspaces of ops on the host (" + bytes_text(bytes) + ")",
                            "use smaller batches, or give these ops a CUDA body", where,
                            [&] { return device_->allocate_host(bytes); });
  }
  a.hoisted.resize(1 + further_.size());
  if (plan.hoisted_bytes > 0) {
    a.hoisted[0] = allocate("copies on the host of what no step changes (" + bytes_text(plan.hoisted_bytes) + ")",
                            "give the ops that read them a CUDA body, or " + std::string(kEndOthers), where,
                            [&] { return device_->allocate_host(plan.hoisted_bytes); });
  }
  for (std::size_t i = 0; i < further_.size(); ++i) {
    std::size_t bytes = plan.further_hoisted_bytes[i];
    if (bytes == 0) continue;
    std::string device = to_string(further_[i].device->target().id);
    a.hoisted[i + 1] = allocate("copies on " + device + " of what no step changes (" + bytes_text(bytes) + ")",
                                "label fewer ops with it, or end other programs on it", where,
                                [&] { return further_[i].device->allocate(bytes); });
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
    auto index = static_cast<std::size_t>(buffer.index);
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
  if (current_ || is_prepared_) return;
  const RunGate::Inside inside(*gate_);
  prepare(*unbound_, devices_);
  is_prepared_ = true;
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
  auto binding = allocate("the workspaces of its ops", "use smaller batches, or " + std::string(kEndOthers), where,
                          [&] { return std::make_unique<Binding>(*unbound_, a, devices_); });
  watch_host_ops();
  bindings_.emplace_back(inputs_->shapes(), std::move(binding));
  current_ = bindings_.back().second.get();
  current_->index = bindings_.size() - 1;
  unbound_.reset();
  is_prepared_ = false;
}

MemoryReport Program::Impl::report() {
  const Plan& plan = this->plan();
  MemoryReport report = memory_report(plan, inputs_->feed_bytes(plan));
  if (arena_) report.arena = arena_->size_for(report.arena);
  report.inputs = inputs_->input_bytes(plan);
  report.control = rounded_block(sizeof(Control));
  report.staging = device_->staging_bytes();
  report.status = rounded_block(sizeof(HostStatus)) + rounded_block(sizeof(Progress)) +
                  rounded_block(sizeof(StepTimes)) + rounded_block(LaunchQueue::kBytes);
  report.hoisted = plan.hoisted_bytes ? rounded_block(plan.hoisted_bytes) : 0;
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
  return Error("memory of " + to_string(device_->target().id), where, text, remedy);
}

}  // namespace graphsink
