// Program.bind_memory(): memory of arrays as the place of inputs, outputs and Variables.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "interpreter.h"
#include "memory.h"
#include "streams.h"

namespace graphsink::python {

namespace {

[[noreturn]] void refuse(const Where& where, const std::string& problem, const std::string& remedy) {
  throw Error("bind_memory", where, problem, remedy);
}

// Throws Error for memory that a program cannot use as that of a value of this type.
void require_fit(const GivenMemory& memory, const TensorType& type, const Target& target, bool is_written,
                 const Where& where) {
  if (is_written && memory.is_read_only)
    refuse(where, "the array is read-only, and steps or write() may write to it",
           "pass an array that may be written to");
  const std::string or_copied = target.separate_memory || type.dtype == bf16 ? "" : ", or pass copy=True";
  if (memory.type != type) {
    refuse(where, "the array is " + to_string(memory.type) + ", expected " + to_string(type),
           "pass an array of that type");
  }
  if (!memory.is_contiguous)
    refuse(where, "the elements of the array have gaps between them", "make it contiguous" + or_copied);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.begin);
  if (const std::size_t rest = address % target.alignment; rest != 0 && type.bytes() > 0) {
    refuse(where,
           "the array begins " + std::to_string(rest) + " bytes behind a multiple of " +
               std::to_string(target.alignment) + ", which " + to_string(target.id) + " asks for",
           "pass an array that begins at such a multiple" + or_copied);
  }
}

// An array in memory of its own, with the same elements.
nb::object copied(nb::handle object, const TensorType& type, const Target& target, const Where& where) {
  if (target.separate_memory)
    refuse(where, "copy=True makes arrays in memory of the host", "copy the array on the device");
  if (type.dtype == bf16)
    refuse(where, "copy=True makes arrays of NumPy, which has no bf16", "pass a tensor of PyTorch that fits");
  Tensor tensor = to_tensor(object, type.dtype, where);
  if (tensor.type() != type)
    refuse(where, "the array is " + to_string(tensor.type()) + ", expected " + to_string(type),
           "pass an array of that type");
  return aligned_array(tensor.data(), type);
}

// An input or an output, by its name or as itself; an input, if both have the name. Throws Error for any other.
Value bound_value(const ProgramHandle& self, nb::handle what, const Where& where) {
  if (nb::isinstance<nb::str>(what)) {
    const std::string name = nb::cast<std::string>(what);
    const auto& outputs = self.names->outputs;
    if (auto found = outputs.find(name); found != outputs.end() && !self.names->inputs.contains(name))
      return found->second;
  }
  return self.input(what, where);
}

bool is_output(const ProgramHandle& self, const Value& value) {
  for (const auto& [name, output] : self.names->outputs)
    if (output.node() == value.node() && output.output() == value.output()) return true;
  return false;
}

bool is_input(const ProgramHandle& self, const Value& value) {
  for (const auto& [name, input] : self.names->inputs)
    if (input.node() == value.node()) return true;
  return false;
}

nb::object bind_memory(ProgramHandle& self, nb::handle what, nb::handle array, bool copy, nb::handle stream) {
  const Where where = here();
  const Target target = self.program->target(where);
  const bool is_variable = nb::isinstance<Variable>(what);
  const Value value = is_variable ? Value() : bound_value(self, what, where);
  const TensorType type = is_variable ? nb::inst_ptr<Variable>(what)->type(where) : value.type(where);
  for (int d = 0; d < type.shape.rank(); ++d)
    if (type.shape.is_open(d))
      refuse(where, "it is " + to_string(type) + ", and an array has one size for all steps",
             "use write() or output(), or make its dimensions fixed");
  const bool is_written = is_variable || !is_input(self, value);
  const nb::object given = copy ? copied(array, type, target, where) : nb::borrow(array);
  const GivenMemory memory = memory_of(given, target.id, stream_of(stream), where);
  require_fit(memory, type, target, is_written, where);
  const std::shared_ptr<const void> kept = keep(memory.owner);
  {
    WithoutGil others_run;
    if (type.bytes() == 0) {  // such an array may have no address, and there is nothing to place
      if (!is_variable && !is_written) self.program->write(value, Tensor(type), WriteOptions{}, where);
    } else if (is_variable) {
      self.program->bind_memory(*nb::inst_ptr<Variable>(what), memory.begin, type.bytes(), kept, where);
    } else {
      self.program->bind_memory(value, memory.begin, type.bytes(), kept, where);
    }
  }
  if (!is_variable && !is_written) {
    memory.is_read_only ? (void)self.read_only.insert(value.node()) : (void)self.read_only.erase(value.node());
  }
  if (!is_variable && (is_written || is_output(self, value)))
    self.outputs.insert_or_assign({value.node(), value.output()},
                                  BoundOutput{memory.begin, type, kept, self.work(where)});
  return given;
}

}  // namespace

void bind_bind_memory(nb::class_<ProgramHandle>& type) {
  type.def("bind_memory", bind_memory, nb::arg("value").sig("str | Value | Variable"), nb::arg("array"), nb::kw_only(),
           nb::arg("copy") = false, nb::arg("stream").none() = nb::none(),
           nb::sig("def bind_memory(self, value: str | Value | Variable, array: typing.Any, *, copy: bool = False, "
                   "stream: typing.Any = None) -> typing.Any"),
           "Makes the memory of an array the place of an input or an output (by name or Value) or a Variable; nothing "
           "is copied. The array is of the type of the value, contiguous, in memory of the program's device, and "
           "begins at a multiple of Target.alignment: one of the host by DLPack or the buffer protocol, one of a CUDA "
           "device by DLPack or __cuda_array_interface__. Steps read inputs where they lie, and leave outputs and "
           "Variables there when they are done (sync()); a Variable has the value that is in the memory. What the "
           "array's library gave to a CUDA device before is waited for; with `stream`, the stream of run(), that "
           "stream waits for it in the place of this call. The array is kept as long as its memory may be used. With "
           "`copy`, a copy of the array is bound. Returns the array that is bound. Call it before the first run. "
           "Raises Error for an array that does not fit, for one with a mask, and for one that is read-only where "
           "steps write to it; write() to an input in a read-only one raises it, too.");
}

}  // namespace graphsink::python
