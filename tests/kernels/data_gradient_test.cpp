// Gradients of products, images and ops that move data: of higher order, and when shapes change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "test_ops.h"

namespace graphsink::data_gradient_test {
namespace {

class DataGradients : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, DataGradients, ::testing::ValuesIn(testing::devices()), device_name);

Tensor numbers(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  Tensor tensor(f64, shape);
  for (double& x : tensor.as<double>()) x = static_cast<double>(random() % 4001) / 2000 - 1;
  return tensor;
}
struct Composition {
  std::string name;
  std::vector<Tensor> operands;
  std::function<Value(Graph&, const std::vector<Value>&)> apply;
};
std::vector<Composition> compositions() {
  Tensor indices({4}, std::vector<std::int32_t>{2, 0, 2, 1});
  return {
      {"matmul of a batch and a matrix",
       {numbers({2, 3, 2}, 1), numbers({2, 4}, 2)},
       [](Graph&, const auto& v) { return matmul(v[0], v[1]); }},
      {"matmul with a transposed matrix",
       {numbers({2, 3, 2}, 1), numbers({4, 2}, 2)},
       [](Graph&, const auto& v) { return matmul(v[0], v[1], {.transpose_b = true}); }},
      {"matmul of batches that broadcast",
       {numbers({2, 1, 2, 3}, 1), numbers({3, 2, 2}, 2)},
       [](Graph&, const auto& v) { return matmul(v[0], v[1], {.transpose_a = true}); }},
      {"conv2d",
       {numbers({2, 4, 4, 3}, 1), numbers({2, 2, 2, 2}, 2)},
       [](Graph&, const auto& v) {
         return conv2d(v[0], v[1], {.stride = {1, 2}, .padding = {1, 0}, .groups = 2});
       }},
      {"avg_pool2d",
       {numbers({2, 4, 5}, 1)},
       [](Graph&, const auto& v) {
         return avg_pool2d(v[0], {3, 2}, {.stride = {1, 1}});
       }},
      {"permute",
       {numbers({2, 3, 4}, 1)},
       [](Graph&, const auto& v) {
         return permute(v[0], {2, 0, 1});
       }},
      {"slice",
       {numbers({5, 4}, 1)},
       [](Graph&, const auto& v) {
         return slice(v[0], {-1, 1}, {0, 3}, {-2, 1});
       }},
      {"pad",
       {numbers({2, 3}, 1)},
       [](Graph&, const auto& v) {
         return pad(v[0], {1, 0}, {0, 2}, 3);
       }},
      {"concat",
       {numbers({2, 3}, 1), numbers({2, 1}, 2)},
       [](Graph&, const auto& v) {
         return concat({v[0], v[1], v[0]}, 1);
       }},
      {"split, one part unused",
       {numbers({2, 6}, 1)},
       [](Graph&, const auto& v) {
         std::vector<Value> parts = split(v[0], {1, 3, 2}, 1);
         return mul(slice(parts[1], {0, 0}, {2, 2}), parts[2]);
       }},
      {"gather",
       {numbers({2, 3, 2}, 1)},
       [=](Graph& g, const auto& v) { return gather(v[0], g.constant(indices), 1); }},
      {"scatter_add",
       {numbers({3, 2}, 1), numbers({4, 2}, 2)},
       [=](Graph& g, const auto& v) { return scatter_add(v[0], g.constant(indices), v[1]); }},
  };
}

// The loss is made of the gradients of a loss; its own are checked numerically.
void check_gradients_of_gradients(DeviceId device, const Composition& composition) {
  Graph g;
  std::vector<Variable> variables;
  for (const Tensor& operand : composition.operands)
    variables.emplace_back("v" + std::to_string(variables.size()), operand);
  std::vector<Value> values;
  for (const Variable& variable : variables) values.push_back(g.value(variable));
  std::vector<Arg> wrt(values.begin(), values.end());
  Value y = composition.apply(g, values);
  Value loss = g.constant(Tensor::scalar(0.0));
  for (const Value& first : grad(sum(y * y * y), wrt)) loss = loss + sum(first * first);
  std::vector<Value> gradients = grad(loss, wrt);
  g.output("loss", loss);
  for (std::size_t i = 0; i < gradients.size(); ++i) g.output("g" + std::to_string(i), gradients[i]);
  Program p = compile(g, {.target = device});
  auto loss_now = [&] {
    p.run(interactive);
    return p.output("loss").at(0);
  };
  loss_now();
  std::vector<Tensor> seen;
  for (std::size_t i = 0; i < gradients.size(); ++i) seen.push_back(p.output("g" + std::to_string(i)));
  constexpr double kStep = 1e-5;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    ASSERT_EQ(to_string(seen[v].type()), to_string(composition.operands[v].type()));
    for (std::size_t i = 0; i < seen[v].as<double>().size(); ++i) {
      auto loss_at = [&](double step) {
        Tensor moved = composition.operands[v];
        moved.as<double>()[i] += step;
        variables[v].write(moved);
        return loss_now();
      };
      double wanted = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      ASSERT_NEAR(seen[v].as<double>()[i], wanted, 1e-6 * std::max(1.0, std::abs(wanted)))
          << "operand " << v << ", element " << i;
    }
    variables[v].write(composition.operands[v]);
  }
}

TEST_P(DataGradients, OfGradients) {
  for (const Composition& composition : compositions()) {
    SCOPED_TRACE(composition.name);
    check_gradients_of_gradients(GetParam(), composition);
  }
}

// A model of all the ops, on `batch` images: its loss and gradients.
std::vector<Value> small_model(const Value& x, Graph& g, const Variable& filters, const Variable& matrix) {
  Value h = max_pool2d(conv2d(x, filters, {.padding = {1, 1}}), {2, 2});  // [n, 4, 3, 3]
  Value rows = permute(h, {0, 2, 3, 1});                                  // [n, 3, 3, 4]
  Value products = matmul(rows, matrix);                                  // [n, 3, 3, 5]
  std::vector<Value> halves = split(products, 2, 0);
  Value joined = concat({halves[1], slice(products, {1}, {-1}), halves[0]}, 0);
  Value padded = pad(joined, {1, 0, 0, 0}, {2, 0, 0, 0});
  Value picked = gather(padded, g.constant(Tensor({3}, std::vector<std::int32_t>{1, 3, 1})));
  Value own = matmul(rows, rows, {.transpose_b = true});
  Value loss = mean(picked * picked) + mean(own * own) + mean(tanh(padded)) + mean(avg_pool2d(x, {3, 3}));
  std::vector<Value> result = grad(loss, {x, filters, matrix});
  result.insert(result.begin(), loss);
  return result;
}

std::vector<Tensor> run_model(Program& p, const Graph&, const std::vector<Value>& values, Mode mode) {
  p.run(mode);
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.push_back(p.output("o" + std::to_string(i)));
  return result;
}
void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(to_string(a[i].type()), to_string(b[i].type()));
    EXPECT_TRUE(std::equal(a[i].data(), a[i].data() + a[i].bytes(), b[i].data())) << "output " << i;
  }
}

// Built with a batch of 4 and run with others, a graph gives the bits of one that was built for them, in each mode.
TEST_P(DataGradients, FollowOpenDimensionsWithTheSameBitsInEveryMode) {
  Variable filters("filters", numbers({4, 2, 3, 3}, 1)), matrix("matrix", numbers({4, 5}, 2));
  auto build = [&](Graph& g, Dim batch) {
    Value x = g.input("x", f64, {batch, 2, 6, 6});
    std::vector<Value> values = small_model(x, g, filters, matrix);
    for (std::size_t i = 0; i < values.size(); ++i) g.output("o" + std::to_string(i), values[i]);
    values.insert(values.begin(), x);
    return values;
  };
  Graph open_graph;
  std::vector<Value> values = build(open_graph, open(4));
  Value x = values[0];
  values.erase(values.begin());
  Program p = compile(open_graph);
  for (std::int64_t batch : {4, 10, 2, 16}) {
    SCOPED_TRACE(batch);
    Tensor images = numbers({batch, 2, 6, 6}, 7);
    Graph fixed_graph;
    Value fixed_x = build(fixed_graph, batch)[0];
    Program fixed = compile(fixed_graph);
    fixed.write(fixed_x, images);
    std::vector<Tensor> wanted = run_model(fixed, fixed_graph, values, interactive);
    p.write(x, images);
    for (Mode mode : {interactive, sink, sink}) expect_same_bits(wanted, run_model(p, open_graph, values, mode));
  }
}

}  // namespace
}  // namespace graphsink::data_gradient_test
