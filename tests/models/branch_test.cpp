// branch against the same training on the host: both ways, and their gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "program_fixture.h"
#include "samples/models/branch.h"

namespace graphsink::branch_test {
namespace {

constexpr std::int64_t kHidden = 16;
const models::MlpTraining kTraining{.batch = 8, .examples = 40, .lr = 0.02, .seed = 3};
constexpr int kSteps = 12;

struct Matrix {
  std::size_t rows, columns;
  std::vector<double> cells;

  Matrix(std::size_t its_rows, std::size_t its_columns)
      : rows(its_rows), columns(its_columns), cells(its_rows * its_columns) {}
  explicit Matrix(const Tensor& x)
      : Matrix(static_cast<std::size_t>(x.shape()[-2]), static_cast<std::size_t>(x.shape()[-1])) {
    for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = x.at(static_cast<std::int64_t>(i));
  }
  double& at(std::size_t row, std::size_t column) { return cells[row * columns + column]; }
  double at(std::size_t row, std::size_t column) const { return cells[row * columns + column]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}
Matrix positive(Matrix x) {
  for (double& cell : x.cells) cell = std::max(cell, 0.0);
  return x;
}
// The gradient where relu was passed.
Matrix where_positive(Matrix gradient, const Matrix& y) {
  for (std::size_t i = 0; i < y.cells.size(); ++i)
    if (y.cells[i] <= 0) gradient.cells[i] = 0;
  return gradient;
}
void update(Matrix& parameter, const Matrix& gradient) {
  for (std::size_t i = 0; i < parameter.cells.size(); ++i) parameter.cells[i] -= kTraining.lr * gradient.cells[i];
}

// The model on the host, with the gradients written out.
struct Host {
  double brightness = 0;
  Matrix first, long1, long2, short1;
  bool is_long = false;  // in the last step

  explicit Host(const models::Model& model)
      : first(model.variables[1].read()),
        long1(model.variables[2].read()),
        long2(model.variables[3].read()),
        short1(model.variables[4].read()) {}

  double step(const Matrix& x, const Tensor& labels) {
    double mean = 0;
    for (double cell : x.cells) mean += cell / static_cast<double>(x.cells.size());
    is_long = mean > brightness;
    brightness = mean;
    Matrix features = positive(product(x, first));
    Matrix hidden = positive(product(features, long1));
    auto [loss, gradient] = cross_entropy(is_long ? product(hidden, long2) : product(features, short1), labels);
    Matrix of_features = product(gradient, transposed(short1));
    if (is_long) {
      Matrix of_hidden = where_positive(product(gradient, transposed(long2)), hidden);
      of_features = product(of_hidden, transposed(long1));
      update(long2, product(transposed(hidden), gradient));
      update(long1, product(transposed(features), of_hidden));
    } else {
      update(short1, product(transposed(features), gradient));
    }
    update(first, product(transposed(x), where_positive(of_features, features)));
    return loss;
  }

 private:
  // The loss, and its gradient by the logits.
  static std::pair<double, Matrix> cross_entropy(const Matrix& logits, const Tensor& labels) {
    double loss = 0;
    auto rows = static_cast<double>(logits.rows);
    Matrix gradient(logits.rows, logits.columns);
    for (std::size_t i = 0; i < logits.rows; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < logits.columns; ++j) sum += std::exp(logits.at(i, j));
      for (std::size_t j = 0; j < logits.columns; ++j) gradient.at(i, j) = std::exp(logits.at(i, j)) / sum / rows;
      auto label = static_cast<std::size_t>(labels.at(static_cast<std::int64_t>(i)));
      gradient.at(i, label) -= 1 / rows;
      loss += (std::log(sum) - logits.at(i, label)) / rows;
    }
    return {loss, gradient};
  }
};

void expect_near(const Tensor& x, const Matrix& expected) {
  for (std::size_t i = 0; i < expected.cells.size(); ++i)
    ASSERT_NEAR(x.at(static_cast<std::int64_t>(i)), expected.cells[i], 1e-4) << "element " << i;
}

models::Model small_branch() {
  return models::branch(std::make_shared<const Digits>(seeded_digits(40, 1)), kHidden, kTraining);
}

class Branch : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Branch, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(Branch, TrainsAsTheHostDoesOnBothWaysInEveryMode) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    models::Model model = small_branch();
    Program p = compile(model.graph, {.require_whole_graph = true});
    Host host(model);
    int long_ones = 0;
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      models::feed(p, model, step, 1);
      p.run(mode);
      const double loss = host.step(Matrix(model.feeds[0].slices(step, 1)), model.feeds[1].slices(step, 1));
      EXPECT_NEAR(p.records("loss").back(), loss, 1e-4);
      EXPECT_EQ(p.records("long").back() == 1, host.is_long);
      long_ones += host.is_long ? 1 : 0;
    }
    EXPECT_GE(long_ones, 3);
    EXPECT_LE(long_ones, kSteps - 3);
    expect_near(model.variables[1].read(), host.first);
    expect_near(model.variables[2].read(), host.long1);
    expect_near(model.variables[3].read(), host.long2);
    expect_near(model.variables[4].read(), host.short1);
  }
}

TEST_P(Branch, OnlyTheWayThatWasTakenLearns) {
  models::Model model = small_branch();
  Program p = compile(model.graph);
  auto bits = [&](std::size_t i) {
    const Tensor x = model.variables[i].read();
    return std::vector(x.as<float>().begin(), x.as<float>().end());
  };
  for (int step = 0; step < kSteps; ++step) {
    const auto long1 = bits(2), long2 = bits(3), short1 = bits(4);
    models::feed(p, model, step, 1);
    p.run(sink);
    const bool is_long = p.records("long").back() == 1;
    EXPECT_EQ(bits(2) != long1, is_long) << "step " << step;
    EXPECT_EQ(bits(3) != long2, is_long) << "step " << step;
    EXPECT_EQ(bits(4) == short1, is_long) << "step " << step;
  }
}

TEST_P(Branch, IsOneLaunchWithABranchForTheLayersAndOneForTheirGradient) {
  models::Model model = small_branch();
  Program p = compile(model.graph, {.require_whole_graph = true});
  models::feed(p, model, 0, 1);
  for (int step = 0; step < 3; ++step) p.run(sink);
  EXPECT_EQ(p.captured()->conditional_nodes, 2);
  EXPECT_EQ(p.counters().graph_launches, 2u) << "each step after the first is one";
  EXPECT_EQ(p.counters().fallbacks, 0u);
}

}  // namespace
}  // namespace graphsink::branch_test
