// How the elements of several ranks become one.
#pragma once

#include <cstdint>

#include "graphsink/ranks.h"
#include "graphsink/type.h"

namespace graphsink {

// `rows` has a row of `size` elements for each rank. The first one becomes the result, which is computed in the order
// of the rows, in f32 for 16-bit floats.
void reduce_rows(void* rows, DType dtype, std::int64_t size, int ranks, Reduction reduction);

}  // namespace graphsink
