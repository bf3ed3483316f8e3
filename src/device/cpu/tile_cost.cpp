#include "device/cpu/tile_cost.h"

#include <algorithm>

#include "ir/count_tiles.h"

namespace graphsink {
namespace {

// In ns: 20 GB/s, which caches give, and 60 GFLOP/s.
constexpr double kByte = 1.0 / 20, kFlop = 1.0 / 60;

std::uint64_t flops_or_none(const BoundNode& node) noexcept {
  try {
    return flops_of(BodyArgs(node));
  } catch (...) {  // it says how work is shared, not what is computed; time_ops() reports it
    return 0;
  }
}

}  // namespace

std::optional<std::int64_t> tiles_of(const BoundNode& node) noexcept {
  const Tiles& tiles = node.op->bodies.cpu().tiles;
  try {
    return tiles.count ? count_tiles(tiles, BodyArgs(node)) : 1;
  } catch (...) {
    return std::nullopt;
  }
}

double cost_of(const BoundNode& node) noexcept {
  std::size_t bytes = 0;
  for (int i = 0; i < node.inputs + node.outputs; ++i)
    if (node.pointers[i] != nullptr) bytes += node.types[i].bytes();
  return 20 + kByte * static_cast<double>(bytes) + kFlop * static_cast<double>(flops_or_none(node));
}

double cost_of_copy(std::size_t bytes) { return 2 * kByte * static_cast<double>(bytes); }

bool is_worth_sharing(double total, double largest, int workers, double least_saving) {
  const double longest = std::max(largest, total / workers);  // at best
  return total - longest >= least_saving;
}

}  // namespace graphsink
