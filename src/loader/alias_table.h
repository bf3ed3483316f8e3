// AliasTable: draws from a discrete distribution in constant time (Walker 1977; Vose 1991, "A linear algorithm for
// generating random numbers with a given distribution").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "loader/draws.h"

namespace graphsink {

class AliasTable {
 public:
  // Weights are finite and at least 0, and at least one is above 0.
  explicit AliasTable(std::span<const double> weights);

  // The number of a weight, from four random words.
  std::int64_t draw(const PhiloxWords& words) const {
    const std::int64_t column = below(words.at[0], words.at[1], static_cast<std::int64_t>(columns_.size()));
    const Column& chosen = columns_[static_cast<std::size_t>(column)];
    return unit_double(words.at[2], words.at[3]) < chosen.own ? column : chosen.other;
  }

 private:
  struct Column {
    double own;          // probability that the column gives its own number
    std::int64_t other;  // number that it gives otherwise
  };
  std::vector<Column> columns_;  // all equally probable
};

}  // namespace graphsink
