// Memory of arrays that programs use where it is: of the host, and of CUDA devices.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>

#include "graphsink/error.h"
#include "graphsink/stream.h"
#include "graphsink/target.h"
#include "graphsink/type.h"

namespace nb = nanobind;

namespace graphsink::python {

// The memory of an array, of which nothing is copied.
struct GivenMemory {
  void* begin = nullptr;
  TensorType type;
  bool is_contiguous = false;  // in row-major order without gaps
  bool is_read_only = false;   // as far as the object can say so
  nb::object owner;            // keeps the memory
};

struct MemoryRange {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};
// The bytes from the first element of an array of any device to the last one, by the CUDA array interface, DLPack or
// the buffer protocol. Empty for an object with none of these. Throws Error, of the call `op`, for an interface that is
// not as its protocol says.
std::optional<MemoryRange> range_of(nb::handle array, const char* op, const Where& where);

// Whether the object says that its memory is that of a device, by DLPack or the CUDA array interface.
bool is_of_device(nb::handle object);

// The memory of an array of the host, by DLPack or the buffer protocol, for a program that runs there; or of the
// program's CUDA device, by DLPack or the CUDA array interface. The work that the object's library gave to the device
// before is done when `stream` goes on: with no stream, when this returns. Throws Error for any other object.
GivenMemory memory_of(nb::handle object, DeviceId device, std::optional<cudaStream_t> stream, const Where& where);

}  // namespace graphsink::python
