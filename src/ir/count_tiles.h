// The number of tiles of a node.
#pragma once

#include <cstdint>

#include "graphsink/body.h"

namespace graphsink {

// Calls Tiles::count. Throws Error, naming the op, if the result is negative: the op would do nothing.
std::int64_t count_tiles(const Tiles& tiles, const BodyArgs& node);

}  // namespace graphsink
