// Program::write() and bind_memory(): data that the caller writes, and memory of the caller that a Program uses in
// place of its own.
#include <algorithm>
#include <utility>

#include "api/program_impl.h"
#include "base/at.h"
#include "passes/explain.h"

namespace graphsink {
namespace {

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

std::string name_of(const Variable& variable) { return "Variable \"" + variable.name() + "\""; }

void Program::Impl::begin_write(cudaStream_t stream, const Where& where) {
  Stream& callers = callers_stream("write", stream, where);
  if (device().is_captured_by_others(callers)) {
    throw Error("write", where, "the stream of the caller is being captured, and every launch would copy the same data",
                "write before or after the capture; a captured copy into the memory of Program::bind_memory() can have "
                "new data each time");
  }
  device().make_wait(this->stream(), callers);
}

void Program::Impl::end_call(const std::optional<cudaStream_t>& stream, bool is_for_caller) {
  if (stream) {
    device().make_wait(session_.borrowed_stream(*stream), this->stream());
  } else if (is_in_callers_graph_ || is_for_caller) {
    const HostWatch::Wait waits(watch());
    device().wait(this->stream());
  }
}

void Program::Impl::require_own(const Value& input, const char* call, const Where& where) const {
  if (!input.valid() || input.graph() == original_) return;
  throw Error(call, where, "the Value belongs to another graph", "pass an input of the graph that was compiled");
}

void Program::Impl::write(const Value& input, const TensorType& type, const void* data, bool shape_is_known,
                          const WriteOptions& options, const Where& where) {
  require_issuer("write", where);
  const RunGate::Inside inside(variables_.gate());
  settle();
  require_own(input, "write", where);
  if (options.stream) begin_write(*options.stream, where);
  bool is_reshaped = allocate("what was written (" + bytes_text(type.bytes()) + ")",
                              "write fewer slices at once and run fewer steps per launch, use smaller batches", where,
                              [&] { return inputs_.write(input, type, data, shape_is_known, where); });
  end_call(options.stream, inputs_.is_callers(input.node()));
  if (is_reshaped) shapes_.select(inputs_.shapes());
}

Staged Program::Impl::stage(const Value& feed, std::int64_t slices, const Shape* slice, const Where& where) {
  require_issuer("stage", where);
  require_own(feed, "stage", where);
  const RunGate::Inside inside(variables_.gate());
  return allocate("staged slices", "stage fewer slices at once, and write() or drop those that were staged before",
                  where, [&] { return inputs_.stage(feed, slices, slice, where); });
}

void Program::Impl::write(const Staged& staged, const Where& where) {
  require_issuer("write", where);
  const RunGate::Inside inside(variables_.gate());
  settle();
  const bool is_reshaped =
      allocate("staged slices", "stage fewer slices at once and run fewer steps per launch, use smaller batches", where,
               [&] { return inputs_.send(staged, where); });
  end_call({});
  if (is_reshaped) shapes_.select(inputs_.shapes());
}

void Program::Impl::bind_memory(const Value& value, void* memory, std::size_t bytes, std::shared_ptr<const void> owner,
                                const Where& where) {
  require_caller("bind_memory", where);
  if (!value.valid() || value.graph() != original_) {
    throw Error("bind_memory", where, "the Value belongs to another graph",
                "pass a Value of the graph that was compiled");
  }
  CallersMemory::Range range{static_cast<std::byte*>(memory), bytes, false, std::move(owner)};
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

void Program::Impl::bind_memory(const Variable& variable, void* memory, std::size_t bytes,
                                std::shared_ptr<const void> owner, const Where& where) {
  require_caller("bind_memory", where);
  auto same = [&](const VariableUse& use) { return use.variable.data() == variable.data(); };
  auto use = std::find_if(graph_.variables.begin(), graph_.variables.end(), same);
  if (use == graph_.variables.end()) {
    throw Error("bind_memory", where, "the program does not use that Variable", "pass one of Program::variables()");
  }
  CallersMemory::Range range{static_cast<std::byte*>(memory), bytes, use->is_written(), owner};
  const int home = home_device(variable, device().target());
  if (home >= session_.count()) {
    throw Error("bind_memory", where,
                "the Variable \"" + variable.name() + "\" has the placement on_device(" + std::to_string(home) +
                    "), but the program has no such further device",
                "name it in CompileOptions::further_devices");
  }
  callers_memory_.require(name_of(variable), range, variable.type().bytes(), session_.device(home), where);
  // Shares the ownership of what owns the memory, if anybody said what that is.
  variables_.use_memory(variable, std::shared_ptr<void>(std::const_pointer_cast<void>(std::move(owner)), memory),
                        where);
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

}  // namespace graphsink
