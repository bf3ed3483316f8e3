// CUDA streams as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "graphsink/error.h"
#include "graphsink/stream.h"
#include "graphsink/target.h"

namespace graphsink::python {

// A stream of the caller's: an integer, or an object that has one: by the method __cuda_stream__() (cuda.core), or as
// cuda_stream (PyTorch) or ptr (CuPy). Empty for None. Throws TypeError for any other object.
std::optional<cudaStream_t> stream_of(nanobind::handle stream);

// The name of the stream in DLPack and the CUDA array interface, which have numbers for streams without an address.
inline constexpr std::uintptr_t kLegacyStream = 1;
std::uintptr_t number_of_stream(cudaStream_t stream);

// Waits, without the GIL, for what the stream with this number was given so far. Throws Error of `op` if that fails;
// `whose` stream it is, and the remedy, are for its message.
void wait_for_stream(std::uintptr_t stream, DeviceId device, const char* op, const std::string& whose,
                     const std::string& remedy, const Where& where);

}  // namespace graphsink::python
