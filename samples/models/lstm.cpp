#include <cmath>

#include "samples/models/text_model.h"

namespace graphsink::models {
namespace {

struct Layer {
  Variable input, recurrent, bias;  // both [hidden, 4 * hidden], [4 * hidden]: i, f, g, o
};

Layer make_layer(std::int64_t index, const LstmSizes& sizes, std::uint64_t seed) {
  std::string name = "lstm." + std::to_string(index) + ".";
  std::int64_t hidden = sizes.hidden;
  auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
  Tensor bias(f32, {4 * hidden});
  for (std::int64_t i = hidden; i < 2 * hidden; ++i) bias.as<float>()[static_cast<std::size_t>(i)] = 1;  // remember
  return {Variable(name + "input", Tensor::uniform({hidden, 4 * hidden}, seed, -bound, bound).to(sizes.dtype)),
          Variable(name + "recurrent", Tensor::uniform({hidden, 4 * hidden}, seed + 1, -bound, bound).to(sizes.dtype)),
          Variable(name + "bias", bias.to(sizes.dtype))};
}

struct State {
  Value h, c;  // [n, hidden]
};

// `sums` [n, 4 * hidden]: what goes into the gates.
State next_state(const Value& sums, const Value& c) {
  std::vector<Value> gates = split(sums, 4, 1);
  Value written = sigmoid(gates[0]) * tanh(gates[2]);
  Value next = c.valid() ? sigmoid(gates[1]) * c + written : written;
  return {sigmoid(gates[3]) * tanh(next), next};
}

// x [context, n, inputs] -> [context, n, hidden].
Value run_layer(const Layer& layer, const Value& x) {
  std::int64_t context = x.shape()[0], hidden = layer.recurrent.type().shape[0];
  std::vector<Value> inputs = split(matmul(x, layer.input) + layer.bias, static_cast<int>(context), 0);
  std::vector<Arg> outputs;
  State state;
  for (const Value& input : inputs) {
    Value sums = reshape(input, {-1, 4 * hidden});
    if (state.h.valid()) sums = sums + matmul(state.h, layer.recurrent);
    state = next_state(sums, state.c);
    outputs.emplace_back(reshape(state.h, {1, -1, hidden}));
  }
  return concat(outputs, 0);
}

// The same as a loop.
Value scan_layer(const Layer& layer, const Value& x) {
  std::int64_t hidden = layer.recurrent.type().shape[0];
  Value zeros = Graph(x.graph()).constant(Tensor(x.dtype(), {x.shape()[1], hidden}));
  Scan scanned =
      scan({zeros, zeros}, {matmul(x, layer.input) + layer.bias}, [&](const Values& state, const Values& input) {
        State next = next_state(input[0] + matmul(state[0], layer.recurrent), state[1]);
        return Scan{{next.h, next.c}, {next.h}};
      });
  return scanned.outputs[0];
}

}  // namespace

TextModel lstm(std::int64_t vocabulary, const LstmSizes& sizes, std::uint64_t seed) {
  Variable table("table", Tensor::uniform({vocabulary, sizes.hidden}, seed, -0.1f, 0.1f).to(sizes.dtype));
  std::vector<Layer> layers;
  std::vector<Variable> parameters{table};
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    layers.push_back(make_layer(i, sizes, seed + 1 + 2 * static_cast<std::uint64_t>(i)));
    parameters.insert(parameters.end(), {layers.back().input, layers.back().recurrent, layers.back().bias});
  }
  Variable w("out.w", Tensor::kaiming({sizes.hidden, vocabulary}, seed + 100).to(sizes.dtype));
  Variable b("out.b", Tensor(sizes.dtype, {vocabulary}));
  parameters.insert(parameters.end(), {w, b});
  auto logits = [=](const Value& tokens, double p) {
    Value x = embedding(table, permute(tokens, {1, 0}));
    for (const Layer& layer : layers) {
      x = sizes.as_loop ? scan_layer(layer, x) : run_layer(layer, x);
      if (p > 0) x = dropout(x, p);
    }
    return matmul(reshape(permute(x, {1, 0, 2}), {-1, x.shape()[2]}), w) + b;
  };
  return {sizes.as_loop ? "lstm-scan" : "lstm", vocabulary, sizes.context, sizes.context, parameters, logits};
}

}  // namespace graphsink::models
