// The values and gradients of collectives, in all modes, on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graphsink/graphsink.h"
#include "graphsink/ranks.h"
#include "program_fixture.h"
#include "rank_world.h"

namespace graphsink::testing {
namespace collectives_test {

int ranks() { return world().size(); }
int me() { return world().rank(); }

// What rank `rank` has: whole numbers that 16 bits hold, so that every order of a sum gives the same.
double element(int rank, std::int64_t i) { return static_cast<double>((rank + 1) * (i % 7 + 1)); }

Tensor data_of(int rank, DType dtype, const Shape& shape) {
  Tensor tensor(f64, shape);
  std::int64_t i = 0;
  for (double& x : tensor.as<double>()) x = element(rank, i++);
  Eager eager;
  return dtype == f64 ? tensor : eager.read(cast(eager.tensor(tensor), dtype));
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < tensor.shape().size(); ++i) all.push_back(tensor.at(i));
  return all;
}

double reduced(Reduction reduction, std::int64_t i) {
  double result = element(0, i);
  for (int rank = 1; rank < ranks(); ++rank)
    result = reduction == Reduction::max ? std::max(result, element(rank, i)) : result + element(rank, i);
  return reduction == Reduction::mean ? result / ranks() : result;
}

class Collectives : public OnRanks {
 protected:
  // Runs the op on this rank's data in all modes, twice in one call, and compares the result.
  template <class Op>
  void expect(DType dtype, const Shape& shape, const Op& op, const std::vector<double>& expected) {
    Graph g;
    const Value x = g.input("x", dtype, shape);
    g.output("y", op(x));
    Program program = compile(g);
    program.write(x, data_of(me(), dtype, shape));
    for (const Mode mode : kAllModes) {
      program.run(mode, {.steps = 2});
      EXPECT_EQ(numbers(program.output("y")), expected)
          << to_string(mode) << " " << to_string(TensorType{dtype, shape});
    }
  }

  // The gradient of the sum of the losses of all ranks, each a sum of weighted results: rank r has the weights of its
  // data.
  template <class Op>
  std::vector<double> gradient(const Shape& shape, const Op& op) {
    Graph g;
    const Value x = g.input("x", f64, shape);
    const Value y = op(x);
    const Value weights = g.constant(data_of(me(), f64, y.shape()));
    g.output("dx", grad(sum(mul(y, weights)), {x})[0]);
    Program program = compile(g);
    program.write(x, data_of(me(), f64, shape));
    program.run(sink);
    return numbers(program.output("dx"));
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Collectives, ::testing::ValuesIn(rank_ways()), rank_way_name);

TEST_P(Collectives, AllReduceCombinesElementByElement) {
  for (const DType dtype : {f32, f64, f16, bf16, i32, i64}) {
    for (const Shape& shape : {Shape{}, Shape{8}, Shape{3, 5}, Shape{0, 4}}) {
      for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max}) {
        if (reduction == Reduction::mean && (dtype == i32 || dtype == i64)) continue;
        std::vector<double> expected;
        for (std::int64_t i = 0; i < shape.size(); ++i) expected.push_back(reduced(reduction, i));
        expect(
            dtype, shape, [&](const Value& x) { return all_reduce(x, world(), {.reduction = reduction}); }, expected);
      }
    }
  }
}

TEST_P(Collectives, OfAThousandElementsInOneWhichIsPadded) {
  const Shape shape{1001};
  std::vector<double> expected;
  for (std::int64_t i = 0; i < shape.size(); ++i) expected.push_back(reduced(Reduction::sum, i));
  expect(
      f32, shape, [](const Value& x) { return all_reduce(x, world()); }, expected);
}

TEST_P(Collectives, AllGatherPutsRanksBehindOneAnother) {
  std::vector<double> expected;
  for (int rank = 0; rank < ranks(); ++rank)
    for (std::int64_t i = 0; i < 6; ++i) expected.push_back(element(rank, i));
  expect(
      i32, {2, 3}, [](const Value& x) { return all_gather(x, world()); }, expected);
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 6; ++i) expected.push_back(reduced(Reduction::sum, me() * 6 + i));
  expect(
      f32, {ranks() * 2, 3}, [](const Value& x) { return reduce_scatter(x, world()); }, expected);
}

TEST_P(Collectives, BroadcastGivesWhatTheRootHas) {
  const int root = ranks() - 1;
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 5; ++i) expected.push_back(element(root, i));
  expect(
      u8, {5}, [&](const Value& x) { return broadcast(x, world(), root); }, expected);
}

TEST_P(Collectives, AllToAllTransposesRanksAndParts) {
  std::vector<double> expected;
  for (int rank = 0; rank < ranks(); ++rank)
    for (std::int64_t i = 0; i < 4; ++i) expected.push_back(element(rank, me() * 4 + i));
  expect(
      f64, {ranks() * 2, 2}, [](const Value& x) { return all_to_all(x, world()); }, expected);
}

TEST_P(Collectives, MaximumOfNotANumberIsNotANumber) {
  Graph g;
  const Value x = g.input("x", f32, Shape{2});
  g.output("y", all_reduce(x, world(), {.reduction = Reduction::max}));
  Program program = compile(g);
  for (int bad = 0; bad < ranks(); ++bad) {
    program.write(x, Tensor::full(f32, {2}, me() == bad ? std::nan("") : 1.0));
    program.run(sink);
    EXPECT_TRUE(std::isnan(program.output("y").at(0))) << bad;
  }
}

TEST_P(Collectives, GradientsAreThoseOfTheSumOfAllLosses) {
  const int n = ranks();
  const Shape whole{n * 2, 3};
  // The weights of rank r are element(r, i) too, which sum up like the data.
  std::vector<double> sums, means, gathered, scattered, exchanged;
  for (std::int64_t i = 0; i < whole.size(); ++i) {
    sums.push_back(reduced(Reduction::sum, i));
    means.push_back(reduced(Reduction::sum, i) / n);
    scattered.push_back(element(static_cast<int>(i / 6), i % 6));
    exchanged.push_back(element(static_cast<int>(i / 6), me() * 6 + i % 6));
  }
  for (std::int64_t i = 0; i < 6; ++i) gathered.push_back(reduced(Reduction::sum, me() * 6 + i));
  EXPECT_EQ(gradient(whole, [](const Value& x) { return all_reduce(x, world()); }), sums);
  EXPECT_EQ(gradient(whole, [](const Value& x) { return all_reduce(x, world(), {.reduction = Reduction::mean}); }),
            means);
  EXPECT_EQ(gradient({2, 3}, [](const Value& x) { return all_gather(x, world()); }), gathered);
  EXPECT_EQ(gradient(whole, [](const Value& x) { return reduce_scatter(x, world()); }), scattered);
  EXPECT_EQ(gradient(whole, [](const Value& x) { return all_to_all(x, world()); }), exchanged);
  std::vector<double> of_root(sums.size());
  if (me() == 0) of_root = sums;
  EXPECT_EQ(gradient(whole, [](const Value& x) { return add(broadcast(x, world()), mul(x, 0.0)); }), of_root);
}

TEST_P(Collectives, SumsOf16BitsAreRoundedOnce) {
  Graph g;
  const Value x = g.input("x", f16, Shape{1});
  g.output("y", all_reduce(x, world()));
  Program program = compile(g);
  program.write(x, Tensor::full(f16, {1}, me() == 0 ? 2048.0 : 1.0));  // 2049 is no f16
  program.run(sink);
  EXPECT_EQ(program.output("y").at(0), float(half(2048.0f + static_cast<float>(ranks() - 1))));
}

// Ranks that get no gradient from a broadcast build the same collectives behind it.
TEST_P(Collectives, GradientsOfABroadcastOfASum) {
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 4; ++i) expected.push_back(reduced(Reduction::sum, i));
  EXPECT_EQ(gradient({4}, [](const Value& x) { return broadcast(all_reduce(x, world()), world()); }), expected);
}

TEST_P(Collectives, AveragesHaveOpenSizes) {
  Graph g;
  const Value x = g.input("x", f32, {open(4), 2}), y = g.input("y", f32, Shape{3});
  const std::vector<Value> means = average(std::vector{x, y, y}, world());
  for (std::size_t i = 0; i < means.size(); ++i) g.output(std::to_string(i), means[i]);
  Program program = compile(g);
  program.write(x, data_of(me(), f32, {5, 2}));
  program.write(y, data_of(me(), f32, {3}));
  program.run(sink);
  for (std::size_t k = 0; k < means.size(); ++k) {
    const Tensor mean = program.output(std::to_string(k));
    for (std::int64_t i = 0; i < mean.shape().size(); ++i) EXPECT_EQ(mean.at(i), reduced(Reduction::mean, i)) << k;
  }
}

TEST_P(Collectives, GradientOfAMaximumGoesToTheLargest) {
  std::vector<double> expected(4);
  for (std::int64_t i = 0; i < 4; ++i)
    if (me() == ranks() - 1) expected[static_cast<std::size_t>(i)] = reduced(Reduction::sum, i);
  EXPECT_EQ(gradient({4}, [](const Value& x) { return all_reduce(x, world(), {.reduction = Reduction::max}); }),
            expected);
}

TEST_P(Collectives, RunInLoops) {
  Graph g;
  const Value x = g.input("x", f32, Shape{3});
  const Value y = scan({x}, {},
                       [](const Values& state, const Values&) {
                         return Scan{{all_reduce(state[0], world(), {.reduction = Reduction::mean})}, {}};
                       },
                       {.iterations = 3})
                      .state[0];
  g.output("y", y);
  Program program = compile(g);
  program.write(x, data_of(me(), f32, {3}));
  for (const Mode mode : kAllModes) {
    program.run(mode);
    for (std::int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(program.output("y").at(i), reduced(Reduction::mean, i)) << to_string(mode);
  }
}

TEST(CollectivesOfOneRank, AddNoNode) {
  Graph g;
  const Value x = g.input("x", f32, Shape{4});
  const Comm one = one_rank();
  const Value y = all_to_all(broadcast(reduce_scatter(all_gather(all_reduce(x, one), one), one), one), one);
  EXPECT_EQ(y.node(), x.node());
  EXPECT_EQ(average(std::vector{y}, one)[0].node(), x.node());
  EXPECT_EQ(one.rank(), 0);
  EXPECT_EQ(one.size(), 1);
  one.barrier();
}

struct Refused {
  const char* what;
  Value (*build)(const Value&, const Comm&);
  Shape shape;
  DType dtype;
  const char* problem;
};

TEST(CollectivesRefuse, ByTable) {
  const Refused rows[] = {
      {"sum of u8", [](const Value& x, const Comm& c) { return all_reduce(x, c); }, {4}, u8, "takes"},
      {"mean of i32",
       [](const Value& x, const Comm& c) { return all_reduce(x, c, {Reduction::mean}); },
       {4},
       i32,
       "takes"},
      {"maximum of booleans",
       [](const Value& x, const Comm& c) { return all_reduce(x, c, {Reduction::max}); },
       {4},
       boolean,
       "takes"},
      {"scatter of a maximum",
       [](const Value& x, const Comm& c) { return reduce_scatter(x, c, {Reduction::max}); },
       {4},
       f32,
       "has no maximum"},
      {"gather of a scalar", [](const Value& x, const Comm& c) { return all_gather(x, c); }, {}, f32, "not a scalar"},
      {"a root that is not there",
       [](const Value& x, const Comm& c) { return broadcast(x, c, 64); },
       {4},
       f32,
       "there is no rank 64"},
      {"a negative root",
       [](const Value& x, const Comm& c) { return broadcast(x, c, -1); },
       {4},
       f32,
       "there is no rank -1"},
  };
  for (const Comm& comm : {world(), one_rank()}) {
    for (const Refused& row : rows) {
      Graph g;
      const Value x = g.input("x", row.dtype, row.shape);
      try {
        row.build(x, comm);
        ADD_FAILURE() << row.what;
      } catch (const Error& e) {
        EXPECT_NE(e.problem().find(row.problem), std::string::npos) << row.what << ": " << e.what();
        EXPECT_FALSE(e.remedy().empty());
      }
    }
  }
  for (const auto start : {&mpi_world, &graphsink::world})
    for (const double patience_s : {0.0, std::nan("")}) EXPECT_THROW((void)start({patience_s}, Where()), Error);
}

}  // namespace collectives_test
}  // namespace graphsink::testing
