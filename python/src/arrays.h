// Arrays of Python become Tensors, and Tensors arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "graphsink/error.h"
#include "graphsink/tensor.h"

namespace nb = nanobind;

namespace graphsink::python {

// Copies what NumPy, PyTorch, JAX and others give by DLPack or the buffer protocol, in any order of its elements; a
// Tensor; or numbers and nested lists of them, which become `wanted`, or else what NumPy makes of them. An array keeps
// its dtype. Throws Error for memory of a GPU, for a dtype that graphsink does not have, and for numbers that `wanted`
// cannot hold; TypeError for any other object.
Tensor to_tensor(nb::handle object, std::optional<DType> wanted, const Where& where);
// The same for a function with an argument `dtype`, without which numbers become f32. Throws Error of `op` for an array
// of another dtype than the given one.
Tensor to_tensor_of(nb::handle object, std::optional<DType> given, const char* op, const Where& where);

// A NumPy array that owns the memory of the tensor: nothing is copied. NumPy has no bf16, so that bf16 becomes f32,
// which holds the same numbers.
nb::object to_array(Tensor&& tensor);

using AnyArray = nb::ndarray<nb::ro>;
nb::dlpack::dtype dlpack_dtype(DType dtype);
// The type of an array. Throws Error for a dtype that graphsink does not have.
TensorType type_of(const AnyArray& array, const Where& where);
// Whether its elements lie in row-major order without gaps.
bool is_contiguous(const AnyArray& array);

// A NumPy array of its own with these elements, which begins at a multiple of 64 bytes.
nb::object aligned_array(const void* elements, const TensorType& type);

// A NumPy array of memory that `owner` keeps alive.
nb::object array_of(void* memory, const TensorType& type, nb::handle owner, bool is_writable);

}  // namespace graphsink::python
