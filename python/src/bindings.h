// The parts of the module, each in a file of its own.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "arrays.h"
#include "casters.h"
#include "gil.h"
#include "handles.h"

namespace graphsink::python {

// Lets other Python threads run while ops of an Eager are computed; an op of a graph is made too fast for that.
// Declared before the operands, which may be the last to refer to memory of a device: so they end without the GIL, too.
class OpCall {
 public:
  // Called when the operands are there, for which Python is needed.
  template <class... Operands>
  void begin(const Operands&... operands) {
    if ((is_of_eager(operands) || ...)) begin_without_gil();
  }
  void begin_without_gil() { others_run_.emplace(); }

 private:
  static bool is_of_eager(const Value& value) { return value.eager() != nullptr; }
  static bool is_of_eager(const Padded& padded) { return is_of_eager(padded.values); }
  static bool is_of_eager(const Arg& operand) {
    const auto* value = std::get_if<Value>(&operand.content());
    return value != nullptr && is_of_eager(*value);
  }
  static bool is_of_eager(const std::vector<Arg>& operands) {
    return std::any_of(operands.begin(), operands.end(), [](const Arg& operand) { return is_of_eager(operand); });
  }

  std::optional<WithoutGil> others_run_;
};

// The graph that is being traced (graphsink/_context.py). Throws Error of `op` if there is none.
const GraphHandle& current_graph(const Where& where, const char* op = "operand");
// The Value that an operand stands for; that of a Variable belongs to the graph that is being traced.
Value value_of(const Operand& operand, const Where& where, const char* op = "operand");

// A text of the library with the names that Python has for what it names: "RunOptions::steps" is "steps", a keyword,
// and "Program::write()" is "Program.write()". Needs the GIL.
std::string python_names(std::string_view text);
// The same of whole remedies alone, which needs no GIL: for JSON, in which every text stands in quotes.
std::string python_phrases(std::string_view text);
// Makes an Error the exception that Python raises next, with the cause that a host op has left. Where a handler of a
// signal raises, as that of Ctrl-C does, its exception is raised next, and the Error is its context.
void set_error(const Error& error);

void bind_errors(nb::module_& m);
void bind_types(nb::module_& m);  // devices, modes, dimensions, buckets, Tensor
void bind_graph(nb::module_& m);  // Value, Variable, Graph
void bind_scope(nb::module_& m);
void bind_ops(nb::module_& m);  // made from ops.h and select.h by make_ops.py
void bind_host_ops(nb::module_& m);
void bind_control(nb::module_& m);  // if_, switch_, while_, scan, grad
void bind_optimizers(nb::module_& m);
void bind_options(nb::module_& m);  // CompileOptions
void bind_reports(nb::module_& m);  // reports of a Program about itself
void bind_program(nb::module_& m);
void bind_bind_memory(nb::class_<ProgramHandle>& type);
void bind_output_view(nb::module_& m, nb::class_<ProgramHandle>& program);
void bind_staged(nb::module_& m, nb::class_<ProgramHandle>& program);  // Program.stage()
void bind_files(nb::module_& m);                                       // checkpoints
void bind_data(nb::module_& m);                                        // sources, orders, Loader
void bind_images(nb::module_& m);                                      // sources of images
void bind_train(nb::module_& m);
void bind_sink_cache(nb::module_& m);
void bind_stream_loader(nb::module_& m);

}  // namespace graphsink::python
