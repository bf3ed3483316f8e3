// What a Program does before it runs: plans for the shapes written last, memory, bindings.
#include <algorithm>

#include "api/program_impl.h"
#include "base/trace.h"
#include "ir/system_ops.h"

namespace graphsink {

Plan Program::Impl::make_current_plan() const {
  TraceRange range("plan");
  PlanOptions options;
  options.check_finite = options_.check_finite;
  options.fuse = options_.fuse;
  // The passes only read the snapshot; the handle does not own it.
  Graph view(std::shared_ptr<GraphData>(std::shared_ptr<void>(), const_cast<GraphData*>(&graph_)));
  return make_plan(view, device_->target(), system_ops(), inputs_->shapes(), options);
}

void Program::Impl::write(const Value& input, const TensorType& type, const void* data, bool shape_is_known,
                          const Where& where) {
  settle();
  if (input.valid() && input.graph() != original_) {
    throw Error("write", where, "the Value belongs to another graph", "pass an input of the graph that was compiled");
  }
  if (!inputs_->write(input, type, data, shape_is_known, where)) return;
  InputShapes shapes = inputs_->shapes();
  auto bound = std::find_if(bindings_.begin(), bindings_.end(), [&](const auto& b) { return b.first == shapes; });
  current_ = bound == bindings_.end() ? nullptr : bound->second.get();
  unbound_.reset();  // planned when it is asked for: the shapes of several inputs may have to change together
}

const Plan& Program::Impl::plan() {
  if (current_) return current_->plan();
  if (!unbound_) unbound_ = make_current_plan();
  return *unbound_;
}

void Program::Impl::upload_constants(const Plan& plan) {
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.storage != Storage::constant || constants_.contains(buffer.index)) continue;
    const Tensor& tensor = *graph_.nodes[static_cast<std::size_t>(buffer.index)].attrs.as<ConstantAttrs>().tensor;
    Memory memory = device_->allocate(tensor.bytes());
    device_->upload(*streams_[0], memory.get(), tensor.data(), tensor.bytes());
    constants_[buffer.index] = memory;
  }
}

Addresses Program::Impl::addresses(const Plan& plan) {
  Addresses a;
  arena_->grow(plan.arena_bytes);
  a.arena = arena_->base();
  if (plan.host_arena_bytes > 0) {
    a.host_arena = device_->allocate_host(plan.host_arena_bytes);
  }
  a.block = params_.block;
  a.feed_table = params_.rings;
  a.feed_strides = params_.strides;
  a.record_ring = record_ring_.get();
  a.host_status = static_cast<HostStatus*>(host_status_.get());
  upload_constants(plan);
  a.sources.assign(graph_.nodes.size(), nullptr);
  a.host_constants.assign(graph_.nodes.size(), nullptr);
  for (const Buffer& buffer : plan.buffers) {
    auto index = static_cast<std::size_t>(buffer.index);
    if (buffer.storage == Storage::constant) a.sources[index] = constants_.at(buffer.index).get();
    if (buffer.storage == Storage::host_constant) {
      // CPU bodies only read it: the graph's own copy will do.
      const Tensor& tensor = *graph_.nodes[index].attrs.as<ConstantAttrs>().tensor;
      a.host_constants[index] = const_cast<std::byte*>(tensor.data());
    }
    if (buffer.storage == Storage::input) a.sources[index] = inputs_->address(buffer.index, buffer.bytes);
  }
  for (const Variable& variable : plan.variables) {
    auto& home = homes_[variable.data().get()];
    if (!home) {
      home = home_of(variable, transfer_, Where());
      variables_.push_back(variable);
    }
    a.variables.push_back(home->address());
  }
  return a;
}

void Program::Impl::bind() {
  if (current_) return;
  TraceRange range("bind");
  Addresses a = addresses(plan());
  auto binding = std::make_unique<Binding>(*unbound_, a, *device_);
  bindings_.emplace_back(inputs_->shapes(), std::move(binding));
  current_ = bindings_.back().second.get();
  unbound_.reset();
}

}  // namespace graphsink
