// Writes the kernel of a group of element-wise ops (ir/fused.h) as CUDA C++, which is compiled while the program runs.
// A thread computes all ops of the group for one element, or for a few neighbours, in registers; then it stores the
// outputs. If the group reduces rows, a thread, a warp or a block computes a row, as it would to reduce it alone. Each
// op rounds as its own kernel does, so the bits are the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cuda/run_time_kernel.h"
#include "ir/fused.h"

namespace graphsink {

// A kernel takes one struct of 8-byte words: the addresses of the inputs and of the outputs, the number of elements, if
// rows are reduced their number and width, the dimensions over which inputs are broadcast, and, for each operand that
// is broadcast, its strides along these dimensions. The source does not depend on the values of these words, except on
// whether a thread, a warp or a block reduces a row, so that other shapes need no other kernel.
struct FusedKernelSource {
  KernelSource source;
  std::vector<std::int64_t> words;  // those behind the addresses
  Extent grid, block;
};

// `types` are those of the inputs of the node, then of its outputs. Precondition: every op has Elements::is_written(),
// or reduces rows and has a RowReduction::operation.
FusedKernelSource fused_kernel_source(const FusedAttrs& attrs, std::span<const TensorType> types);

// The headers that such a source may include, under their names.
std::span<const EmbeddedText> run_time_headers();

}  // namespace graphsink
