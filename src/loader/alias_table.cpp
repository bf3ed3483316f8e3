#include "loader/alias_table.h"

#include <algorithm>

namespace graphsink {

AliasTable::AliasTable(std::span<const double> weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double weight : weights) sum += weight / largest;  // which cannot overflow
  const double mean = sum / static_cast<double>(weights.size());
  std::vector<std::size_t> small, large;  // columns with less and with no less than their share
  for (std::size_t i = 0; i < weights.size(); ++i) {
    columns_.push_back({weights[i] / largest / mean, static_cast<std::int64_t>(i)});
    (columns_[i].own < 1 ? small : large).push_back(i);
  }
  // A column with too little is filled up from one with too much.
  while (!small.empty() && !large.empty()) {
    const std::size_t to = small.back(), from = large.back();
    small.pop_back();
    columns_[to].other = static_cast<std::int64_t>(from);
    columns_[from].own = columns_[from].own + columns_[to].own - 1;
    if (columns_[from].own < 1) {
      large.pop_back();
      small.push_back(from);
    }
  }
  // The columns that are left have their share, up to rounding. A weight of 0 is none of them: it would lack all of it.
  for (const auto* left : {&small, &large}) {
    for (std::size_t i : *left) columns_[i].own = 1;
  }
}

}  // namespace graphsink
