// Random ops: the generator against known answers, and the same numbers wherever, whenever and in whatever mode.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "graphsink/graphsink.h"
#include "test_ops.h"

namespace graphsink::op_random_test {
namespace {

constexpr Mode kModes[] = {interactive_serial, interactive_parallel, sink};

// The file kat_vectors of Random123: philox4x32 with 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
  struct {
    PhiloxWords counter;
    PhiloxKey key;
    PhiloxWords answer;
  } vectors[] = {
      {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, {{~0u, ~0u}}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {{0xa4093822, 0x299f31d0}},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const auto& v : vectors)
    for (int i = 0; i < 4; ++i) EXPECT_EQ(philox(v.counter, v.key).at[i], v.answer.at[i]) << i;
}

// The word of element `i` of a node, by the contract in random.cu.
struct Place {
  std::uint32_t seed = 0, node = 0, step = 0, inner = 0, outer = 0;
  PhiloxWords block(std::size_t i) const {
    return philox({{static_cast<std::uint32_t>(i), step, inner, outer}}, {{seed, node}});
  }
  float unit(std::size_t i) const { return unit_float(block(i / 4).at[i % 4]); }
  double unit64(std::size_t i) const {
    PhiloxWords w = block(i / 2);
    return unit_double(w.at[i % 2 * 2], w.at[i % 2 * 2 + 1]);
  }
};

class RandomOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g, CompileOptions options = {}) {
    options.target = GetParam();
    return graphsink::compile(g, options);
  }
};

std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, RandomOps, ::testing::ValuesIn(testing::devices()), device_name);

std::uint32_t node_of(const Value& v) { return static_cast<std::uint32_t>(v.node()); }

TEST_P(RandomOps, AreWhatTheContractSays) {
  for (std::int64_t size : {1, 3, 4, 1031}) {
    Graph g;
    Value narrow = random_uniform(g, f32, {size}), wide = random_uniform(g, f64, {size});
    Value scaled = random_uniform(narrow, -2, 6), dropped = dropout(g.constant(Tensor::full(f32, {size}, 3)), 0.25);
    for (const Value& v : {narrow, wide, scaled, dropped}) g.output(std::to_string(v.node()), v);
    Program program = compile(g, {.seed = 77});
    program.run(interactive, {.steps = 3});
    auto read = [&](const Value& v) { return program.output(v); };
    Tensor a = read(narrow), b = read(wide), c = read(scaled), d = read(dropped);
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
      ASSERT_EQ(a.as<float>()[i], (Place{77, node_of(narrow), 2}.unit(i)));
      ASSERT_EQ(b.as<double>()[i], (Place{77, node_of(wide), 2}.unit64(i)));
      ASSERT_EQ(c.as<float>()[i], -2 + 8 * (Place{77, node_of(scaled), 2}.unit(i)));
      float kept = (Place{77, node_of(dropped), 2}.unit(i)) >= 0.25f ? 3 * static_cast<float>(1 / 0.75) : 0;
      ASSERT_EQ(d.as<float>()[i], kept);
    }
  }
}

// A Variable that takes up random numbers of every kind, step by step.
struct Walk {
  Graph g;
  Variable x{"x", Tensor::full(f32, {37}, 0)};

  Walk() {
    Value noise = random_normal(g, f32, {37}) + dropout(random_uniform(g, f32, {37}), 0.5);
    assign(x, mul(g.value(x), 0.5) + noise);
    g.record("first", sum(noise));
  }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST_P(RandomOps, GiveTheSameInAllModesAndDifferInEachStep) {
  std::vector<Tensor> results;
  for (Mode mode : kModes) {
    for (std::int64_t at_once : {1, 6}) {
      Walk walk;
      Program program = compile(walk.g);
      for (std::int64_t i = 0; i < 6; i += at_once) program.run(mode, {.steps = at_once});
      std::vector<float> seen = program.records("first");
      ASSERT_EQ(seen.size(), 6u);
      for (std::size_t i = 0; i < 6; ++i)
        for (std::size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]);
      results.push_back(walk.x.read());
      EXPECT_TRUE(same_bits(results[0], results.back())) << to_string(mode) << " " << at_once;
    }
  }
}

TEST_P(RandomOps, GoOnFromTheStepAlone) {
  Walk whole;
  Program all = compile(whole.g, {.seed = 5});
  all.run(sink, {.steps = 9});
  Walk first, second;
  Program begin = compile(first.g, {.seed = 5});
  begin.run(sink, {.steps = 4});
  second.x.write(first.x.read());
  Program end = compile(second.g, {.seed = 5});
  end.set_steps(begin.steps());
  end.run(sink, {.steps = 5});
  EXPECT_EQ(end.steps(), 9);
  EXPECT_TRUE(same_bits(second.x.read(), whole.x.read()));
}

TEST_P(RandomOps, TakeAnotherSeedWithoutANewCapture) {
  Graph g;
  Value x = random_uniform(g, f32, {8});
  g.output("x", x);
  Program program = compile(g, {.seed = 1});
  program.run(sink, {.steps = 2});  // interactive, then recorded
  program.sync();
  auto captures = program.counters().captures;
  for (std::uint32_t seed : {2u, 3u}) {
    program.set_seed(seed);
    program.run();
    Tensor seen = program.output("x");
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(seen.as<float>()[i], (Place{seed, node_of(x), seed}.unit(i)));
  }
  EXPECT_EQ(program.counters().captures, captures);
}

// One at element n of `size`, zeros elsewhere.
Value at(Graph& g, std::int64_t size, const Value& n) {
  Tensor numbers(f32, {size});
  for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) numbers.as<float>()[i] = static_cast<float>(i);
  return cast(equal(g.constant(numbers), n), f32);
}

TEST_P(RandomOps, DifferInEachIterationOfALoop) {
  for (Mode mode : kModes) {
    Graph g;
    std::uint32_t drawn = 0;
    auto [drawings, n] = while_(
        {g.constant(Tensor(f32, {5})), g.constant(Tensor(f32, {}))}, [](Value, Value n) { return less(n, 5); },
        [&](Value drawings, Value n) {
          Value x = random_uniform(n);
          drawn = node_of(x);
          return std::array{drawings + x * at(g, 5, n), n + 1};
        });
    g.output("drawings", drawings);
    g.output("n", n);
    Program program = compile(g, {.seed = 9});
    program.run(mode, {.steps = 3});
    Tensor seen = program.output("drawings");
    for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(seen.as<float>()[i], (Place{9, drawn, 2, i}.unit(0))) << i;
    EXPECT_EQ(program.output("n").as<float>()[0], 5);
  }
}

// Two loops around a draw, of which the inner one has a branch around it.
struct Nest {
  Graph g;
  Value x;

  Nest() {
    auto [drawings, i] = while_(
        {g.constant(Tensor(f32, {6})), g.constant(Tensor(f32, {}))}, [](Value, Value i) { return less(i, 2); },
        [&](Value drawings, Value i) {
          auto [inner, j] = while_(
              {drawings, g.constant(Tensor(f32, {}))}, [](Value, Value j) { return less(j, 3); },
              [&](Value drawings, Value j) {
                Value y = if_(
                    less(j, 10), [&] { return x = random_uniform(j); }, [&] { return j + 0; });
                return std::array{drawings + y * at(g, 6, i * 3 + j), j + 1};
              });
          return std::array{inner, i + 1};
        });
    g.output("drawings", drawings);
  }
};

TEST_P(RandomOps, DifferInEachIterationOfNestedLoops) {
  for (Mode mode : kModes) {
    Nest nest;
    Program program = compile(nest.g, {.seed = 4});
    program.run(mode, {.steps = 2});
    Tensor seen = program.output("drawings");
    for (std::uint32_t i = 0; i < 6; ++i)
      EXPECT_EQ(seen.as<float>()[i], (Place{4, node_of(nest.x), 1, i % 3, i / 3}.unit(0))) << i << to_string(mode);
  }
}

TEST_P(RandomOps, GiveTheSameOnTheHost) {
  Graph g;
  Value here = random_uniform(g, f32, {100}), there = random_uniform(here, 0, 1, on_cpu);
  g.output("there", there);
  Program program = compile(g, {.seed = 3});
  for (Mode mode : kModes) {
    program.run(mode);
    auto step = static_cast<std::uint32_t>(program.steps() - 1);
    Tensor seen = program.output("there");
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(seen.as<float>()[i], (Place{3, node_of(there), step}.unit(i)));
  }
}

// Sample moments of n numbers: mean, variance, third and fourth central moment.
template <class T>
std::array<double, 4> moments(std::span<const T> x) {
  std::array<double, 4> m{};
  auto n = static_cast<double>(x.size());
  for (T v : x) m[0] += v / n;
  for (T v : x)
    for (int p = 2; p <= 4; ++p) m[static_cast<std::size_t>(p - 1)] += std::pow(v - m[0], p) / n;
  return m;
}

// Within five standard errors of a fixed draw.
template <class T>
void expect_moments(const Tensor& x, const std::array<double, 4>& wanted, const std::array<double, 4>& deviations) {
  std::array<double, 4> seen = moments(x.as<T>());
  double root = std::sqrt(static_cast<double>(x.shape().size()));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(seen[i], wanted[i], 5 * deviations[i] / root) << "moment " << i + 1;
}

TEST_P(RandomOps, HaveTheMomentsOfTheirDistributions) {
  constexpr std::int64_t kCount = 200001;
  Graph g;
  std::vector<Value> values{random_uniform(g, f32, {kCount}), random_uniform(g, f64, {kCount}),
                            random_normal(g, f32, {kCount}), random_normal(g, f64, {kCount}),
                            random_normal(g, f32, {kCount}, 10, 2)};
  for (const Value& v : values) g.output(std::to_string(v.node()), v);
  Program program = compile(g);
  program.run(interactive);
  // Deviations of sample moments: sqrt(mu_2p - mu_p^2) for the central ones, wide enough for all.
  std::array<double, 4> uniform{0.5, 1.0 / 12, 0, 1.0 / 80}, spread{0.3, 0.075, 0.05, 0.02};
  std::array<double, 4> normal{0, 1, 0, 3}, wide{1, 1.5, 4, 10};
  expect_moments<float>(program.output(values[0]), uniform, spread);
  expect_moments<double>(program.output(values[1]), uniform, spread);
  expect_moments<float>(program.output(values[2]), normal, wide);
  expect_moments<double>(program.output(values[3]), normal, wide);
  expect_moments<float>(program.output(values[4]), {10, 4, 0, 48}, {2, 6, 32, 160});
}

TEST_P(RandomOps, DropoutAndItsGradientShareTheMask) {
  constexpr double kProbability = 0.3;
  for (DType dtype : {f32, f64}) {
    Graph g;
    Value x = g.constant(Tensor::full(dtype, {50000}, 2)), first = dropout(x, kProbability);
    Value second = dropout(x, kProbability), third = dropout(first, kProbability);
    std::vector<Value> slopes{grad(sum(first), {x})[0], grad(sum(second), {x})[0], grad(sum(third), {x})[0]};
    std::vector<Value> outputs{first, second, third, slopes[0], slopes[1], slopes[2]};
    for (std::size_t i = 0; i < 6; ++i) g.output(std::to_string(i), outputs[i]);
    Program program = compile(g);
    program.run(sink, {.steps = 3});
    std::vector<Tensor> seen;
    for (std::size_t i = 0; i < 6; ++i) seen.push_back(program.output(std::to_string(i)));
    int kept = 0, differ = 0;
    for (std::int64_t i = 0; i < 50000; ++i) {
      for (std::size_t j = 0; j < 3; ++j) ASSERT_EQ(seen[j].at(i), 2 * seen[j + 3].at(i)) << i;
      ASSERT_TRUE(seen[0].at(i) == 0 || std::abs(seen[0].at(i) - 2 / 0.7) < 1e-6);
      kept += seen[0].at(i) != 0;
      differ += seen[0].at(i) != seen[1].at(i);
    }
    EXPECT_NEAR(kept / 50000.0, 0.7, 0.01);
    EXPECT_NEAR(differ / 50000.0, 2 * 0.3 * 0.7, 0.01);
  }
}

TEST_P(RandomOps, DropoutDropsEvenWhatIsNotFinite) {
  Graph g;
  Tensor x = Tensor::full(f32, {64}, std::numeric_limits<double>::infinity());
  g.output("y", dropout(g.constant(x), 0.5));
  Program program = compile(g);
  program.run(interactive);
  Tensor y = program.output("y");
  for (float v : y.as<float>()) EXPECT_TRUE(v == 0 || std::isinf(v));
}

// What random ops of every kind make of x, in a loop too, and a gradient.
std::vector<Value> drawn(const Value& x) {
  Value dropped = dropout(x, 0.5), uniform = random_uniform(x), normal = random_normal(x);
  Value whole = randint(x, 0, 1000, i64), chosen = cast(bernoulli(abs(x) * 0.0 + 0.5), i32);
  Graph g(x.graph());
  Value wide = random_uniform(g, f64, x.shape()), wide_normal = random_normal(g, f64, x.shape());
  Value narrow_whole = randint(g, i32, x.shape(), -7, 1000);
  Value wide_x = cast(x, f64), wide_dropped = dropout(wide_x, 0.5);
  Value looped = scan({x}, {},
                      [](const Values& s, const Values&) {
                        return Scan{{dropout(s[0] + 1.0, 0.25)}, {}};
                      },
                      {.iterations = 3})
                     .state[0];
  Value again = scan({x}, {},
                     [](const Values& s, const Values&) {
                       return Scan{{dropout(s[0] * s[0], 0.25)}, {}};
                     },
                     {.iterations = 4, .recompute = true})
                    .state[0];
  return {dropped,
          uniform,
          normal,
          whole,
          chosen,
          wide,
          wide_normal,
          narrow_whole,
          wide_dropped,
          looped,
          grad(sum(dropped * dropped), {x})[0],
          grad(sum(wide_dropped * wide_dropped), {wide_x})[0],
          grad(sum(again), {x})[0]};
}

// Parts with a size that is no multiple of a block, and with one that is.
TEST_P(RandomOps, PartsDrawWhatTheWholeDraws) {
  constexpr std::int64_t kParts = 3;
  for (const std::int64_t rows : {1, 4, 129}) {
    for (const Mode mode : kModes) {
      const auto run = [&](std::int64_t all_rows, std::int64_t part) {
        const RandomPart random_part(part);
        Graph g;
        const std::vector<Value> values = drawn(g.constant(Tensor::full(f32, {all_rows, 3}, 2)));
        for (std::size_t i = 0; i < values.size(); ++i) g.output(std::to_string(i), values[i]);
        Program program = compile(g, {.seed = 9});
        program.run(mode, {.steps = 2});
        std::vector<Tensor> read;
        for (std::size_t i = 0; i < values.size(); ++i) read.push_back(program.output(std::to_string(i)));
        return read;
      };
      const std::vector<Tensor> whole = run(kParts * rows, 0);
      for (std::int64_t part = 0; part < kParts; ++part) {
        const std::vector<Tensor> of_part = run(rows, part);
        for (std::size_t i = 0; i < whole.size(); ++i)
          for (std::int64_t k = 0; k < rows * 3; ++k)
            ASSERT_EQ(of_part[i].at(k), whole[i].at(part * rows * 3 + k))
                << to_string(mode) << ", value " << i << ", part " << part << " of " << rows << " rows";
      }
    }
  }
}

// What drawn() makes for tensors of this shape, in the second step.
std::vector<Tensor> drawn_in(Mode mode, const DeviceId& device, const Shape& shape) {
  Graph g;
  const std::vector<Value> values = drawn(g.constant(Tensor::full(f32, shape, 2)));
  for (std::size_t i = 0; i < values.size(); ++i) g.output(std::to_string(i), values[i]);
  Program program = compile(g, {.target = device, .seed = 9});
  program.run(mode, {.steps = 2});
  std::vector<Tensor> read;
  for (std::size_t i = 0; i < values.size(); ++i) read.push_back(program.output(std::to_string(i)));
  return read;
}

// The part of `whole` that has this shape and begins at these indices.
Tensor part_of(const Tensor& whole, const std::vector<std::int64_t>& begins, const Shape& shape) {
  std::vector<std::int64_t> ends = begins;
  for (int i = 0; i < shape.rank(); ++i) ends[static_cast<std::size_t>(i)] += shape[i];
  Eager eager;
  return Eager::read(slice(eager.tensor(whole), begins, ends));
}

// Parts along one axis, and, if `firsts` is more than 1, along the first one, too.
TEST_P(RandomOps, PartsAlongAnotherAxisDrawWhatTheWholeDraws) {
  struct {
    Shape part;
    int axis;
    std::int64_t parts, firsts;
  } const rows[] = {
      {{2, 5}, 1, 3, 2}, {{5, 129}, -1, 2, 2}, {{4, 8}, -1, 2, 2},    {{3, 1}, 1, 5, 1},
      {{1, 6}, 1, 3, 2}, {{2, 3, 5}, 1, 3, 2}, {{2, 3, 2}, -1, 3, 2}, {{3, 2, 1, 7}, -3, 2, 2},
      {{7}, -1, 3, 1},   {{3, 2}, -2, 3, 1},   {{2, 0}, 1, 3, 2},
  };
  for (const auto& [shape, given, parts, firsts] : rows) {
    const int axis = given < 0 ? given + shape.rank() : given;
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i] * (i == axis ? parts : i == 0 ? firsts : 1));
    for (const Mode mode : kModes) {
      const std::vector<Tensor> whole = drawn_in(mode, GetParam(), Shape(sizes));
      for (std::int64_t first = 0; first < firsts; ++first) {
        for (std::int64_t number = 0; number < parts; ++number) {
          const RandomPart along_first(first), along_axis(number, {.axis = given, .parts = parts});
          std::vector<std::int64_t> begins(sizes.size());
          begins[0] = first * shape[0];
          begins[static_cast<std::size_t>(axis)] = number * shape[axis];
          const std::vector<Tensor> seen = drawn_in(mode, GetParam(), shape);
          for (std::size_t i = 0; i < whole.size(); ++i)
            ASSERT_TRUE(same_bits(seen[i], part_of(whole[i], begins, shape)))
                << to_string(mode) << ", value " << i << ", part " << number << " of " << to_string(shape)
                << " along axis " << given << ", part " << first << " along the first";
        }
      }
    }
  }
}

// What an op draws for this shape on the CPU in the blocks around.
Tensor draw(const Shape& shape) {
  Graph g;
  g.output("y", random_uniform(g, f64, shape));
  Program program = compile(g, {.target = cpu()});
  program.run(interactive);
  return program.output("y");
}

TEST(RandomPart, CountsOnceAlongTheFirstAxisAndOnceAlongAnother) {
  const Shape shape{2, 3, 5}, line{6};
  const Tensor plain = draw(shape), plain_line = draw(line);
  const RandomPart batch(1);
  const Tensor of_batch = draw(shape), of_line = draw(line);
  EXPECT_FALSE(same_bits(plain, of_batch));
  const auto drawn_with = [&](std::int64_t number, const RandomPartOptions& options) {
    const RandomPart part(number, options);
    return draw(shape);
  };
  const Tensor of_both = drawn_with(2, {.axis = -1, .parts = 4});
  EXPECT_FALSE(same_bits(of_both, of_batch));
  EXPECT_TRUE(same_bits(of_both, drawn_with(2, {.axis = 2, .parts = 4})));
  EXPECT_FALSE(same_bits(of_both, drawn_with(2, {.axis = 1, .parts = 4})));
  // Parts along the first axis need no number, which changes nothing.
  EXPECT_TRUE(same_bits(of_batch, drawn_with(1, {.axis = 0, .parts = 7})));
  EXPECT_TRUE(same_bits(of_batch, drawn_with(1, {.axis = -3, .parts = 7})));
  {
    const RandomPart heads(1, {.axis = 1, .parts = 4}), hidden(2, {.axis = -1, .parts = 4});
    EXPECT_TRUE(same_bits(of_both, draw(shape))) << "the innermost does not count";
    const RandomPart whole(0, {.axis = 1, .parts = 1});
    EXPECT_TRUE(same_bits(of_batch, draw(shape))) << "a single part is not the whole";
    const RandomPart none(0);
    EXPECT_TRUE(same_bits(plain, draw(shape))) << "part 0 is not the first";
    const RandomPart inner_batch(1), again(2, {.axis = -1, .parts = 4});
    EXPECT_TRUE(same_bits(of_both, draw(shape))) << "the order counts";
  }
  EXPECT_TRUE(same_bits(of_batch, draw(shape)));
  const RandomPart first_of_line(0, {.axis = -1, .parts = 4});
  EXPECT_TRUE(same_bits(plain_line, draw(line)));
  const RandomPart second_of_line(1, {.axis = -1, .parts = 4});
  EXPECT_TRUE(same_bits(of_line, draw(line)));
}

TEST(RandomPart, RefusesPartsThatAreNone) {
  struct {
    std::int64_t number;
    RandomPartOptions options;
    std::string named;
  } const rows[] = {
      {-1, {}, "the part is -1"},
      {-1, {.axis = 1, .parts = 2}, "the part is -1"},
      {0, {.axis = 1}, "along axis 1 into 0 parts"},
      {0, {.axis = -1}, "give RandomPartOptions::parts"},
      {0, {.axis = 1, .parts = -2}, "into -2 parts"},
      {0, {.parts = -1}, "into -1 parts"},
      {3, {.axis = 1, .parts = 3}, "the part is 3 of 3"},
      {3, {.parts = 3}, "the part is 3 of 3"},
  };
  const Tensor plain = draw({2, 5});
  for (const auto& row : rows) {
    try {
      const RandomPart part(row.number, row.options);
      ADD_FAILURE() << "not refused: " << row.named;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(row.named), std::string::npos) << e.what();
    }
    EXPECT_TRUE(same_bits(plain, draw({2, 5}))) << "a refused one counts";
  }
}

TEST(RandomPart, RefusesTensorsThatCannotBeParts) {
  constexpr std::int64_t kMany = std::int64_t{1} << 33;
  struct {
    Shape shape;
    int axis;
    std::int64_t parts;
    std::string named;  // empty: it is taken
  } const rows[] = {
      {{2, 5}, 2, 3, "random_uniform: RandomPart divides axis 2, which [2, 5] does not have"},
      {{2, 5}, -3, 3, "divides axis -3, which [2, 5] does not have"},
      {{5}, 1, 3, "divides axis 1, which [5] does not have"},
      {{}, -1, 3, "divides axis -1, which [] does not have"},
      {{}, -1, 1, ""},
      {{5}, 1, 1, ""},
      {{2, 5}, 1, kMany / 10, ""},
      {{2, 5}, 1, kMany / 10 + 1, "have more than 2^33 random numbers"},
      {{2, 5}, 1, std::numeric_limits<std::int64_t>::max(), "have more than 2^33 random numbers"},
      {{2, 0}, 1, std::numeric_limits<std::int64_t>::max(), ""},
      {{0, 2}, 1, std::numeric_limits<std::int64_t>::max(), ""},
  };
  for (const auto& row : rows) {
    const RandomPart part(row.parts - 1, {.axis = row.axis, .parts = row.parts});
    std::string seen;
    try {
      (void)draw(row.shape);
    } catch (const Error& e) {
      seen = e.what();
    }
    EXPECT_NE(seen.find(row.named), std::string::npos) << seen << "\nexpected " << row.named;
    EXPECT_EQ(seen.empty(), row.named.empty()) << seen;
  }
  const RandomPart half(1, {.axis = 1, .parts = kMany / 20});
  EXPECT_NO_THROW({
    const RandomPart second(1);
    draw({2, 5});
  });
  const RandomPart third(2);
  EXPECT_THROW(draw({2, 5}), Error);
  Graph g;
  const Value vector = g.constant(Tensor(f32, {3}));
  EXPECT_THROW(dropout(vector, 0.5), Error);
  EXPECT_THROW(random_normal(vector), Error);
  EXPECT_THROW(randint(vector, 0, 2), Error);
  EXPECT_THROW(bernoulli(vector), Error);
}

TEST(RandomPart, EndsWithItsBlockAndRefusesNegativeNumbers) {
  const auto draws = [](const auto& build) {
    Graph g;
    g.output("y", build(g));
    Program program = compile(g, {.target = cpu()});
    program.run(interactive);
    return program.output("y").at(0);
  };
  const auto draw = [](Graph& g) { return random_uniform(g, f32, {5}); };
  const double plain = draws(draw);
  const RandomPart outer(1);
  const double of_part = draws(draw);
  EXPECT_NE(plain, of_part);
  EXPECT_EQ(plain, draws([&](Graph& g) {
              const RandomPart none(0);
              return draw(g);
            }));
  EXPECT_EQ(of_part, draws(draw));
  EXPECT_THROW(RandomPart(-1), Error);
  const RandomPart far(std::int64_t{1} << 31);
  EXPECT_NO_THROW(draws([](Graph& g) { return random_uniform(g, f32, {3}); }));
  EXPECT_THROW(draws(draw), Error);
}

TEST(RandomOps, DrawAnewForEachCallOfAnEager) {
  Eager eager;
  Value x = eager.tensor({1, 1, 1, 1});
  Tensor a = Eager::read(random_uniform(x)), b = Eager::read(random_uniform(x));
  EXPECT_FALSE(same_bits(a, b));
  EXPECT_TRUE(same_bits(Eager::read(dropout(x, 0)), Eager::read(x)));
}

TEST(RandomOps, RefuseWhatTheyCannotTake) {
  Graph g;
  Value x = g.constant(Tensor(f32, {3})), whole = g.constant(Tensor(i32, {3}));
  EXPECT_THROW(dropout(x, 1), Error);
  EXPECT_THROW(dropout(x, -0.1), Error);
  EXPECT_THROW(dropout(x, std::nan("")), Error);
  EXPECT_THROW(dropout(whole, 0.5), Error);
  EXPECT_THROW(dropout(Value(), 0.5), Error);
  EXPECT_THROW(random_uniform(whole), Error);
  EXPECT_THROW(random_uniform(1.0), Error);
  EXPECT_THROW(random_uniform(g, i32, {3}), Error);
  EXPECT_THROW(random_normal(x, 0, std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW(random_normal(g, f32, {std::int64_t{1} << 34}), Error);
  auto loop = [](const Value& x, auto body) {
    return while_(
        {x}, [](Value y) { return less(sum(y), 1); }, [=](Value y) { return std::array{body(y)}; })[0];
  };
  auto two = [=](const Value& y) { return loop(y, [](Value z) { return random_uniform(z); }); };
  EXPECT_NO_THROW(loop(x, two));
  EXPECT_THROW(loop(x, [=](Value y) { return loop(y, two); }), Error);
}

}  // namespace
}  // namespace graphsink::op_random_test
