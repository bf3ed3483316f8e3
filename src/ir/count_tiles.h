// The number of tiles of a node, and of its floating-point operations.
#pragma once

#include <cstdint>

#include "graphsink/body.h"

namespace graphsink {

// Calls Tiles::count, which may throw. Throws Error, naming the op, if the result is negative: the op would do nothing.
std::int64_t count_tiles(const Tiles& tiles, const BodyArgs& node);
// Returns what OpDef::flops does; 0 if the op has none. Throws Error, naming the op, if it throws.
std::uint64_t flops_of(const BodyArgs& node);

}  // namespace graphsink
