// The mean of many values over all ranks, in few exchanges.
#include <string>
#include <utility>

#include "graphsink/ops.h"
#include "graphsink/ranks.h"

namespace graphsink {
namespace {

// Values of one dtype whose elements are exchanged together.
struct ExchangeBucket {
  DType dtype = f32;
  std::size_t bytes = 0;
  std::vector<std::size_t> values;
};

std::vector<ExchangeBucket> buckets_of(std::span<const Value> values, std::size_t most, const Where& where) {
  std::vector<ExchangeBucket> buckets;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TensorType type = values[i].type(where);
    // Values with open sizes are exchanged alone.
    const bool is_open = type.shape.has_open();
    const std::size_t bytes = is_open ? most : type.bytes();
    ExchangeBucket* bucket = nullptr;
    for (ExchangeBucket& each : buckets)
      if (!is_open && each.dtype == type.dtype && each.bytes < most && bytes <= most - each.bytes) bucket = &each;
    if (bucket == nullptr) bucket = &buckets.emplace_back(ExchangeBucket{type.dtype, 0, {}});
    bucket->bytes += bytes;
    bucket->values.push_back(i);
  }
  return buckets;
}

}  // namespace

std::vector<Value> average(std::span<const Value> values, const Comm& comm, const AverageOptions& options,
                           Where where) {
  if (options.bucket_bytes < 1)
    throw Error("average", where, "AverageOptions::bucket_bytes is 0", "give at least 1 byte, or leave it out");
  std::vector<Value> result(values.begin(), values.end());
  if (comm.size() == 1) return result;
  const auto arg = [&](const Value& value) { return Arg(value, where); };
  const auto mean = [&](const Value& value) { return all_reduce(arg(value), comm, {.reduction = Reduction::mean}); };
  for (const ExchangeBucket& bucket : buckets_of(values, options.bucket_bytes, where)) {
    if (bucket.values.size() == 1) {
      result[bucket.values[0]] = mean(values[bucket.values[0]]);
      continue;
    }
    std::vector<Arg> flat;
    std::vector<std::int64_t> sizes;
    for (std::size_t i : bucket.values) {
      sizes.push_back(values[i].shape(where).size());
      flat.push_back(arg(reshape(arg(values[i]), {sizes.back()})));
    }
    const std::vector<Value> means = split(arg(mean(concat(flat, 0, {}, where))), sizes, 0);
    for (std::size_t k = 0; k < means.size(); ++k)
      result[bucket.values[k]] = reshape(arg(means[k]), NewShape(values[bucket.values[k]].shape(where), where));
  }
  return result;
}

}  // namespace graphsink
