// Whole models: their gradient against central differences in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "graphsink/graphsink.h"
#include "samples/models/text_model.h"
#include "test_ops.h"

namespace graphsink::model_test {
namespace {

// p + scale * direction
Tensor moved(const Tensor& p, const Tensor& direction, double scale) {
  Tensor out = p;
  for (std::size_t i = 0; i < out.as<double>().size(); ++i) out.as<double>()[i] += scale * direction.as<double>()[i];
  return out;
}

std::vector<std::int32_t> random_tokens(std::uint64_t seed, std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(models::random_bits(seed, i) % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

// The gradient of the loss of a step of training, against differences of the loss, along 20 random directions in the
// space of all parameters.
void check_gradient(models::TextModel model) {
  SCOPED_TRACE(model.name);
  constexpr std::int64_t kBatch = 3;
  std::vector<Arg> wrt(model.parameters.begin(), model.parameters.end());
  Graph g;
  Value x = g.input("x", i32, {kBatch, model.context}), t = g.input("t", i32, {kBatch * model.predictions});
  Value loss = cross_entropy(model.logits(x, 0), t);
  std::vector<Value> grads = grad(loss, wrt);
  g.output("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) g.output(std::to_string(i), grads[i]);
  Program p = compile(g);
  p.write(x, random_tokens(1, kBatch * model.context, model.vocabulary));
  p.write(t, random_tokens(2, kBatch * model.predictions, model.vocabulary));
  p.run();
  std::vector<Tensor> values, gradient;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    values.push_back(model.parameters[i].read());
    gradient.push_back(p.output(std::to_string(i)));
  }
  auto loss_at = [&](const std::vector<Tensor>& direction, double scale) {
    for (std::size_t i = 0; i < values.size(); ++i) model.parameters[i].write(moved(values[i], direction[i], scale));
    p.run();
    return p.output("loss").at(0);
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<Tensor> direction;
    double wanted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction.push_back(Tensor::uniform(values[i].shape(), 1000 + seed * 100 + i, -1.0f, 1.0f).to(f64));
      for (std::int64_t k = 0; k < values[i].shape().size(); ++k) wanted += direction[i].at(k) * gradient[i].at(k);
    }
    constexpr double kStep = 1e-5;
    double seen = (loss_at(direction, kStep) - loss_at(direction, -kStep)) / (2 * kStep);
    EXPECT_NEAR(seen, wanted, 1e-5 * std::abs(wanted)) << "direction " << seed;
  }
}

// Initial values far from zero, so that nothing is nearly linear.
models::TextModel spread(models::TextModel model) {
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    Variable& parameter = model.parameters[i];
    parameter.write(Tensor::uniform(parameter.type().shape, 17 + i, -0.5f, 0.5f).to(f64));
  }
  return model;
}

TEST(Gradient, OfCharmlpAlongRandomDirections) {
  check_gradient(spread(models::charmlp(11, {.width = 4, .hidden = 12, .dtype = f64}, 5)));
}
TEST(Gradient, OfLstmAlongRandomDirections) {
  check_gradient(spread(models::lstm(11, {.layers = 2, .hidden = 6, .context = 5, .dtype = f64}, 5)));
}
TEST(Gradient, OfGptAlongRandomDirections) {
  check_gradient(spread(models::gpt(11, {.layers = 2, .width = 12, .heads = 3, .context = 7, .dtype = f64}, 5)));
}

}  // namespace
}  // namespace graphsink::model_test
