#include "device/cpu/tile_cost.h"

#include <algorithm>

#include "ir/count_tiles.h"

namespace graphsink {
namespace {

// In ns: 20 GB/s, which caches give, and 60 GFLOP/s.
constexpr double kByte = 1.0 / 20, kFlop = 1.0 / 60;

}  // namespace

std::int64_t tiles_of(const BoundNode& node) {
  const Tiles& tiles = node.op->bodies.cpu().tiles;
  return tiles.count ? count_tiles(tiles, BodyArgs(node)) : 1;
}

double cost_of(const BoundNode& node) {
  std::size_t bytes = 0;
  for (int i = 0; i < node.inputs + node.outputs; ++i)
    if (node.pointers[i] != nullptr) bytes += node.types[i].bytes();
  const std::uint64_t flops = node.op->flops ? node.op->flops(BodyArgs(node)) : 0;
  return 20 + kByte * static_cast<double>(bytes) + kFlop * static_cast<double>(flops);
}

double cost_of_copy(std::size_t bytes) { return 2 * kByte * static_cast<double>(bytes); }

bool is_worth_sharing(double total, double largest, int workers, double least_saving) {
  const double longest = std::max(largest, total / workers);  // at best
  return total - longest >= least_saving;
}

}  // namespace graphsink
