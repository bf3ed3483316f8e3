#include "samples/models/charmlp.h"

#include <algorithm>

namespace graphsink::models {
namespace {

constexpr std::int64_t kContext = CharMlp::kContext;

// Characters of context and, as targets, those that follow them, for the batch * count places that start at `first`.
struct Batches {
  std::shared_ptr<const Text> text;
  CharMlpTraining options;

  const std::int32_t* place(std::int64_t i) const {
    std::size_t places = text->tokens.size() - static_cast<std::size_t>(kContext);
    return text->tokens.data() + random_bits(options.seed, static_cast<std::uint64_t>(i)) % places;
  }
  Tensor contexts(std::int64_t first, std::int64_t count) const {
    Tensor tensor(i32, {count, options.batch, kContext});
    auto* to = tensor.as<std::int32_t>().data();
    for (std::int64_t i = 0; i < count * options.batch; ++i)
      std::copy_n(place(first * options.batch + i), kContext, to + i * kContext);
    return tensor;
  }
  Tensor targets(std::int64_t first, std::int64_t count) const {
    Tensor tensor(i32, {count, options.batch});
    auto* to = tensor.as<std::int32_t>().data();
    for (std::int64_t i = 0; i < count * options.batch; ++i) to[i] = place(first * options.batch + i)[kContext];
    return tensor;
  }
};

}  // namespace

CharMlp::CharMlp(std::int64_t vocabulary, std::int64_t width, std::int64_t hidden, std::uint64_t seed)
    : table("table", Tensor::uniform({vocabulary, width}, seed, -1.0f, 1.0f)),
      w1("w1", Tensor::kaiming({kContext * width, hidden}, seed + 1)),
      b1("b1", Tensor(f32, {hidden})),
      w2("w2", Tensor::kaiming({hidden, vocabulary}, seed + 2)),
      b2("b2", Tensor(f32, {vocabulary})) {}

Value CharMlp::logits(const Value& tokens) const {
  Value context = reshape(embedding(table, tokens), {-1, w1.type().shape[0]});
  return matmul(tanh(matmul(context, w1) + b1), w2) + b2;
}

Model train_charmlp(const CharMlp& charmlp, std::shared_ptr<const Text> text, const CharMlpTraining& options) {
  Model model;
  model.name = "charmlp";
  Value x = model.graph.feed("x", i32, {options.batch, kContext});
  Value t = model.graph.feed("t", i32, {options.batch});
  Value loss = cross_entropy(charmlp.logits(x), t);
  model.variables = {charmlp.table, charmlp.w1, charmlp.b1, charmlp.w2, charmlp.b2};
  Optimizer optimizer = adamw(loss, model.variables, {.lr = options.lr});
  model.graph.record("loss", loss);
  Batches batches{std::move(text), options};
  model.feeds = {{x, [=](std::int64_t first, std::int64_t count) { return batches.contexts(first, count); }},
                 {t, [=](std::int64_t first, std::int64_t count) { return batches.targets(first, count); }}};
  std::vector<Variable> state = optimizer.variables();
  model.variables.insert(model.variables.end(), state.begin(), state.end());
  return model;
}

std::string continue_text(const CharMlp& charmlp, const Text& text, std::int64_t characters, DeviceId device,
                          std::uint64_t seed) {
  Graph g;
  Value x = g.input("x", i32, {1, kContext});
  Value likely = exp(charmlp.logits(x));
  g.output("probabilities", likely / sum(likely, {-1}, true));
  Program program = compile(g, {.target = device});

  std::vector<std::int32_t> tokens(text.tokens.end() - kContext, text.tokens.end());
  for (std::int64_t i = 0; i < characters; ++i) {
    program.write(x, std::span<const std::int32_t>(tokens).last(kContext));
    program.run(sink);
    Tensor probabilities = program.read_output("probabilities");
    double u = static_cast<double>(random_bits(seed, static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
    std::int32_t token = 0, last = static_cast<std::int32_t>(text.vocabulary.size()) - 1;
    for (; token < last && u >= probabilities.at(token); ++token) u -= probabilities.at(token);
    tokens.push_back(token);
  }
  return text.decode({tokens.begin() + kContext, tokens.end()});
}

}  // namespace graphsink::models
