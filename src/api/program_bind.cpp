// What a Program does before it runs: it plans for the shapes written last, allocates memory and binds the plan to
// addresses.
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

std::string name_of(const Variable& variable) { return "Variable \"" + variable.name() + "\""; }

// Returns the type of an input that may be bound to memory of the caller. Throws Error for a feed or an input with an
// open dimension.
TensorType fixed_input(const Node& node, const Where& where) {
  const auto& attrs = node.attrs.as<InputAttrs>();
  if (node.op == &feed_op) {
    throw Error("bind_memory", where, "\"" + attrs.name + "\" is a feed, of which each step reads another slice",
                "write() its slices, or use an input");
  }
  if (attrs.size_of >= 0) {
    throw Error("bind_memory", where, "the Value is a true_size(), which write() of its input sets",
                "read it in the step");
  }
  if (std::any_of(attrs.dims.begin(), attrs.dims.end(), [](const Dim& dim) { return dim.is_open; })) {
    throw Error("bind_memory", where, "the input \"" + attrs.name + "\" has an open dimension",
                "write() it, or build the graph with a fixed shape");
  }
  return {attrs.dtype, node.outputs[0].shape.examples()};
}

}  // namespace

Plan Program::Impl::make_current_plan() const {
  GRAPHSINK_TRACE(plan, "plan");
  PlanOptions options;
  options.check_finite = options_.check_finite;
  options.default_placement = options_.default_placement;
  options.fuse = options_.fuse;
  options.programmatic_launch = options_.programmatic_launch;
  for (int number = 1; number < session_.count(); ++number)
    options.further_targets.push_back(session_.device(number).target());
  // The passes only read the snapshot of the graph. `view` does not own it.
  Graph view(std::shared_ptr<GraphData>(std::shared_ptr<void>(), const_cast<GraphData*>(&graph_)));
  return make_plan(view, device().target(), system_ops(), inputs_.shapes(), options);
}

void Program::Impl::begin_write(void* stream, const Where& where) {
  Stream& callers = callers_stream("write", stream, where);
  if (device().is_captured_by_others(callers)) {
    throw Error("write", where, "the stream of the caller is being captured, and every launch would copy the same data",
                "write before or after the capture; a captured copy into the memory of Program::bind_memory() can have "
                "new data each time");
  }
  device().make_wait(this->stream(), callers);
}

void Program::Impl::finish_write(const WriteOptions& options) {
  if (options.stream) {
    device().make_wait(session_.borrowed_stream(*options.stream), stream());
  } else if (is_in_callers_graph_) {
    const HostWatch::Wait waits(watch());
    device().wait(stream());
  }
}

void Program::Impl::write(const Value& input, const TensorType& type, const void* data, bool shape_is_known,
                          const WriteOptions& options, const Where& where) {
  require_issuer("write", where);
  const RunGate::Inside inside(variables_.gate());
  settle();
  if (input.valid() && input.graph() != original_) {
    throw Error("write", where, "the Value belongs to another graph", "pass an input of the graph that was compiled");
  }
  if (options.stream) begin_write(*options.stream, where);
  bool is_reshaped = allocate(
      "what was written (" + bytes_text(type.bytes()) + ")",
      "write fewer slices at once and run fewer steps per launch, use smaller batches, or " + std::string(kEndOthers),
      where, [&] { return inputs_.write(input, type, data, shape_is_known, where); });
  finish_write(options);
  if (is_reshaped) shapes_.select(inputs_.shapes());
}

void Program::Impl::bind_memory(const Value& value, void* memory, std::size_t bytes, const Where& where) {
  require_caller("bind_memory", where);
  if (!value.valid() || value.graph() != original_) {
    throw Error("bind_memory", where, "the Value belongs to another graph",
                "pass a Value of the graph that was compiled");
  }
  CallersMemory::Range range{static_cast<std::byte*>(memory), bytes};
  auto refuse = [&] {
    throw Error("bind_memory", where, "the Value is neither an input nor an output",
                "call graph.output(name, value) before compile()");
  };
  if (at(value.node()) >= graph_.nodes.size()) refuse();  // the node was added after compile()
  const Node& node = graph_.nodes[at(value.node())];
  if (node.op == &input_op || node.op == &feed_op) {
    const TensorType type = fixed_input(node, where);
    const std::string name = "input \"" + node.attrs.as<InputAttrs>().name + "\"";
    callers_memory_.require(name, range, type.bytes(), device(), where);
    unbind(where);
    callers_memory_.add(name, range);
    return inputs_.use_memory(value.node(), memory);
  }
  range.is_written = true;
  for (const PlanOutput& output : plan().outputs) {
    if (output.node != value.node() || output.output != value.output()) continue;
    const std::string name =
        output.name.empty() ? "the output of " + std::string(node.op->name) + ", node " + std::to_string(output.node)
                            : "output \"" + output.name + "\"";
    callers_memory_.require(name, range, output.type.bytes(), device(), where);
    unbind(where);
    return callers_memory_.add_output(value.node(), value.output(), name, range);
  }
  refuse();
}

void Program::Impl::bind_memory(const Variable& variable, void* memory, std::size_t bytes, const Where& where) {
  require_caller("bind_memory", where);
  auto same = [&](const VariableUse& use) { return use.variable.data() == variable.data(); };
  auto use = std::find_if(graph_.variables.begin(), graph_.variables.end(), same);
  if (use == graph_.variables.end()) {
    throw Error("bind_memory", where, "the program does not use that Variable", "pass one of Program::variables()");
  }
  CallersMemory::Range range{static_cast<std::byte*>(memory), bytes, use->is_written()};
  callers_memory_.require(name_of(variable), range, variable.type().bytes(), device(), where);
  variables_.use_memory(variable, memory, where);
  callers_memory_.add(name_of(variable), range);
}

void Program::Impl::unbind(const Where& where) {
  if (shapes_.is_in_callers_graph()) {
    throw Error("bind_memory", where, "a graph of yours holds a step of this program, which uses the memory of before",
                "bind memory before enqueue()");
  }
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  shapes_.drop_all();
}

const Plan& Program::Impl::plan() {
  return shapes_.plan([&] { return make_current_plan(); });
}

void Program::Impl::allocate_status(const Where& where) {
  allocate("what steps report", kEndOthers, where, [&] {
    memory_.allocate_control();
    status_.allocate(&memory_.control()->block, running_calls_);
    runner_.allocate(memory_.control());
    StepBlock block;
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
    a.sources[at(buffer.index)] =
        allocate("an input (" + bytes_text(buffer.bytes) + ")", "use smaller shapes, or " + std::string(kEndOthers),
                 where, [&] { return inputs_.address(buffer.index, buffer.bytes); });
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
  if (watch_ || (!has_any && loops.empty()) || options_.host_op_patience.count() <= 0) return;
  try {
    watch_.emplace(running_calls_, runner_.launches(), std::move(loops), options_.host_op_patience, log_);
  } catch (const std::system_error& e) {
    log_.warn({"nobody watches ops on the host and loops, there is no thread for it: ", e.what()});
  }
}

void Program::Impl::bind(const Where& where) {
  require_caller("bind", where);
  if (shapes_.current()) return;
  GRAPHSINK_TRACE(plan, "bind");
  prepare_plan();
  variables_.bring(plan(), status_.teller(), *this, where);
  const RunGate::Inside inside(variables_.gate());
  Addresses a = addresses(plan(), where);
  allocate("the workspaces of its ops", "use smaller batches, or " + std::string(kEndOthers), where,
           [&] { shapes_.bind(inputs_.shapes(), a, session_.devices()); });
  watch_host_ops();
  trim_shapes();
}

void Program::Impl::trim_shapes() {
  runner_.forget_captures();
  if (is_unsettled_) return;                        // streams may be busy for which stream() does not wait
  if (shapes_.size() > 1) runs_.read_step_times();  // as long as the entries of these steps exist
  shapes_.trim(runner_.launches(), device().is_done(stream()));
}

// Drops everything that is kept for other input shapes, to free memory. Returns false if there is nothing to drop.
bool Program::Impl::give_up_memory(const std::string& problem) {
  const ShapeEntry* current = shapes_.current();
  const std::size_t others = shapes_.size() - (current ? 1 : 0);
  if (others == 0) return false;
  log_.warn({"memory is short (", problem, "): ", bytes_text(shapes_.bytes() - (current ? current->bytes() : 0)),
             " that are kept for ", count_text(others, "other set"),
             " of input shapes are given up; shapes that come back are planned and captured again"});
  const RunGate::Inside inside(variables_.gate());
  const HostWatch::Wait waits(watch());
  settle();
  device().wait(stream());
  runs_.read_step_times();
  shapes_.drop_others();
  return true;
}

MemoryReport Program::Impl::report() {
  const Plan& plan = this->plan();
  MemoryReport report = memory_report(plan, facts(), inputs_.feed_bytes(plan));
  if (memory_.control()) report.arena = memory_.arena(0).size_for(report.arena);
  report.inputs = inputs_.input_bytes(plan);
  for (const Variable& variable : plan.variables)
    if (callers_memory_.contains(name_of(variable))) report.variables -= rounded_block(variable.type().bytes());
  report.control = rounded_block(sizeof(Control));
  report.staging = device().staging_bytes();
  report.status = StepStatus::bytes() + rounded_block(LaunchQueue::kBytes);
  report.invariant_copies = plan.host_invariant_bytes ? rounded_block(plan.host_invariant_bytes) : 0;
  report.host_arena = report.host_arena ? rounded_block(report.host_arena) : 0;
  return report;
}

MemoryReport Program::Impl::memory() {
  prepare_plan();
  return report();
}

// Makes the error for a failed allocation. Its text lists the memory that the plan needs and the largest values.
Error Program::Impl::no_memory(const std::string& what, const std::string& remedy, const Where& where,
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
