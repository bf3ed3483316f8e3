// About how long nodes take, and whether it pays that several threads share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graphsink/op.h"

namespace graphsink {

// The tiles of a node; 1 for ops without any.
std::int64_t tiles_of(const BoundNode& node);

// About how long the node takes on one thread, in ns.
double cost_of(const BoundNode& node);
double cost_of_copy(std::size_t bytes);

// Whether `workers` threads gain from sharing work that takes `total` ns on one of them, and of which the largest tile
// takes `largest` ns. `shares_all`: also where the threads take longer to come together than they save.
bool is_worth_sharing(double total, double largest, int workers, bool shares_all);

}  // namespace graphsink
