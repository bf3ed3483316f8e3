// jacobi against the same iteration on the host, cell by cell; and the whole loop is one launch.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "program_fixture.h"
#include "samples/models/jacobi.h"

namespace graphsink::jacobi_test {
namespace {

constexpr models::JacobiOptions kSizes{.size = 24, .tolerance = 0.05};

struct Solved {
  std::vector<float> plate;
  int iterations = 0;
};

// Adds in the order of the model, so that both compute the same bits.
Solved solve(float heat) {
  const std::size_t n = kSizes.size;
  std::vector<float> plate(n * n);
  std::fill_n(plate.begin(), n, heat);
  int iterations = 0;
  for (float change = INFINITY; change > static_cast<float>(kSizes.tolerance); ++iterations) {
    std::vector<float> next = plate;
    change = 0;
    for (std::size_t row = 1; row + 1 < n; ++row)
      for (std::size_t column = 1; column + 1 < n; ++column) {
        const float* cell = &plate[row * n + column];
        next[row * n + column] = (*(cell - n) + *(cell + n) + (*(cell - 1) + *(cell + 1))) * 0.25f;
        change = std::max(change, std::abs(next[row * n + column] - *cell));
      }
    plate = next;
  }
  return {plate, iterations};
}

class Jacobi : public testing::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Jacobi, ::testing::ValuesIn(testing::devices()), testing::device_name);

TEST_P(Jacobi, GivesThePlateAndTheIterationsOfTheHostInEveryMode) {
  for (Mode mode : testing::kModes) {
    SCOPED_TRACE(to_string(mode));
    models::Model model = models::jacobi(kSizes);
    Program p = compile(model.graph, {.require_whole_graph = true});
    std::vector<float> means;
    for (int step = 0; step < 4; ++step) {
      const Solved expected = solve(static_cast<float>(model.variables[1].read().at(0)));
      p.run(mode);
      const Tensor plate = model.variables[0].read();
      EXPECT_EQ(std::vector(plate.as<float>().begin(), plate.as<float>().end()), expected.plate) << "step " << step;
      EXPECT_EQ(p.records("iterations"), std::vector{static_cast<float>(expected.iterations)}) << "step " << step;
      EXPECT_GT(expected.iterations, 100) << "the data decide";
      means.push_back(p.records("loss").back());
      EXPECT_TRUE(step == 0 || means[step] > means[step - 1]) << "the heater warms up";
    }
  }
}

TEST_P(Jacobi, IsOneLaunchWithOneLoop) {
  models::Model model = models::jacobi(kSizes);
  Program p = compile(model.graph, {.require_whole_graph = true});
  for (int step = 0; step < 3; ++step) p.run(sink);
  EXPECT_EQ(p.captured()->conditional_nodes, 1);
  EXPECT_EQ(p.counters().graph_launches, 2u) << "each step after the first is one";
  p.run(sink, {.steps = 5});
  EXPECT_EQ(p.captured(LaunchOf::several_steps)->conditional_nodes, 2) << "a loop in the loop over the steps";
  EXPECT_EQ(p.counters().graph_launches, 3u);
  EXPECT_EQ(p.counters().fallbacks, 0u);
}

TEST_P(Jacobi, AStepThatNeedsTooManyIterationsFails) {
  models::Model model = models::jacobi({.size = 24, .tolerance = 0.05, .max_iterations = 50});
  Program p = compile(model.graph);
  p.run(sink);
  EXPECT_THROW(p.sync(), Error);
  EXPECT_EQ(p.steps(), 0);
}

// The host drives the loop then, and each iteration is one launch.
TEST_P(Jacobi, CountedOnTheHostItIsTheSame) {
  const models::JacobiOptions sizes{.size = 24, .tolerance = 0.05, .counts_on_host = true};
  for (Mode mode : {interactive_serial, sink, split_sink}) {
    SCOPED_TRACE(to_string(mode));
    models::Model model = models::jacobi(sizes);
    Program p = compile(model.graph);
    for (int step = 0; step < 3; ++step) {
      const Solved expected = solve(static_cast<float>(model.variables[1].read().at(0)));
      const std::uint64_t before = p.counters().graph_launches;
      p.run(mode);
      const Tensor plate = model.variables[0].read();
      EXPECT_EQ(std::vector(plate.as<float>().begin(), plate.as<float>().end()), expected.plate) << "step " << step;
      EXPECT_EQ(p.records("iterations"), std::vector{static_cast<float>(expected.iterations)}) << "step " << step;
      if (mode == interactive_serial || step == 0) continue;
      const std::size_t of_islands = is_cuda() ? 2 + static_cast<std::size_t>(expected.iterations) : 1;
      EXPECT_GE(p.counters().graph_launches - before, of_islands);
      EXPECT_LE(p.counters().graph_launches - before, of_islands + 1) << "where the loop runs beside a launch";
    }
    EXPECT_EQ(p.counters().fallbacks, 0u);
  }
}

TEST(JacobiErrors, APlateWithoutInnerCellsIsRefused) { EXPECT_THROW(models::jacobi({.size = 2}), Error); }

}  // namespace
}  // namespace graphsink::jacobi_test
