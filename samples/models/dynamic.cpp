#include "samples/models/dynamic.h"

#include <algorithm>

#include "samples/models/text_model.h"

namespace graphsink::models {
namespace {

// i32 [batch, length]: the windows of a step, or, with an offset of 1, the characters that follow each of theirs.
Tensor windows(const Text& text, const DynamicSizes& sizes, std::int64_t step, std::int64_t offset) {
  const std::int64_t length = length_of_windows(sizes, step);
  const auto places = static_cast<std::uint64_t>(training_characters(text) - sizes.longest);
  Tensor tensor(i32, {sizes.batch, length});
  auto* to = tensor.as<std::int32_t>().data();
  for (std::int64_t i = 0; i < sizes.batch; ++i) {
    const auto number = static_cast<std::uint64_t>(step * sizes.batch + i);
    const auto place = static_cast<std::int64_t>(random_bits(sizes.seed, number) % places);
    std::copy_n(text.tokens.data() + place + offset, length, to + i * length);
  }
  return tensor;
}

}  // namespace

std::int64_t length_of_windows(const DynamicSizes& sizes, std::int64_t step) {
  const std::int64_t shortest = std::max<std::int64_t>(sizes.longest / 8, 1);
  const std::uint64_t draw = random_bits(sizes.seed + 1, static_cast<std::uint64_t>(step));
  return shortest + static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(sizes.longest - shortest + 1));
}

Model dynamic(std::shared_ptr<const Text> text, const DynamicSizes& sizes) {
  if (training_characters(*text) <= sizes.longest) {
    throw Error("dynamic", Where(),
                "a window has up to " + std::to_string(sizes.longest) + " characters, the training part of the text " +
                    std::to_string(training_characters(*text)),
                "give a longer text");
  }
  const auto vocabulary = static_cast<std::int64_t>(text->vocabulary.size());
  const std::int64_t width = sizes.width;
  Variable table("table", Tensor::uniform({vocabulary, width}, sizes.seed, -1.0f, 1.0f));
  Variable query("query", Tensor::kaiming({width, width}, sizes.seed + 1));
  Variable key("key", Tensor::kaiming({width, width}, sizes.seed + 2));
  Variable w1("w1", Tensor::kaiming({2 * width, 2 * width}, sizes.seed + 3)), b1("b1", Tensor(f32, {2 * width}));
  Variable w2("w2", Tensor::kaiming({2 * width, vocabulary}, sizes.seed + 4)), b2("b2", Tensor(f32, {vocabulary}));

  Model model;
  model.name = "dynamic";
  model.has_one_step_a_run = true;
  const Dim length = open(sizes.longest, next_power_of_two());
  Value x = model.graph.input("x", i32, {sizes.batch, length});
  Value t = model.graph.input("t", i32, {sizes.batch, length});
  Value embedded = embedding(table, x);
  // One head. Padding stands behind the characters, where causal attention does not look.
  // Each op in a statement of its own, so that every compiler numbers them in this order.
  Value values = unsqueeze(embedded, 1);
  Value keys = unsqueeze(matmul(embedded, key), 1);
  Value queries = unsqueeze(matmul(embedded, query), 1);
  Value before = attention(queries, keys, values, {.causal = true});
  Value features = tanh(matmul(concat({embedded, squeeze(before, 1)}, 2), w1) + b1);
  Value logits = matmul(features, w2) + b2;
  Value characters = flatten(t, 0);
  Value losses = cross_entropy(reshape(logits, {-1, vocabulary}), characters, {.per_row = true});
  Value mask = valid_mask(x, 1);
  Value loss = masked_mean(reshape_like(losses, t), mask);
  const std::vector<Variable> parameters = {table, query, key, w1, b1, w2, b2};
  Optimizer optimizer = adamw(loss, parameters, {.lr = sizes.lr});
  model.graph.record("loss", loss);

  auto slices = [=](std::int64_t offset) {
    return [=](std::int64_t step, std::int64_t) { return windows(*text, sizes, step, offset); };
  };
  model.feeds = {{x, slices(0)}, {t, slices(1)}};
  model.variables = parameters;
  const std::vector<Variable> state = optimizer.variables();
  model.variables.insert(model.variables.end(), state.begin(), state.end());
  return model;
}

}  // namespace graphsink::models
