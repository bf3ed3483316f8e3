#include "samples/models/mlp.h"

#include <algorithm>

namespace graphsink::models {
namespace {

std::int64_t drawn_row(const MlpTraining& options, std::int64_t examples, std::int64_t position) {
  const auto of = static_cast<std::uint64_t>(std::min(options.examples, examples));
  return static_cast<std::int64_t>(random_bits(options.seed, static_cast<std::uint64_t>(position)) % of);
}

// Copies a drawn row of `source` for each of the batch * count examples that start at `first`.
template <class T>
Tensor draw(const Tensor& source, const MlpTraining& options, std::int64_t first, std::int64_t count) {
  Shape shape = source.shape();  // [examples, ...] -> [count, batch, ...]
  std::int64_t row = source.shape().size() / shape[0];
  Shape slices{count, options.batch};
  for (int d = 1; d < shape.rank(); ++d) slices.push_back(shape[d]);
  Tensor tensor(source.dtype(), slices);
  const T* from = source.as<T>().data();
  T* to = tensor.as<T>().data();
  for (std::int64_t i = 0; i < count * options.batch; ++i)
    std::copy_n(from + drawn_row(options, shape[0], first * options.batch + i) * row, row, to + i * row);
  return tensor;
}

// The numbers of the rows that draw() copies.
Feed drawn_indices(const Value& index, std::int64_t examples, const MlpTraining& options) {
  return {index, [=](std::int64_t first, std::int64_t count) {
            Tensor tensor(i32, {count, options.batch});
            std::int64_t position = first * options.batch;
            for (std::int32_t& row : tensor.as<std::int32_t>())
              row = static_cast<std::int32_t>(drawn_row(options, examples, position++));
            return tensor;
          }};
}

}  // namespace

std::vector<Feed> digit_batches(const Value& images, const Value& labels, std::shared_ptr<const Digits> digits,
                                const MlpTraining& options) {
  return {{images,
           [=](std::int64_t first, std::int64_t count) { return draw<float>(digits->images, options, first, count); }},
          {labels, [=](std::int64_t first, std::int64_t count) {
             return draw<std::int32_t>(digits->labels, options, first, count);
           }}};
}

Model train_mlp(const Mlp& mlp, std::shared_ptr<const Digits> digits, const MlpTraining& options) {
  Model model;
  model.name = "mlp";
  Value x, t;
  if (options.is_resident) {
    const Value index = model.graph.feed("index", i32, {options.batch});
    const Value images = model.graph.constant(digits->images), labels = model.graph.constant(digits->labels);
    x = gather(images, index);
    t = gather(labels, index);
    model.feeds = {drawn_indices(index, digits->labels.shape()[0], options)};
  } else {
    x = model.graph.feed("x", f32, {options.batch, mlp.w1.type().shape[0]});
    t = model.graph.feed("t", i32, {options.batch});
    model.feeds = digit_batches(x, t, std::move(digits), options);
  }
  Value loss = cross_entropy(mlp.logits(x), t);
  const std::vector<Variable> parameters = {mlp.w1, mlp.w2, mlp.w3};
  const Sharing& sharing = options.sharing;
  const AdamwOptions adamw_options{.lr = options.lr};
  Optimizer optimizer = sharing.apply
                            ? sharing.apply(adamw_options, {{parameters}}, grad(loss, {mlp.w1, mlp.w2, mlp.w3}))
                            : adamw(loss, parameters, adamw_options);
  model.graph.record("loss", sharing.loss ? sharing.loss(loss) : loss);
  model.variables = optimizer.variables();
  model.variables.insert(model.variables.end(), {mlp.w1, mlp.w2, mlp.w3});
  return model;
}

}  // namespace graphsink::models
