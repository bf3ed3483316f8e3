// Tiles of ops that compute each line of a tensor in a workspace of its length.
#pragma once

#include <algorithm>

#include "kernels/support/lines.h"
#include "kernels/support/tiles.h"

namespace graphsink {

// Each tile has a part of the workspace of its own, so there are not many. Sorting takes longer than other ops for an
// element, so tiles are smaller.
constexpr std::int64_t kMostLineTiles = 16, kLineTileElements = kTileElements / 8;

inline std::int64_t lines_per_tile(const Lines& lines) {
  const std::int64_t enough = kLineTileElements / std::max<std::int64_t>(1, lines.length);
  return std::max({std::int64_t{1}, enough, (lines.count() + kMostLineTiles - 1) / kMostLineTiles});
}
inline std::int64_t count_line_tiles(const Lines& lines) {
  const std::int64_t per_tile = lines_per_tile(lines);
  return std::max<std::int64_t>(1, (lines.count() + per_tile - 1) / per_tile);
}

// The lines of a tile.
struct LineRange {
  std::int64_t first, end;
  LineRange(const Lines& lines, std::int64_t tile)
      : first(tile * lines_per_tile(lines)), end(std::min(lines.count(), first + lines_per_tile(lines))) {}
};

}  // namespace graphsink
