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
// `order`: the numbers of all tensors, in the order in which they are put into buckets.
std::vector<ExchangeBucket> buckets_of(std::span<const TensorType> types, std::size_t most,
                                       std::span<const std::size_t> order);

// Returns the numbers of the values from the last one to the first: gradients of the last layers are computed first,
// and can be exchanged while the others are computed. The order must not depend on the graph, because it must be equal
// on all ranks: on one of them a parameter may have no gradient but zeros. Values of an Eager stay in their order.
std::vector<std::size_t> last_first(std::span<const Value> values);

// Throws Error for a bucket of 0 bytes.
void expect_bucket(const AverageOptions& options, const char* call, const Where& where);

}  // namespace graphsink
