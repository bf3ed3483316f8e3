// CUDA streams as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "graphsink/stream.h"

namespace graphsink::python {

// A stream of the caller's: an integer, or an object that has one: by the method __cuda_stream__() (cuda.core), or as
// cuda_stream (PyTorch) or ptr (CuPy). Empty for None. Throws TypeError for any other object.
std::optional<cudaStream_t> stream_of(nanobind::handle stream);

}  // namespace graphsink::python
