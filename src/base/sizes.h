// Arithmetic on sizes that users give. Throws Error if the result does not fit into 64 bits; the calling op adds its
// name and the user's line.
#pragma once

#include <cstdint>

#include "graphsink/error.h"

namespace graphsink {

[[noreturn]] inline void refuse_size() { throw Error("Shape", Where(), "a size is 2^63 or more", "use smaller sizes"); }
inline std::int64_t sum_of_sizes(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) refuse_size();
  return sum;
}
inline std::int64_t product_of_sizes(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) refuse_size();
  return product;
}

}  // namespace graphsink
