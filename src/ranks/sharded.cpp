// Optimizers whose states are divided among ranks (Rajbhandari et al. 2020, "ZeRO", stage 1).
#include <set>
#include <string>
#include <utility>

#include "base/at.h"
#include "graphsink/graph.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"
#include "graphsink/ranks.h"
#include "ir/graph_data.h"
#include "ranks/buckets.h"
#include "ranks/collective.h"

namespace graphsink {
namespace {

constexpr const char* kCall = "apply_sharded";

// Divides tensors among ranks: each is flat, with zeros behind it up to a multiple of the number of ranks, and rank r
// has the r-th of as many equal parts, the shard.
class Sharder {
 public:
  Sharder(const Comm& comm, const AverageOptions& options, const Where& where)
      : comm_(comm), ranks_(comm.size()), options_(options), where_(where) {}

  // The shard of this rank, in f32 for 16-bit floats.
  Tensor shard(const Tensor& tensor) const {
    Tensor result(wide(tensor.dtype()), {part(tensor.shape())});
    const std::int64_t first = comm_.rank() * result.shape()[0];
    for (std::int64_t i = 0; i < result.shape()[0] && first + i < tensor.shape().size(); ++i) {
      if (result.dtype() == f64) {
        result.as<double>()[static_cast<std::size_t>(i)] = tensor.at(first + i);
      } else {
        result.as<float>()[static_cast<std::size_t>(i)] = static_cast<float>(tensor.at(first + i));
      }
    }
    return result;
  }

  // The shards of the means over all ranks, in f32 for 16-bit floats.
  std::vector<Value> means(std::span<const Value> gradients) const {
    std::vector<TensorType> types;
    for (const Value& gradient : gradients) types.push_back(gradient.type());
    std::vector<Value> shards(gradients.size());
    for (const ExchangeBucket& bucket : buckets_of(types, options_.bucket_bytes, last_first(gradients))) {
      std::vector<Arg> rows;
      std::vector<std::int64_t> parts;
      for (const std::size_t i : bucket.tensors) {
        parts.push_back(part(types[i].shape));
        const Value flat = reshape(arg(gradients[i]), {types[i].shape.size()});
        const std::int64_t missing = parts.back() * ranks_ - types[i].shape.size();
        const Value filled = missing > 0 ? pad(arg(flat), {0}, {missing}) : flat;
        rows.push_back(arg(reshape(arg(filled), {ranks_, parts.back()})));
      }
      const Value mine = reduce_scatter_gradients(arg(concat(rows, 1, {}, where_)), comm_, options_.same_program);
      const std::vector<Value> split_up = split(arg(mine), parts, 1);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const Value flat = reshape(arg(split_up[k]), {parts[k]});
        shards[bucket.tensors[k]] = flat.dtype() == wide(flat.dtype()) ? flat : cast(arg(flat), f32);
      }
    }
    return shards;
  }

  // The tensors of which all ranks have the shards.
  std::vector<Value> gathered(std::span<const Value> shards, std::span<const TensorType> types) const {
    std::vector<Value> result(shards.size());
    for (const ExchangeBucket& bucket : buckets_of(types, options_.bucket_bytes, last_first(shards))) {
      std::vector<Arg> mine;
      std::vector<std::int64_t> parts;
      for (const std::size_t i : bucket.tensors) {
        parts.push_back(shards[i].shape()[0]);
        const Value row = reshape(arg(shards[i]), {1, parts.back()});
        mine.push_back(arg(row.dtype() == bucket.dtype ? row : cast(arg(row), bucket.dtype)));
      }
      const std::vector<Value> all = split(arg(all_gather(arg(concat(mine, 1, {}, where_)), comm_)), parts, 1);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const Shape& shape = types[bucket.tensors[k]].shape;
        const Value flat = reshape(arg(all[k]), {ranks_ * parts[k]});
        const Value trimmed = shape.size() == ranks_ * parts[k] ? flat : slice(arg(flat), {0}, {shape.size()});
        result[bucket.tensors[k]] = reshape(arg(trimmed), NewShape(shape, where_));
      }
    }
    return result;
  }

  // The norm of all shards together, from that of one. Squares of f32 overflow in f32.
  Value norm(const Value& of_shard) const {
    const Value wide_norm = cast(arg(of_shard), f64);
    const Value squares = all_reduce(arg(mul(arg(wide_norm), arg(wide_norm))), comm_);
    return cast(arg(sqrt(arg(squares))), f32);
  }

 private:
  static DType wide(DType dtype) { return dtype == f64 ? f64 : f32; }
  std::int64_t part(const Shape& shape) const { return (shape.size() + ranks_ - 1) / ranks_; }
  Arg arg(const Value& value) const { return Arg(value, where_); }

  const Comm& comm_;
  std::int64_t ranks_;
  const AverageOptions& options_;
  const Where& where_;
};

// As apply() does for Variables that it updates itself.
void check_parameters(const std::vector<Variable>& parameters, const GraphData& graph, const Where& where) {
  std::set<const VariableData*> seen;
  for (const Variable& parameter : parameters) {
    if (!seen.insert(parameter.data().get()).second)
      throw Error(kCall, where, "\"" + parameter.name() + "\" is given twice", "put it into one group");
    const auto known = graph.variable_index.find(parameter.data().get());
    if (known == graph.variable_index.end()) continue;
    const VariableUse& use = graph.variables[at(known->second)];
    if (use.is_written())
      throw Error(kCall, where,
                  "\"" + parameter.name() + "\" was already assigned at " +
                      to_string(use.committed ? use.committed_where : use.assigned_where),
                  "update it in one place");
  }
}

void check_operands(const std::vector<Variable>& parameters, const std::vector<Value>& gradients, const Where& where) {
  if (gradients.size() != parameters.size() || gradients.empty())
    throw Error(
        kCall, where,
        std::to_string(gradients.size()) + " gradients for " + std::to_string(parameters.size()) + " parameters",
        "pass one for each parameter, in their order");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (gradients[i].eager()) throw Error(kCall, where, "the gradients are Values of an Eager", "build a Graph");
    const TensorType wanted = parameters[i].type(), seen = gradients[i].type(where);
    const bool is_16_bit = wanted.dtype == f16 || wanted.dtype == bf16;
    if (seen.shape != wanted.shape || (seen.dtype != wanted.dtype && !(is_16_bit && seen.dtype == f32)))
      throw Error(kCall, where,
                  "\"" + parameters[i].name() + "\" is " + to_string(wanted) + ", and its gradient " + to_string(seen),
                  "pass gradients of the types of the parameters, in their order");
    if (!is_float(wanted.dtype))
      throw Error(kCall, where, "\"" + parameters[i].name() + "\" is " + to_string(wanted), "train floats");
  }
  check_parameters(parameters, *gradients[0].graph(), where);
  if (gradients[0].graph()->current_region != 0)
    throw Error(kCall, where, "in the body of a loop or branch", "call it outside, or apply() with average() inside");
}

template <class Options>
Optimizer sharded(Options options, const std::vector<ParameterGroup>& groups, const std::vector<Value>& gradients,
                  const Comm& comm, const AverageOptions& buckets, const Where& where) {
  expect_bucket(buckets, kCall, where);
  if (comm.size() == 1) return apply(options, groups, gradients, where);
  std::vector<Variable> parameters, shards;
  for (const ParameterGroup& group : groups)
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  check_operands(parameters, gradients, where);
  const Sharder sharder(comm, buckets, where);
  std::vector<ParameterGroup> of_shards = groups;
  std::vector<TensorType> types;
  for (ParameterGroup& group : of_shards) {
    for (Variable& parameter : group.parameters) {
      types.push_back(parameter.type());
      const std::shared_ptr<const RankDivision> division = parameter.data()->division;
      // Its name has the scope of the parameter.
      parameter = shards.emplace_back(parameter.name() + ".shard" + std::to_string(comm.rank()),
                                      sharder.shard(parameter.read()), parameter.placement(), Where());
      parameter.data()->is_beside_another = true;
      parameter.data()->division = division;
    }
  }
  const auto whole = options.gradients.norm_of_all;
  options.gradients.norm_of_all = [&sharder, whole](const Value& norm) {
    const Value all = sharder.norm(norm);
    return whole ? whole(all) : all;
  };
  Optimizer optimizer = apply(options, of_shards, sharder.means(gradients), where);
  Graph graph(gradients[0].graph());
  std::vector<Value> updated;
  for (const Variable& shard : shards) updated.push_back(graph.updated(shard, where));
  const std::vector<Value> values = sharder.gathered(updated, types);
  for (std::size_t i = 0; i < parameters.size(); ++i) graph.assign(parameters[i], Arg(values[i], where));
  optimizer.state.insert(optimizer.state.begin(), shards.begin(), shards.end());
  return optimizer;
}

}  // namespace

Optimizer apply_sharded(const SgdOptions& options, const std::vector<Variable>& parameters,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets,
                        Where where) {
  return sharded(options, std::vector<ParameterGroup>{{parameters}}, gradients, comm, buckets, where);
}
Optimizer apply_sharded(const SgdOptions& options, const std::vector<ParameterGroup>& groups,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets,
                        Where where) {
  return sharded(options, groups, gradients, comm, buckets, where);
}
Optimizer apply_sharded(const AdamwOptions& options, const std::vector<Variable>& parameters,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets,
                        Where where) {
  return sharded(options, std::vector<ParameterGroup>{{parameters}}, gradients, comm, buckets, where);
}
Optimizer apply_sharded(const AdamwOptions& options, const std::vector<ParameterGroup>& groups,
                        const std::vector<Value>& gradients, const Comm& comm, const AverageOptions& buckets,
                        Where where) {
  return sharded(options, groups, gradients, comm, buckets, where);
}

}  // namespace graphsink
