// Tensors that are divided among ranks along an axis.
#pragma once

#include <cstddef>
#include <string>

#include "graphsink/tensor.h"
#include "ir/graph_data.h"

namespace graphsink {

// The name of a part of "w", "w.part3", and where such names differ from it.
inline constexpr const char* kPart = ".part";
std::string part_name(const std::string& whole, std::size_t number);

// A part of the tensor, whose axis must be a multiple of the number of parts.
Tensor cut_part(const Tensor& whole, const TensorPart& part);
// Copies a part to its place in the whole, which has its dtype.
void paste_part(const Tensor& tensor, const TensorPart& part, Tensor& whole);

}  // namespace graphsink
