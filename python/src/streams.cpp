#include "streams.h"

#include <cstdint>

namespace nb = nanobind;

namespace graphsink::python {

namespace {

bool has_attribute(nb::handle object, const char* name) { return PyObject_HasAttrString(object.ptr(), name) != 0; }

nb::object number_of_stream(nb::handle stream) {
  // It returns the version of the protocol and the number. PyTorch and CuPy have it only in later versions.
  if (has_attribute(stream, "__cuda_stream__")) {
    nb::object told = stream.attr("__cuda_stream__");
    if (PyCallable_Check(told.ptr()) != 0) told = told();
    return nb::steal(PySequence_GetItem(told.ptr(), 1));
  }
  for (const char* name : {"cuda_stream", "ptr"})
    if (has_attribute(stream, name)) return stream.attr(name);
  return nb::borrow(stream);
}

}  // namespace

std::optional<cudaStream_t> stream_of(nb::handle stream) {
  if (stream.is_none()) return {};
  const nb::object number = number_of_stream(stream);
  std::uintptr_t address = 0;
  if (!number.is_valid() || !nb::try_cast(number, address)) {
    PyErr_Clear();
    throw nb::type_error(
        "a stream is an integer, or an object with __cuda_stream__(), .cuda_stream or .ptr, such as torch.cuda.Stream");
  }
  return reinterpret_cast<cudaStream_t>(address);
}

}  // namespace graphsink::python
