// Program and Eager.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>

#include <string_view>

#include "bindings.h"
#include "garbage.h"
#include "memory.h"
#include "streams.h"

namespace graphsink::python {

namespace {

// Throws TypeError for what is no text.
std::string name_of(nb::handle object, const char* what) {
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  const nb::object type = nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
  const std::string seen = nb::cast<std::string>(type.attr("__name__"));
  throw nb::type_error((std::string(what) + " is named by a str or given as a Value, not as " + seen).c_str());
}

// To the library a tensor of one dimension is a range of elements, whatever shape these have. An array of NumPy has its
// shape, and one that was made flat by mistake is none of an input.
void require_shape(const Value& input, const Tensor& array, const Where& where) {
  const TensorType wanted = input.type(where);
  if (array.shape().rank() != 1 || wanted.shape.rank() == 0) return;
  if (wanted.shape.rank() == 1 && (wanted.shape.is_open(0) || wanted.shape[0] == array.shape()[0])) return;
  throw Error("write", where, "the input is " + to_string(wanted) + ", was given " + to_string(array.type()),
              "reshape the array");
}

void write(ProgramHandle& self, nb::handle input, nb::handle data, nb::handle stream) {
  const Where where = here();
  const Value value = self.written_input(input, where);
  const Tensor tensor = to_tensor(data, value.dtype(where), where);
  if (nb::hasattr(data, "dtype")) require_shape(value, tensor, where);
  const WriteOptions options{.stream = stream_of(stream)};
  WithoutGil others_run;
  self.program->write(value, tensor, options, where);
}

// The values of a record, [values, ...shape of one].
nb::object records_array(const ProgramHandle& self, const std::string& name, std::vector<double>&& values) {
  std::vector<std::int64_t> sizes{-1};
  if (auto found = self.names->records.find(name); found != self.names->records.end())
    sizes.insert(sizes.end(), found->second.begin(), found->second.end());
  std::int64_t of_one = 1;
  for (std::size_t i = 1; i < sizes.size(); ++i) of_one *= sizes[i];
  sizes[0] = static_cast<std::int64_t>(values.size()) / of_one;
  return to_array(Tensor(Shape(std::span<const std::int64_t>(sizes)), values));
}

void bind_running(nb::class_<ProgramHandle>& type) {
  type.def("write", write, nb::arg("input").sig("str | Value"), nb::arg("data").sig("graphsink._types.ArrayLike"),
           nb::kw_only(), nb::arg("stream").none() = nb::none(),
           "Gives data to an input or a feed, which is named or given as a Value. An input takes one tensor. A feed "
           "takes one slice, which every step uses, or one slice for each step of the coming run, along a new first "
           "dimension. The data is copied before the call returns. Numbers and lists become the dtype of the input; an "
           "array of another dtype or shape is an Error.")
      .def(
          "write",
          [](ProgramHandle&, const nb::kwargs&) {
            throw nb::type_error(
                "write: a gs.Program takes one array with the name of its input, such as "
                "write(\"x\", array); write(x=array) is of gs.TracedProgram, made by compile() of a "
                "function of @gs.program");
          },
          nb::sig("def write(self, **data: typing.Never) -> None"), "Raises TypeError with the way to write an input.")
      .def(
          "run",
          [](ProgramHandle& self, Mode mode, std::int64_t steps, nb::handle stream) {
            require_not_left_behind();
            const Where where = here();
            const RunOptions options{.steps = steps, .stream = stream_of(stream)};
            {
              WithoutGil others_run;
              self.program->run(mode, options, where);
            }
            ++self.runs;
          },
          nb::arg("mode").noconvert() = sink, nb::kw_only(), nb::arg("steps") = 1,
          nb::arg("stream").none() = nb::none(),
          "Runs steps. Returns when they are issued, not when they are done, unless enqueue() was captured and no "
          "stream is given; in mode sink all steps are one launch where the plan allows it. Other Python threads run "
          "meanwhile. Raises Error, having changed nothing, if an input was not written or a feed has too few slices.")
      .def(
          "enqueue",
          [](ProgramHandle& self, nb::handle stream) {
            require_not_left_behind();
            const Where where = here();
            const std::optional<cudaStream_t> given = stream_of(stream);
            {
              WithoutGil others_run;
              self.program->enqueue(given ? *given : nullptr, where);
            }
            ++self.runs;
          },
          nb::arg("stream"),
          "Gives one step to a CUDA stream of the caller's. If the caller is capturing the stream, the step becomes a "
          "part of the caller's graph.")
      .def(
          "bind",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            self.program->bind(where);
          },
          "Plans, prepares and allocates for the input shapes written last. run() calls it when it meets new shapes.")
      .def(
          "sync",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            self.program->sync(where);
          },
          "Waits for all steps. Raises Error if a step failed, naming the op and the step, and with ErrorCode.stopped "
          "if the run stopped at a step (Graph.stop_when()).")
      .def(
          "log_failed_step",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            self.program->log_failed_step(where);
          },
          "Waits for all steps, and logs what sync() would raise for a failed one. Python does so when it ends.")
      .def(
          "poll",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            return self.program->poll(where);
          },
          "Returns whether everything that run() issued is done, without waiting for it. If it is, raises what sync() "
          "would.");
}

void bind_results(nb::class_<ProgramHandle>& type) {
  type.def(
          "records",
          [](ProgramHandle& self, const std::string& name) {
            const Where where = here();
            (void)self.program->record_capacity(name, where);  // throws Error for an unknown name before it waits
            {
              WithoutGil others_run;
              self.program->sync(where);
            }
            // Ctrl-C while it waited ends the call here, where no value is taken yet.
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            std::vector<double> values;
            {
              WithoutGil others_run;
              values = self.program->records<double>(name, where);
            }
            return records_array(self, name, std::move(values));
          },
          nb::arg("name"), nb::sig("def records(self, name: str) -> graphsink._types.Float64Array"),
          "Calls sync(), then returns every value recorded under `name` since the last call, oldest first: float64 "
          "[values, ...], with the shape of what was recorded.")
      .def(
          "try_records",
          [](ProgramHandle& self, const std::string& name) {
            const Where where = here();
            std::vector<double> values;
            {
              WithoutGil others_run;
              values = self.program->try_records<double>(name, where);
            }
            return records_array(self, name, std::move(values));
          },
          nb::arg("name"), nb::sig("def try_records(self, name: str) -> graphsink._types.Float64Array"),
          "The same without sync(): what steps that are done have recorded. Never waits.")
      .def(
          "lost_records",
          [](const ProgramHandle& self, const std::string& name) { return self.program->lost_records(name, here()); },
          nb::arg("name"), "The number of values that were overwritten before they were read.")
      .def(
          "record_capacity",
          [](const ProgramHandle& self, const std::string& name) {
            return self.program->record_capacity(name, here());
          },
          nb::arg("name"), "How many values are kept until they are read.")
      .def(
          "output",
          [](ProgramHandle& self, nb::handle name_or_value) {
            const Where where = here();
            Tensor tensor;
            if (nb::isinstance<Value>(name_or_value)) {
              const Value value = *nb::inst_ptr<Value>(name_or_value);
              WithoutGil others_run;
              tensor = self.program->output(value, where);
            } else {
              const std::string name = name_of(name_or_value, "an output");
              WithoutGil others_run;
              tensor = self.program->output(std::string_view(name), where);
            }
            return to_array(std::move(tensor));
          },
          nb::arg("output").sig("str | Value"),
          nb::sig("def output(self, output: str | Value) -> graphsink._types.Array"),
          "Calls sync(), then returns an output, by name or by Value, as an array that owns its memory; bf16 as "
          "float32.")
      .def(
          "steps",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            return self.program->steps(where);
          },
          "The number of steps committed so far. Waits for all steps.")
      .def(
          "set_steps",
          [](ProgramHandle& self, std::int64_t steps) {
            const Where where = here();
            WithoutGil others_run;
            self.program->set_steps(steps, where);
          },
          nb::arg("steps"), "Sets the number of the next step, for example to go on from a checkpoint.")
      .def(
          "set_seed", [](ProgramHandle& self, std::uint32_t seed) { self.program->set_seed(seed, here()); },
          nb::arg("seed"), "Sets the seed of random ops from the next run() on.");
}

void bind_questions(nb::class_<ProgramHandle>& type) {
  type.def(
          "plan",
          [](const ProgramHandle& self) {
            PlanSummary plan = self.program->plan(here());
            for (Reason& reason : plan.reasons) {
              reason.why = python_names(reason.why);
              reason.remedy = python_names(reason.remedy);
            }
            return plan;
          },
          "The planner's decisions for the input shapes written last.")
      .def(
          "explain", [](const ProgramHandle& self) { return python_names(self.program->explain(here())); },
          "The plan as text: tasks in order with their op, type, stream, memory and line of Python; then reasons.")
      .def(
          "explain_json", [](const ProgramHandle& self) { return python_phrases(self.program->explain_json(here())); },
          "The same and more for a script: one JSON object.")
      .def(
          "explain_dot", [](const ProgramHandle& self) { return python_phrases(self.program->explain_dot(here())); },
          "The same as a graph for graphviz (dot -Tsvg).")
      .def(
          "memory",
          [](ProgramHandle& self) {
            const Where where = here();
            WithoutGil others_run;
            return self.program->memory(where);
          },
          "The memory that the plan needs, before run() allocates it.")
      .def(
          "counters", [](const ProgramHandle& self) { return self.program->counters(here()); },
          "Counts of what the program gave to its device so far.")
      .def(
          "automatic_report", [](ProgramHandle& self) { return self.program->automatic_report(here()); },
          "What the mode automatic has measured and chosen.")
      .def(
          "captured", [](const ProgramHandle& self, LaunchOf steps) { return self.program->captured(steps, here()); },
          nb::arg("steps").noconvert() = LaunchOf::one_step,
          "Counts the nodes that `sink` has captured; None if nothing was yet.")
      .def(
          "write_node_names",
          [](const ProgramHandle& self, const std::string& path) { self.program->write_node_names(path, here()); },
          nb::arg("path"), "Writes a file with names for what profilers show of captured steps.")
      .def(
          "time_ops",
          [](ProgramHandle& self, std::int64_t steps) {
            const Where where = here();
            std::vector<OpTime> times;
            {
              WithoutGil others_run;
              times = self.program->time_ops(steps, where);
            }
            ++self.runs;
            return times;
          },
          nb::arg("steps"), "Runs steps, waits for them, and returns what each op of the plan took.")
      .def_prop_ro("arena_bytes", [](const ProgramHandle& self) { return self.program->arena_bytes(here()); })
      .def_prop_ro("target", [](const ProgramHandle& self) { return self.program->target(here()); })
      .def_prop_ro(
          "variables", [](const ProgramHandle& self) { return self.program->variables(here()); },
          "The Variables that the graph uses, in the order in which it was built.")
      .def_prop_ro(
          "inputs",
          [](const ProgramHandle& self) {
            nb::dict all;
            for (const auto& [name, value] : self.names->inputs) all[name.c_str()] = value;
            return all;
          },
          nb::sig("def inputs(self) -> dict[str, Value]"), "The inputs and feeds by name.")
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::module_::import_("graphsink._picture").attr("html_of")(self.attr("explain_json")());
          },
          nb::sig("def _repr_html_(self) -> str"));
}

void bind_eager(nb::module_& m) {
  nb::class_<Eager>(m, "Eager",
                    "Runs each op as it is called, without a graph or a plan: for experiments, and to look at values "
                    "while debugging.")
      .def(
          "__init__",
          [](Eager* self, DeviceId device) {
            WithoutGil others_run;
            new (self) Eager(device);
          },
          nb::arg("device") = cpu())
      .def(
          "tensor",
          [](Eager& self, nb::handle data, std::optional<DType> dtype) {
            const Where where = here();
            const Tensor tensor = to_tensor_of(data, dtype, "tensor", where);
            WithoutGil others_run;
            return self.tensor(tensor, where);
          },
          nb::arg("data").sig("graphsink._types.ArrayLike"), nb::arg("dtype") = nb::none(),
          "A Value of these elements. An array keeps its dtype, and another one as `dtype` is an Error; numbers become "
          "`dtype`, or f32.");
  m.def(
      "read",
      [](const Value& value) {
        const Where where = here();
        Tensor tensor;
        {
          WithoutGil others_run;
          tensor = Eager::read(value, where);
        }
        return to_array(std::move(tensor));
      },
      nb::arg("value"), nb::sig("def read(value: Value) -> graphsink._types.Array"),
      "Waits until a Value of an Eager is computed, and returns a copy.");
}

}  // namespace

Value ProgramHandle::input(nb::handle name_or_value, const Where& where) const {
  if (nb::isinstance<Value>(name_or_value)) return *nb::inst_ptr<Value>(name_or_value);
  const std::string name = name_of(name_or_value, "an input or a feed");
  auto found = names->inputs.find(name);
  if (found != names->inputs.end()) return found->second;
  std::string known;
  for (const auto& [each, value] : names->inputs) known += (known.empty() ? "\"" : ", \"") + each + "\"";
  throw Error("write", where, "the program has no input or feed \"" + name + "\"",
              known.empty() ? "it has none at all" : "it has " + known);
}

Value ProgramHandle::written_input(nb::handle name_or_value, const Where& where) const {
  Value value = input(name_or_value, where);
  if (!read_only.contains(value.node())) return value;
  throw Error("write", where, "the input lies in a read-only array, which bind_memory() was given",
              "change what is in that memory, or bind an array that may be written to");
}

void bind_program(nb::module_& m) {
  nb::class_<ProgramHandle> type(m, "Program",
                                 "A compiled graph on a device, made by compile(). Used by one thread at a time.",
                                 nb::is_weak_referenceable(), nb::type_slots(OwnedObjects<ProgramHandle>::slots));
  bind_staged(m, type);  // its write() first, because the other takes any object
  bind_running(type);
  bind_bind_memory(type);
  bind_output_view(m, type);
  bind_results(type);
  bind_questions(type);
  bind_eager(m);
}

}  // namespace graphsink::python
