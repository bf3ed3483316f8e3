// Tiles of CPU bodies: see struct Tiles.
#pragma once

#include <algorithm>
#include <cstddef>

#include "graphsink/op.h"

namespace graphsink {

// Number of rows of a tile, and number of tiles, for an op that computes rows of `width` elements, each alone.
constexpr std::int64_t rows_of_tile(std::int64_t width) {
  return std::max<std::int64_t>(1, kTileElements / std::max<std::int64_t>(1, width));
}
constexpr std::int64_t count_row_tiles(std::int64_t rows, std::int64_t width) {
  return std::max<std::int64_t>(1, (rows + rows_of_tile(width) - 1) / rows_of_tile(width));
}
// The rows of tiles [first, end).
struct RowRange {
  std::int64_t first, end;
  RowRange(std::int64_t first_tile, std::int64_t end_tile, std::int64_t rows, std::int64_t width)
      : first(first_tile * rows_of_tile(width)), end(std::min(rows, end_tile * rows_of_tile(width))) {}
};

}  // namespace graphsink
