// Compares numbers that are attributes of ops.
#pragma once

#include <bit>
#include <cstdint>

namespace graphsink {

// Unlike ==, tells 0 from -0, with which an op may give other results, and finds a NaN equal to itself.
inline bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace graphsink
