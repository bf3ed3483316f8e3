// The mean of many values over all ranks, in few exchanges.
#include <string>
#include <utility>

#include "graphsink/ops.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "ranks/buckets.h"
#include "ranks/collective.h"

namespace graphsink {
std::vector<Value> average(std::span<const Value> values, const Comm& comm, const AverageOptions& options,
                           Where where) {
  expect_bucket(options, "average", where);
  std::vector<Value> result(values.begin(), values.end());
  if (comm.size() == 1) return result;
  const auto arg = [&](const Value& value) { return Arg(value, where); };
  const auto mean = [&](const Value& value) { return all_reduce_gradients(arg(value), comm, options.same_program); };
  std::vector<TensorType> types;
  for (const Value& value : values) types.push_back(value.type(where));
  if (values.empty()) return result;
  GraphData& graph = *values[0].graph();
  const std::size_t first = graph.nodes.size();
  for (const ExchangeBucket& bucket : buckets_of(types, options.bucket_bytes, last_first(values))) {
    if (bucket.tensors.size() == 1) {
      result[bucket.tensors[0]] = mean(values[bucket.tensors[0]]);
      continue;
    }
    std::vector<Arg> flat;
    std::vector<std::int64_t> sizes;
    for (std::size_t i : bucket.tensors) {
      sizes.push_back(values[i].shape(where).size());
      flat.push_back(arg(reshape(arg(values[i]), {sizes.back()})));
    }
    const std::vector<Value> means = split(arg(mean(concat(flat, 0, {}, where))), sizes, 0);
    for (std::size_t k = 0; k < means.size(); ++k)
      result[bucket.tensors[k]] = reshape(arg(means[k]), NewShape(values[bucket.tensors[k]].shape(where), where));
  }
  graph.note_rank_nodes(first);
  return result;
}

}  // namespace graphsink
