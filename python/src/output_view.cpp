// Program.output_view(): an output where it lies, in memory of bind_memory().
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bindings.h"
#include "garbage.h"
#include "views.h"

namespace graphsink::python {

namespace {

// A view for which NumPy has no array. It knows whether the program has run since.
struct OutputView {
  nb::object program;
  BoundOutput output;
  DeviceId device;
  std::uint64_t work = 0;  // ProgramHandle::work() when it was made

  template <class Visit>
  void visit_owned(Visit visit) {
    visit(program);
  }
};

// Throws Error if the elements are those of another run, or the program was closed.
ProgramHandle& require_current(const OutputView& view, const Where& where) {
  auto& handle = *nb::inst_ptr<ProgramHandle>(view.program);
  if (handle.work(where) == view.work) return handle;
  throw Error("output_view", where, "the program has run since, and steps write to this memory",
              "call output_view() after each run");
}

void wait_for(ProgramHandle& handle, const Where& where) {
  WithoutGil others_run;
  handle.program->sync(where);
}

ViewedMemory viewed(const OutputView& view) {
  return {view.output.begin, view.output.type, view.device, true, view.output.owner};
}

// Makes the work of the program come before that of the stream, by waiting for the program: the library has no call
// that makes a stream wait for it.
nb::object give_dlpack(const OutputView& self, nb::handle stream, nb::handle max_version, nb::handle dl_device,
                       nb::handle copy) {
  const Where where = here();
  ProgramHandle& handle = require_current(self, where);
  std::pair<std::int64_t, std::int64_t> version{};
  if (!max_version.is_none() && !nb::try_cast(max_version, version))
    throw nb::type_error("__dlpack__(): max_version is a tuple of two integers or None");
  if (version.first < 1) {
    throw nb::buffer_error(
        "__dlpack__(): an output is read-only, which only versioned capsules say; remedy: pass max_version=(1, 0)");
  }
  if (stream_of_reader(stream, self.device)) wait_for(handle, where);
  return dlpack_of(viewed(self), max_version, dl_device, copy);
}

nb::dict cuda_array_interface(const OutputView& self) {
  require_cuda_array(viewed(self));
  const Where where = here();
  wait_for(require_current(self, where), where);
  return cuda_array_interface_of(viewed(self), nb::none());
}

Value output_value(const ProgramHandle& self, nb::handle output, const Where& where) {
  if (nb::isinstance<Value>(output)) return *nb::inst_ptr<Value>(output);
  if (!nb::isinstance<nb::str>(output)) throw nb::type_error("an output is named by a str or given as a Value");
  const std::string name = nb::cast<std::string>(output);
  if (auto found = self.names->outputs.find(name); found != self.names->outputs.end()) return found->second;
  std::string known;
  for (const auto& [each, value] : self.names->outputs) known += (known.empty() ? "\"" : ", \"") + each + "\"";
  throw Error("output_view", where, "the program has no output \"" + name + "\"",
              known.empty() ? "call Graph.output() before compile()" : "it has " + known);
}

nb::object output_view(nb::handle program, nb::handle output) {
  const Where where = here();
  auto& self = *nb::inst_ptr<ProgramHandle>(program);
  const DeviceId device = self.program->target(where).id;
  const Value value = output_value(self, output, where);
  const auto found = self.outputs.find({value.node(), value.output()});
  if (found == self.outputs.end()) {
    throw Error("output_view", where, "the output is not in memory of bind_memory()",
                "bind an array to it before the first run, or copy it with output()");
  }
  const BoundOutput memory = found->second;
  const std::uint64_t work = self.work(where);
  if (work == memory.work) {
    throw Error("output_view", where, "no run has computed the output in this memory",
                "call run() after bind_memory()");
  }
  if (device.kind == DeviceKind::cpu) wait_for(self, where);
  if (device.kind == DeviceKind::cpu && memory.type.dtype != bf16)
    return array_of(memory.begin, memory.type, keeper(memory.owner), false);
  return nb::cast(OutputView{nb::borrow(program), memory, device, work});
}

}  // namespace

void bind_output_view(nb::module_& m, nb::class_<ProgramHandle>& program) {
  nb::class_<OutputView>(m, "OutputView",
                         "An output of Program.output_view() on a CUDA device, or of bf16: for from_dlpack() of "
                         "PyTorch, JAX and CuPy, and for what reads __cuda_array_interface__. It is read-only, and "
                         "keeps the memory and the program.",
                         nb::type_slots(OwnedObjects<OutputView>::slots))
      .def_prop_ro("dtype", [](const OutputView& self) { return self.output.type.dtype; })
      .def_prop_ro("shape", [](const OutputView& self) { return self.output.type.shape; })
      .def("__dlpack__", give_dlpack, nb::kw_only(), nb::arg("stream").none() = nb::none(),
           nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
           nb::arg("copy").none() = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"),
           "A versioned capsule with the flag for read-only memory. Waits for the program, so that any stream may read "
           "the memory, unless stream is -1. Raises Error if the program has run since output_view(), or if a step "
           "failed; BufferError without max_version.")
      .def(
          "__dlpack_device__", [](const OutputView& self) { return dlpack_device_of(self.device); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("__cuda_array_interface__", cuda_array_interface,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"),
                   "Version 3. Waits for the program, so that its stream is None. Raises Error as __dlpack__() does.")
      .def("__repr__", [](const OutputView& self) {
        return "OutputView(" + to_string(self.output.type) + ", " + to_string(self.device) + ")";
      });
  program.def(
      "output_view", output_view, nb::arg("output").sig("str | Value"),
      nb::sig("def output_view(self, output: str | Value) -> typing.Any"),
      "An output, by name or Value, where it lies: in memory of bind_memory(), of which nothing is copied. On "
      "the CPU calls sync() and returns an array of NumPy that is read-only; on a CUDA device, and for bf16, "
      "an OutputView, which waits when its memory is asked for. Valid until the next run, which writes to the "
      "memory; an OutputView raises Error then, but an array of NumPy cannot tell, and launches of a graph of the "
      "caller's (enqueue()) are not seen. Keeps the memory. After a "
      "failed step the elements are undefined. Raises Error for an output whose memory was not bound, and "
      "before the first run.");
}

}  // namespace graphsink::python
