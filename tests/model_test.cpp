// Whole models: their gradient against central differences in f64, and the same bits in every mode and grouping of
// steps.
#include <gtest/gtest.h>

#include <cmath>

#include "graphsink/graphsink.h"
#include "samples/models/charmlp.h"
#include "samples/models/workloads.h"
#include "test_ops.h"

namespace graphsink {
namespace {

Tensor to_f64(const Tensor& tensor) {
  Tensor out(f64, tensor.shape());
  for (std::size_t i = 0; i < out.as<double>().size(); ++i)
    out.as<double>()[i] = tensor.at(static_cast<std::int64_t>(i));
  return out;
}

// p + scale * direction
Tensor moved(const Tensor& p, const Tensor& direction, double scale) {
  Tensor out = p;
  for (std::size_t i = 0; i < out.as<double>().size(); ++i) out.as<double>()[i] += scale * direction.as<double>()[i];
  return out;
}

TEST(Gradient, OfCharmlpAlongRandomDirections) {
  constexpr std::int64_t kBatch = 16, kVocabulary = 11;
  models::CharMlp charmlp(kVocabulary, 4, 12, 5);
  Variable* parameters[] = {&charmlp.table, &charmlp.w1, &charmlp.b1, &charmlp.w2, &charmlp.b2};
  std::vector<Arg> wrt;
  for (Variable* p : parameters) {
    *p = Variable(p->name(), to_f64(Tensor::uniform(p->type().shape, 17 + wrt.size(), -0.5f, 0.5f)));
    wrt.emplace_back(*p);
  }
  Graph g;
  Value x = g.input("x", i32, {kBatch, models::CharMlp::kContext}), t = g.input("t", i32, {kBatch});
  Value loss = cross_entropy(charmlp.logits(x), t);
  std::vector<Value> grads = grad(loss, wrt);
  g.output("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) g.output(std::to_string(i), grads[i]);
  Program p = compile(g);
  auto tokens = [&](std::uint64_t seed, std::size_t n) {
    std::vector<std::int32_t> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::int32_t>(models::random_bits(seed, i) % kVocabulary);
    return v;
  };
  p.write(x, tokens(1, kBatch * models::CharMlp::kContext));
  p.write(t, tokens(2, kBatch));
  p.run();
  std::vector<Tensor> values, gradient;
  for (std::size_t i = 0; i < std::size(parameters); ++i) {
    values.push_back(parameters[i]->read());
    gradient.push_back(p.read_output(std::to_string(i)));
  }
  auto loss_at = [&](const std::vector<Tensor>& direction, double scale) {
    for (std::size_t i = 0; i < values.size(); ++i) parameters[i]->write(moved(values[i], direction[i], scale));
    p.run();
    return p.read_output("loss").at(0);
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<Tensor> direction;
    double wanted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      direction.push_back(to_f64(Tensor::uniform(values[i].shape(), 1000 + seed * 10 + i, -1.0f, 1.0f)));
      for (std::int64_t k = 0; k < values[i].shape().size(); ++k) wanted += direction[i].at(k) * gradient[i].at(k);
    }
    constexpr double kStep = 1e-5;
    double seen = (loss_at(direction, kStep) - loss_at(direction, -kStep)) / (2 * kStep);
    EXPECT_NEAR(seen, wanted, 1e-5 * std::abs(wanted)) << "direction " << seed;
  }
}

}  // namespace
}  // namespace graphsink
