// About how long nodes take, and whether it pays that several threads share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "graphsink/op.h"
#include "ir/bound_node.h"

namespace graphsink {

// The tiles of a node; 1 for ops without any. Nothing if they cannot be counted: its body, which counts them too, then
// fails the step, as a body does that throws.
std::optional<std::int64_t> tiles_of(const BoundNode& node) noexcept;

// About how long the node takes on one thread, in ns. An OpDef::flops that throws counts nothing here.
double cost_of(const BoundNode& node) noexcept;
double cost_of_copy(std::size_t bytes);

// Whether `workers` threads save at least so many ns by sharing work that takes `total` ns on one of them, and of which
// the largest tile takes `largest` ns.
bool is_worth_sharing(double total, double largest, int workers, double least_saving);

// Least saving, in ns, for which sharing is worth its cost: threads come together before and after, and data goes from
// one core to another. The first value is for cores that share a cache, the second for those that do not.
constexpr double kLeastSaving = 6000, kLeastSavingOfDistantCores = 4 * kLeastSaving;
// Shares whatever can be shared, even where that takes longer.
constexpr double kNoSaving = 1;

}  // namespace graphsink
