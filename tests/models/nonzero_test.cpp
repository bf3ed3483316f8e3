// nonzero: the images that are selected, in results of any size, train the same model.
#include "samples/models/nonzero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "program_fixture.h"

namespace graphsink::nonzero_test {
namespace {

const models::MlpTraining kTraining{.batch = 16, .examples = 64, .lr = 1e-2, .seed = 3};
constexpr std::int64_t kSteps = 48;

std::shared_ptr<const Digits> digits() { return std::make_shared<const Digits>(seeded_digits(64, 5)); }

struct Trained {
  std::vector<double> losses, unsure, parameters;
  Counters counters;
};
Trained train(const ResultSize& size, const CompileOptions& options, Mode mode, std::int64_t steps_a_run) {
  models::Model model = models::nonzero(digits(), {.hidden = 12, .size = size}, kTraining);
  Program p = compile(model.graph, options);
  for (std::int64_t step = 0; step < kSteps; step += steps_a_run) models::run(p, model, mode, step, steps_a_run);
  Trained trained{p.records<double>("loss"), p.records<double>("unsure"), {}, p.counters()};
  for (const Variable& variable : model.variables) {
    const Tensor value = variable.read();
    for (std::int64_t i = 0; i < value.shape().size(); ++i) trained.parameters.push_back(value.at(i));
  }
  return trained;
}

class Nonzero : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Nonzero, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(Nonzero, EverySizeTrainsTheSameModel) {
  const CompileOptions options{.target = GetParam(), .tuning = {.capture_after = 1}};
  const Trained exact = train({}, options, interactive_serial, 1);
  ASSERT_EQ(exact.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(exact.losses.back(), 0.5 * exact.losses.front());
  const auto [least, most] = std::minmax_element(exact.unsure.begin(), exact.unsure.end());
  EXPECT_GT(*most, 12);
  EXPECT_LT(*least, 8);
  const std::set<double> sizes(exact.unsure.begin(), exact.unsure.end());
  for (const ResultSize& size : {ResultSize(), ResultSize(16), ResultSize(next_power_of_two())}) {
    const Trained first = train(size, options, interactive_serial, 1);
    EXPECT_EQ(first.unsure, exact.unsure);
    for (std::size_t i = 0; i < first.losses.size(); ++i) EXPECT_NEAR(first.losses[i], exact.losses[i], 1e-4) << i;
    EXPECT_EQ(first.counters.cached_shapes, size.is_bound()                 ? 1
                                            : size.bucket().is_every_size() ? sizes.size()
                                                                            : first.counters.cached_shapes);
    EXPECT_LE(first.counters.cached_shapes, sizes.size());
    for (Mode mode : {interactive_parallel, sink, automatic}) {
      for (std::int64_t steps_a_run : {1, 8}) {
        const Trained other = train(size, options, mode, steps_a_run);
        EXPECT_EQ(other.losses, first.losses) << to_string(mode) << ", " << steps_a_run;
        EXPECT_EQ(other.parameters, first.parameters) << to_string(mode) << ", " << steps_a_run;
        EXPECT_EQ(other.counters.fallbacks, 0u);
        if (mode == sink) {
          EXPECT_GT(other.counters.graph_launches, 0u);
        }
      }
    }
  }
}

}  // namespace
}  // namespace graphsink::nonzero_test
