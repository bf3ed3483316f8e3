// Program.bind_memory(): memory of arrays as the place of inputs, outputs and Variables.
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "interpreter.h"

namespace graphsink::python {

namespace {

[[noreturn]] void refuse(const Where& where, const std::string& problem, const std::string& remedy) {
  throw Error("bind_memory", where, problem, remedy);
}

// The memory of an array, of which nothing is copied.
AnyArray memory_of(nb::handle object, const TensorType& type, const Target& target, bool is_written,
                   const Where& where) {
  AnyArray array;
  if (!nb::try_cast(object, array)) {
    refuse(where, "the object gives no memory by DLPack or the buffer protocol",
           "pass an array of NumPy, PyTorch, JAX or CuPy, or copy=True");
  }
  if (nb::ndarray<> writable; is_written && !nb::try_cast(object, writable))
    refuse(where, "the array is read-only, and steps write to it", "pass an array that may be written to");
  const bool is_of_host = array.device_type() == nb::device::cpu::value;
  if (is_of_host == target.separate_memory) {
    refuse(where,
           std::string("the array is in memory of ") + (is_of_host ? "the host" : "another device") +
               ", and the program runs on " + to_string(target.id),
           "pass an array in memory of that device");
  }
  if (const TensorType given = type_of(array, where); given != type)
    refuse(where, "the array is " + to_string(given) + ", expected " + to_string(type), "pass an array of that type");
  if (!is_contiguous(array))
    refuse(where, "the elements of the array have gaps between them", "make it contiguous, or pass copy=True");
  const auto address = reinterpret_cast<std::uintptr_t>(array.data());
  if (const std::size_t rest = address % target.alignment; rest != 0 && type.bytes() > 0) {
    refuse(where,
           "the array begins " + std::to_string(rest) + " bytes behind a multiple of " +
               std::to_string(target.alignment) + ", which " + to_string(target.id) + " asks for",
           "pass an array that begins at such a multiple, or copy=True");
  }
  return array;
}

// An array in memory of its own, with the same elements.
nb::object copied(nb::handle object, const TensorType& type, const Target& target, const Where& where) {
  if (target.separate_memory)
    refuse(where, "copy=True makes arrays in memory of the host", "copy the array on the device");
  Tensor tensor = to_tensor(object, type.dtype, where);
  if (tensor.type() != type)
    refuse(where, "the array is " + to_string(tensor.type()) + ", expected " + to_string(type),
           "pass an array of that type");
  return aligned_array(tensor.data(), type);
}

nb::object bind_memory(ProgramHandle& self, nb::handle what, nb::handle array, bool copy) {
  const Where where = here();
  const Target target = self.program->target(where);
  const bool is_variable = nb::isinstance<Variable>(what);
  const Value value = is_variable ? Value() : self.input(what, where);
  const TensorType type = is_variable ? nb::inst_ptr<Variable>(what)->type(where) : value.type(where);
  bool is_written = true;
  for (const auto& [name, input] : self.names->inputs)
    if (!is_variable && input.node() == value.node()) is_written = false;
  const nb::object owner = copy ? copied(array, type, target, where) : nb::borrow(array);
  const AnyArray memory = memory_of(owner, type, target, is_written, where);
  void* begin = const_cast<void*>(memory.data());
  const std::shared_ptr<const void> kept = keep(owner);
  WithoutGil others_run;
  if (is_variable) {
    self.program->bind_memory(*nb::inst_ptr<Variable>(what), begin, type.bytes(), kept, where);
  } else {
    self.program->bind_memory(value, begin, type.bytes(), kept, where);
  }
  return owner;
}

}  // namespace

void bind_bind_memory(nb::class_<ProgramHandle>& type) {
  type.def("bind_memory", bind_memory, nb::arg("value").sig("str | Value | Variable"), nb::arg("array"), nb::kw_only(),
           nb::arg("copy") = false,
           nb::sig("def bind_memory(self, value: str | Value | Variable, array: typing.Any, *, copy: bool = False) -> "
                   "typing.Any"),
           "Makes the memory of an array the place of an input (by name or Value), an output or a Variable; nothing is "
           "copied. The array is of the type of the value, contiguous, in memory of the program's device, and begins "
           "at a multiple of Target.alignment. Steps read inputs where they lie, and leave outputs and Variables there "
           "when they are done (sync()); a Variable has the value that is in the memory. What was given to the array "
           "before must be done. The array is kept as long as its memory may be used. With `copy`, a copy of the array "
           "is bound. Returns the array that is bound. Call it before the first run. Raises Error for an array that "
           "does not fit, and one that is read-only where steps write to it.");
}

}  // namespace graphsink::python
