#include "samples/models/text_model.h"

namespace graphsink::models {

TextModel charmlp(std::int64_t vocabulary, const CharMlpSizes& sizes, std::uint64_t seed) {
  constexpr std::int64_t kContext = 8;
  std::int64_t inputs = kContext * sizes.width;
  Variable table("table", Tensor::uniform({vocabulary, sizes.width}, seed, -1.0f, 1.0f).to(sizes.dtype));
  Variable w1("w1", Tensor::kaiming({inputs, sizes.hidden}, seed + 1).to(sizes.dtype));
  Variable b1("b1", Tensor(sizes.dtype, {sizes.hidden}));
  Variable w2("w2", Tensor::kaiming({sizes.hidden, vocabulary}, seed + 2).to(sizes.dtype));
  Variable b2("b2", Tensor(sizes.dtype, {vocabulary}));
  auto logits = [=](const Value& tokens, double) {
    Value context = reshape(embedding(table, tokens), {-1, inputs});
    return matmul(tanh(matmul(context, w1) + b1), w2) + b2;
  };
  return {"charmlp", vocabulary, kContext, 1, {table, w1, b1, w2, b2}, logits};
}

}  // namespace graphsink::models
