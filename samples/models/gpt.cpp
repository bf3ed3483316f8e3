#include <cmath>

#include "samples/models/text_model.h"

namespace graphsink::models {
namespace {

// Makes parameters of different random values, and keeps them.
class Parameters {
 public:
  Parameters(DType dtype, std::uint64_t seed) : dtype_(dtype), seed_(seed) {}

  Variable matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
    auto bound = static_cast<float>(deviation * std::sqrt(3.0));
    return add(name, Tensor::uniform({rows, columns}, ++seed_, -bound, bound));
  }
  Variable vector(const std::string& name, std::int64_t size, double value) {
    return add(name, Tensor::full(f32, {size}, value));
  }
  const std::vector<Variable>& all() const { return all_; }

 private:
  Variable add(const std::string& name, const Tensor& initial) {
    return all_.emplace_back(Variable(name, initial.to(dtype_)));
  }

  DType dtype_;
  std::uint64_t seed_;
  std::vector<Variable> all_;
};

struct Block {
  std::string name;  // "block.3"
  std::int64_t heads;
  Variable gain1, bias1, qkv_w, qkv_b, project_w, project_b;
  Variable gain2, bias2, widen_w, widen_b, narrow_w, narrow_b;

  Block(Parameters& p, const GptSizes& sizes, std::int64_t index)
      : name("block." + std::to_string(index)), heads(sizes.heads) {
    std::int64_t c = sizes.width;
    // Less for what is added to the stream, which each block adds to twice.
    double deviation = 0.02, added = deviation / std::sqrt(2.0 * static_cast<double>(sizes.layers));
    gain1 = p.vector(name + ".norm1.gain", c, 1), bias1 = p.vector(name + ".norm1.bias", c, 0);
    qkv_w = p.matrix(name + ".qkv.w", c, 3 * c, deviation), qkv_b = p.vector(name + ".qkv.b", 3 * c, 0);
    project_w = p.matrix(name + ".project.w", c, c, added), project_b = p.vector(name + ".project.b", c, 0);
    gain2 = p.vector(name + ".norm2.gain", c, 1), bias2 = p.vector(name + ".norm2.bias", c, 0);
    widen_w = p.matrix(name + ".widen.w", c, 4 * c, deviation), widen_b = p.vector(name + ".widen.b", 4 * c, 0);
    narrow_w = p.matrix(name + ".narrow.w", 4 * c, c, added), narrow_b = p.vector(name + ".narrow.b", c, 0);
  }

  // x [n, context, width].
  Value operator()(const Value& x, double p) const {
    const Scope scope(name);
    Value stream = x + drop(attend(layer_norm(x, gain1, bias1)), p);
    Value wide = gelu(matmul(layer_norm(stream, gain2, bias2), widen_w) + widen_b);
    return stream + drop(matmul(wide, narrow_w) + narrow_b, p);
  }

 private:
  static Value drop(const Value& x, double p) { return p > 0 ? dropout(x, p) : x; }

  Value attend(const Value& x) const {
    std::int64_t context = x.shape()[1], width = x.shape()[2];
    std::vector<Value> qkv = split(matmul(x, qkv_w) + qkv_b, 3, -1);
    for (Value& part : qkv) part = permute(reshape(part, {-1, context, heads, width / heads}), {0, 2, 1, 3});
    Value mixed = attention(qkv[0], qkv[1], qkv[2], {.causal = true});
    return matmul(reshape(permute(mixed, {0, 2, 1, 3}), {-1, context, width}), project_w) + project_b;
  }
};

}  // namespace

TextModel gpt(std::int64_t vocabulary, const GptSizes& sizes, std::uint64_t seed) {
  Parameters p(sizes.dtype, seed);
  Variable tokens_table = p.matrix("tokens", vocabulary, sizes.width, 0.02);
  Variable places = p.matrix("places", sizes.context, sizes.width, 0.02);
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < sizes.layers; ++i) blocks.emplace_back(p, sizes, i);
  Variable gain = p.vector("norm.gain", sizes.width, 1), bias = p.vector("norm.bias", sizes.width, 0);
  auto logits = [=](const Value& tokens, double share) {
    Value x = embedding(tokens_table, tokens) + places;
    if (share > 0) x = dropout(x, share);
    for (const Block& block : blocks) x = block(x, share);
    x = reshape(layer_norm(x, gain, bias), {-1, sizes.width});
    return matmul(x, tokens_table, {.transpose_b = true});
  };
  return {"gpt", vocabulary, sizes.context, sizes.context, p.all(), logits};
}

}  // namespace graphsink::models
