// Tensors that are exchanged together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/ranks.h"
#include "graphsink/type.h"

namespace graphsink {

// Tensors of one dtype, by their numbers.
struct ExchangeBucket {
  DType dtype = f32;
  std::size_t bytes = 0;
  std::vector<std::size_t> tensors;
};

// Each tensor is in one bucket. Those with open sizes, and those with more than `most` bytes, are alone in theirs.
std::vector<ExchangeBucket> buckets_of(std::span<const TensorType> types, std::size_t most);

// Throws Error for a bucket of 0 bytes.
void expect_bucket(const AverageOptions& options, const char* call, const Where& where);

}  // namespace graphsink
