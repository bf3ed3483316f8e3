#include "ranks/buckets.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace graphsink {

std::vector<ExchangeBucket> buckets_of(std::span<const TensorType> types, std::size_t most,
                                       std::span<const std::size_t> order) {
  std::vector<ExchangeBucket> buckets;
  for (const std::size_t i : order) {
    const bool is_open = types[i].shape.has_open();
    const std::size_t bytes = is_open ? most : types[i].bytes();
    ExchangeBucket* bucket = nullptr;
    for (ExchangeBucket& each : buckets)
      if (!is_open && each.dtype == types[i].dtype && each.bytes < most && bytes <= most - each.bytes) bucket = &each;
    if (bucket == nullptr) bucket = &buckets.emplace_back(ExchangeBucket{types[i].dtype, 0, {}});
    bucket->bytes += bytes;
    bucket->tensors.push_back(i);
  }
  return buckets;
}

std::vector<std::size_t> last_first(std::span<const Value> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::none_of(values.begin(), values.end(), [](const Value& value) { return value.eager() != nullptr; }))
    std::reverse(order.begin(), order.end());
  return order;
}

void expect_bucket(const AverageOptions& options, const char* call, const Where& where) {
  if (options.bucket_bytes < 1)
    throw Error(call, where, "AverageOptions::bucket_bytes is 0", "give at least 1 byte, or leave it out");
}

}  // namespace graphsink
