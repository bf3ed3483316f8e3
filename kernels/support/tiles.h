// Tiles of CPU bodies: see struct Tiles.
#pragma once

#include <algorithm>
#include <cstddef>

#include "graphsink/op.h"

namespace graphsink {

constexpr std::int64_t kTileElements = 16384;
static_assert(kTileElements % kPartElements == 0);

// Number of tiles of an op that computes parts of its output (OutputPart). A tile is up to kTileElements elements.
inline std::int64_t count_element_tiles(const BodyArgs& a) {
  return std::max<std::int64_t>(1, (a.out_type(0).shape.size() + kTileElements - 1) / kTileElements);
}

template <OutputPart part>
void run_element_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const TensorType& type = a.out_type(0);
  const std::int64_t begin = first * kTileElements, size = std::min(end * kTileElements, type.shape.size()) - begin;
  if (size > 0) part(a, begin, size, a.out<std::byte>(0) + begin * static_cast<std::int64_t>(size_of(type.dtype)));
}

template <OutputPart part>
constexpr Tiles kElementTiles{count_element_tiles, run_element_tiles<part>};

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
