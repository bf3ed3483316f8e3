// Ranks that train on parts of a batch drop what one process drops of the whole batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace dropout_test {

constexpr std::int64_t kRows = 2, kContext = 3, kWidth = 8, kTokens = 5, kTrained = 8;  // rows of a rank

// A block of a text model with attention and dropout, and what is behind it.
struct TextBlock {
  Variable tokens{"tokens", Tensor::kaiming({kTokens, kWidth}, 1)};
  Variable gain{"gain", Tensor::full(f32, {kWidth}, 1.0)}, bias{"bias", Tensor::full(f32, {kWidth}, 0.0)};
  Variable qkv{"qkv", Tensor::kaiming({kWidth, 3 * kWidth}, 2)},
      project{"project", Tensor::kaiming({kWidth, kWidth}, 3)};
  Variable widen{"widen", Tensor::kaiming({kWidth, 16}, 4)}, narrow{"narrow", Tensor::kaiming({16, kWidth}, 5)};
  std::vector<Variable> all() const { return {tokens, gain, bias, qkv, project, widen, narrow}; }

  Value loss(const Value& x, const Value& t) const {
    const Value stream = dropout(embedding(tokens, x), 0.2);
    std::vector<Value> heads = split(matmul(layer_norm(stream, gain, bias), qkv), 3, -1);
    for (Value& head : heads) head = permute(reshape(head, {-1, kContext, 2, kWidth / 2}), {0, 2, 1, 3});
    const Value mixed = attention(heads[0], heads[1], heads[2], {.causal = true});
    const Value added = dropout(matmul(reshape(permute(mixed, {0, 2, 1, 3}), {-1, kContext, kWidth}), project), 0.3);
    const Value attended = add(stream, added);
    const Value thought = dropout(matmul(gelu(matmul(attended, widen)), narrow), 0.5);
    const Value logits = matmul(reshape(add(attended, thought), {-1, kWidth}), tokens, {.transpose_b = true});
    return cross_entropy(logits, reshape(t, {-1}));
  }
};

Tensor texts(std::int64_t first, std::int64_t rows, int shift) {
  Tensor all(i32, {kTrained, rows, kContext});
  std::size_t k = 0;
  for (std::int64_t step = 0; step < kTrained; ++step)
    for (std::int64_t row = first; row < first + rows; ++row)
      for (std::int64_t i = 0; i < kContext; ++i)
        all.as<std::int32_t>()[k++] = static_cast<std::int32_t>((step * 3 + row * row + i + shift) % kTokens);
  return all;
}

// The parameters after some steps, one behind the other. `comm` has the ranks that share the rows.
std::vector<double> trained(const DeviceId& device, const Comm& comm, std::int64_t rows, Mode mode) {
  const TextBlock model;
  const RandomPart part(comm.rank());
  Graph g;
  const Value x = g.feed("x", i32, Shape{rows, kContext}), t = g.feed("t", i32, Shape{rows, kContext});
  const Value loss = model.loss(x, t);
  std::vector<Arg> parameters;
  for (const Variable& variable : model.all()) parameters.emplace_back(variable);
  apply(SgdOptions{.lr = 0.1}, model.all(), average(grad(loss, parameters), comm));
  Program program = compile(g, {.target = device, .seed = 4});
  program.write(x, texts(comm.rank() * rows, rows, 0));
  program.write(t, texts(comm.rank() * rows, rows, 1));
  program.run(mode, {.steps = kTrained});
  program.sync();
  std::vector<double> all;
  for (const Variable& variable : model.all()) {
    const Tensor value = variable.read();
    for (std::int64_t i = 0; i < value.shape().size(); ++i) all.push_back(value.at(i));
  }
  return all;
}

class DataParallelDropout : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, DataParallelDropout, ::testing::ValuesIn(devices()), device_name);

// Sums over the whole batch differ from sums of parts in the last bits of f32. One element more or less that is dropped
// makes a difference in the second digit.
TEST_P(DataParallelDropout, TrainsAsOneProcessDoes) {
  const std::vector<double> expected = trained(GetParam(), one_rank(), world().size() * kRows, interactive_serial);
  for (const Mode mode : kAllModes) {
    const std::vector<double> seen = trained(GetParam(), world(), kRows, mode);
    double most = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) most = std::max(most, std::abs(seen[i] - expected[i]));
    EXPECT_LT(most, 1e-5) << to_string(mode);
  }
}

}  // namespace dropout_test
}  // namespace graphsink::testing
