#include "streams.h"

#include "bindings.h"

#ifdef GRAPHSINK_CUDA
#include <cuda_runtime_api.h>
#endif

namespace graphsink::python {

namespace {

bool has_attribute(nb::handle object, const char* name) { return PyObject_HasAttrString(object.ptr(), name) != 0; }

nb::object told_stream(nb::handle stream) {
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
  const nb::object number = told_stream(stream);
  std::uintptr_t address = 0;
  const bool is_int = number.is_valid() && PyLong_Check(number.ptr()) && !PyBool_Check(number.ptr());
  if (!is_int || !nb::try_cast(number, address)) {
    PyErr_Clear();
    throw nb::type_error(
        "a stream is an integer, or an object with __cuda_stream__(), .cuda_stream or .ptr, such as torch.cuda.Stream");
  }
  return reinterpret_cast<cudaStream_t>(address);
}

std::uintptr_t number_of_stream(cudaStream_t stream) {
  return stream == nullptr ? kLegacyStream : reinterpret_cast<std::uintptr_t>(stream);
}

void wait_for_stream(std::uintptr_t stream, DeviceId device, const char* op, const std::string& whose,
                     const std::string& remedy, const Where& where) {
#ifdef GRAPHSINK_CUDA
  int before = 0;
  cudaError_t code = cudaSuccess;
  {
    WithoutGil others_run;  // a call of CUDA may wait for a host node, and that for the GIL
    code = cudaGetDevice(&before);
    if (code == cudaSuccess) code = cudaSetDevice(device.index);
    if (code == cudaSuccess) {
      code = cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream));
      cudaSetDevice(before);
    }
  }
  if (code != cudaSuccess) {
    cudaGetLastError();
    throw Error(op, where, "the wait for the stream of " + whose + " failed: " + std::string(cudaGetErrorString(code)),
                remedy);
  }
#else
  // There is no CUDA device, so nobody has such a stream.
  (void)stream, (void)device, (void)op, (void)whose, (void)remedy, (void)where;
#endif
}

}  // namespace graphsink::python
