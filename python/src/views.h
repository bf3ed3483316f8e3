// Memory of the library that other packages read where it lies, by DLPack and the CUDA array interface.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "graphsink/target.h"
#include "graphsink/type.h"

namespace nb = nanobind;

namespace graphsink::python {

struct ViewedMemory {
  void* begin = nullptr;
  TensorType type;  // in row-major order without gaps
  DeviceId device;
  bool is_read_only = false;
  std::shared_ptr<const void> owner;  // any thread may drop it
};

// The owner of the memory, as an object of Python.
nb::capsule keeper(const std::shared_ptr<const void>& owner);

// The stream of an argument of __dlpack__(), by its number there; that of the legacy stream for None. Empty where the
// caller sees to the order himself. Throws TypeError and ValueError for what is none.
std::optional<std::uintptr_t> stream_of_reader(nb::handle stream, DeviceId device);

// The results of __dlpack_device__() and of __dlpack__(), whose arguments are those of Python. Orders nothing.
nb::tuple dlpack_device_of(DeviceId device);
nb::object dlpack_of(const ViewedMemory& memory, nb::handle max_version, nb::handle dl_device, nb::handle copy);

// Throws AttributeError for memory that the CUDA array interface cannot describe.
void require_cuda_array(const ViewedMemory& memory);
// The interface, in version 3. `stream` is its entry, which orders the reader's work.
nb::dict cuda_array_interface_of(const ViewedMemory& memory, nb::handle stream);

}  // namespace graphsink::python
