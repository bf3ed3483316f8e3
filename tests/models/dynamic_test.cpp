// dynamic: batches of many lengths share a few shapes, every mode gives the same bits, and the padding does not show.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "messages.h"
#include "program_fixture.h"
#include "samples/models/dynamic.h"

namespace graphsink::dynamic_test {
namespace {

constexpr models::DynamicSizes kSizes{.width = 8, .longest = 16, .batch = 2, .lr = 1e-2};
constexpr std::int64_t kSteps = 40;

// Repeats the numbers 0 to 12.
std::shared_ptr<const Text> text(int characters = 2000) {
  Text text;
  for (int i = 0; i < 13; ++i) text.vocabulary.push_back(static_cast<char>('a' + i));
  for (int i = 0; i < characters; ++i) text.tokens.push_back(i % 13);
  return std::make_shared<const Text>(text);
}

class Dynamic : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Dynamic, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(Dynamic, LengthsShareShapesAndAllModesGiveTheSameBits) {
  std::set<std::int64_t> lengths, padded;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    lengths.insert(models::length_of_windows(kSizes, step));
    padded.insert(next_power_of_two().round_up(models::length_of_windows(kSizes, step)));
  }
  EXPECT_GT(lengths.size(), 10u);
  EXPECT_EQ(*lengths.rbegin(), kSizes.longest);
  EXPECT_EQ(padded.size(), 4u);
  std::vector<double> first;
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    models::Model model = models::dynamic(text(), kSizes);
    Program p = compile(model.graph, {.require_whole_graph = true, .tuning = {.capture_after = 1}});
    models::run(p, model, mode, 0, kSteps);
    std::vector<double> results = p.records<double>("loss");
    ASSERT_EQ(results.size(), static_cast<std::size_t>(kSteps));
    EXPECT_LT(results.back(), 0.8 * results.front());
    for (const Variable& variable : model.variables) {
      const Tensor value = variable.read();
      for (std::int64_t i = 0; i < value.shape().size(); ++i) results.push_back(value.at(i));
    }
    if (first.empty()) first = results;
    EXPECT_EQ(results, first);
    EXPECT_EQ(p.counters().cached_shapes, padded.size());
    EXPECT_EQ(p.counters().captures, mode == sink ? padded.size() : 0u);
    EXPECT_EQ(p.counters().fallbacks, 0u);
    if (mode == sink) {
      EXPECT_EQ(p.counters().graph_launches, static_cast<std::uint64_t>(kSteps) - padded.size());
    }
  }
}

using Vector = std::vector<double>;

// x w + b; b may be empty.
Vector layer(const Vector& x, const Tensor& w, const Vector& b) {
  const std::int64_t columns = w.shape()[1];
  Vector y = b.empty() ? Vector(static_cast<std::size_t>(columns)) : b;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      y[static_cast<std::size_t>(j)] += x[i] * w.at(static_cast<std::int64_t>(i) * columns + j);
  return y;
}

Vector elements(const Tensor& x, std::int64_t first, std::int64_t count) {
  Vector values;
  for (std::int64_t i = first; i < first + count; ++i) values.push_back(x.at(i));
  return values;
}

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

// The loss of windows [rows, length], computed without any padding.
double loss_on_host(const models::Model& model, const Tensor& x, const Tensor& t) {
  std::vector<Tensor> p;
  for (std::size_t i = 0; i < 7; ++i) p.push_back(model.variables[i].read());
  const std::int64_t width = p[0].shape()[1], length = x.shape()[1];
  double sum = 0;
  for (std::int64_t row = 0; row < x.shape()[0]; ++row) {
    std::vector<Vector> embedded, keys;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto token = static_cast<std::int64_t>(x.at(row * length + i));
      embedded.push_back(elements(p[0], token * width, width));
      keys.push_back(layer(embedded.back(), p[2], {}));
      const Vector query = layer(embedded.back(), p[1], {});
      Vector mixed(static_cast<std::size_t>(width));
      double weights = 0;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const double weight = std::exp(dot(query, keys[k]) / std::sqrt(static_cast<double>(width)));
        weights += weight;
        for (std::size_t j = 0; j < mixed.size(); ++j) mixed[j] += weight * embedded[k][j];
      }
      Vector features = embedded.back();
      for (double element : mixed) features.push_back(element / weights);
      Vector hidden = layer(features, p[3], elements(p[4], 0, 2 * width));
      for (double& element : hidden) element = std::tanh(element);
      const Vector logits = layer(hidden, p[5], elements(p[6], 0, p[6].shape()[0]));
      double total = 0;
      for (double logit : logits) total += std::exp(logit);
      sum += std::log(total) - logits[static_cast<std::size_t>(t.at(row * length + i))];
    }
  }
  return sum / static_cast<double>(x.shape().size());
}

TEST_P(Dynamic, LossesAreThoseOfTheHostWithoutPadding) {
  models::Model model = models::dynamic(text(), kSizes);
  Program p = compile(model.graph, {.tuning = {.capture_after = 1}});
  for (std::int64_t step = 0; step < 20; ++step) {
    const Tensor x = model.feeds[0].slices(step, 1), t = model.feeds[1].slices(step, 1);
    ASSERT_EQ(x.shape(), (Shape{kSizes.batch, models::length_of_windows(kSizes, step)}));
    for (std::int64_t i = 0; i < t.shape().size(); ++i)
      ASSERT_EQ(t.at(i), std::fmod(x.at(i) + 1, 13)) << "the character that follows";
    const double wanted = loss_on_host(model, x, t);
    models::run(p, model, sink, step, 1);
    EXPECT_NEAR(p.records<double>("loss").at(0), wanted, 1e-4) << "step " << step << ", " << to_string(x.shape());
  }
}

TEST(DynamicErrors, ATextThatIsTooShortIsRefused) {
  const std::string message = testing::message_of([] { models::dynamic(text(17), kSizes); });
  for (const char* word : {"dynamic", "16 characters", "longer text"})
    EXPECT_TRUE(testing::contains(message, word)) << message;
}

}  // namespace
}  // namespace graphsink::dynamic_test
