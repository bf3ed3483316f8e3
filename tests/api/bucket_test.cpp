// Open dimensions whose sizes are rounded up: few shapes for many sizes, and padding that never shows.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::bucket_test {
namespace {

using testing::contains;
using testing::device_name;
using testing::kModes;
using testing::message_of;
using testing::OnDevice;

TEST(BucketRule, RoundsUp) {
  struct Row {
    Bucket bucket;
    std::vector<std::pair<std::int64_t, std::int64_t>> sizes;  // and what they become; -1: too large
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Row rows[] = {
      {Bucket(), {{0, 0}, {1, 1}, {17, 17}, {kMost, kMost}}},
      {next_power_of_two(), {{0, 1}, {1, 1}, {2, 2}, {3, 4}, {64, 64}, {65, 128}, {kMost, -1}}},
      {multiples_of(64), {{0, 64}, {1, 64}, {64, 64}, {65, 128}, {kMost, -1}}},
      {multiples_of(1), {{0, 1}, {5, 5}}},
      {one_of({32, 16, 48}), {{0, 16}, {16, 16}, {17, 32}, {33, 48}, {48, 48}, {49, -1}}},
  };
  for (const Row& row : rows)
    for (auto [size, wanted] : row.sizes)
      EXPECT_EQ(row.bucket.round_up(size), wanted) << to_string(row.bucket) << ", " << size;
}

TEST(BucketRule, IsSaid) {
  EXPECT_EQ(to_string(next_power_of_two()), "powers of 2");
  EXPECT_EQ(to_string(multiples_of(64)), "multiples of 64");
  EXPECT_EQ(to_string(one_of({32, 16})), "one of 16, 32");
}

// --- what is refused

struct Refusal {
  const char* name;
  std::function<void()> act;
  std::vector<const char*> words;
};
void PrintTo(const Refusal& row, std::ostream* out) { *out << row.name; }

const Refusal kRefusals[] = {
    {"MultiplesOfNothing", [] { multiples_of(0); }, {"multiples_of", "0", "at least 1"}},
    {"NoSizes", [] { one_of({}); }, {"one_of", "no size"}},
    {"SizeZero",
     [] {
       one_of({8, 0});
     },
     {"one_of", "a size is 0"}},
    {"ExampleTooLarge",
     [] {
       Graph().input("x", f32, {open(9, one_of({4, 8}))});
     },
     {"\"x\"", "one of 4, 8", "larger"}},
    {"Feed", [] { Graph().feed("x", f32, {open(4, next_power_of_two())}); }, {"feed(\"x\")", "powers of 2", "input"}},
    {"SizeOfAResult",
     [] {
       Graph g;
       true_size(tanh(g.input("x", f32, {open(4, next_power_of_two())})), 0);
     },
     {"true_size", "tanh", "the input itself"}},
    {"NoSuchAxis",
     [] {
       Graph g;
       valid_mask(g.input("x", f32, {open(4, next_power_of_two())}), 1);
     },
     {"true_size", "axis 1", "\"x\""}},
    {"WriteTooMuch",
     [] {
       Graph g;
       Value x = g.input("x", f32, {open(4, one_of({4, 8})), 2});
       g.output("y", x);
       compile(g).write(x, Tensor(f32, {9, 2}));
     },
     {"write(\"x\")", "f32[open to one of 4, 8, 2]", "f32[9, 2]", "axis 0", "larger size"}},
    {"WriteOfASize",
     [] {
       Graph g;
       Value x = g.input("x", f32, {open(4, next_power_of_two())});
       Value size = true_size(x, 0);
       g.output("y", size);
       compile(g).write(size, std::vector<std::int32_t>{3});
     },
     {"true_size()", "write \"x\""}},
    {"MemoryOfASize",
     [] {
       Graph g;
       Value size = true_size(g.input("x", f32, {open(4, next_power_of_two())}), 0);
       g.output("y", size);
       alignas(256) std::byte memory[256];
       compile(g).bind_memory(size, memory, sizeof memory);
     },
     {"bind_memory", "true_size()"}},
    {"SizeOfAFeed",
     [] {
       Graph g;
       true_size(g.feed("x", f32, {open(4)}), 0);
     },
     {"true_size", "a feed", "dim()"}},
    {"MoreThanASizeCanSay",
     [] {
       Graph g;
       Value x = g.input("x", f32, {open(4, multiples_of(1 << 20)), 0});
       g.output("y", true_size(x, 0));
       compile(g).write(x, Tensor(f32, {std::int64_t{1} << 31, 0}));
     },
     {"write(\"x\")", "2147483648", "i32"}},
    {"MaskOfNumbers",
     [] {
       Graph g;
       Value x = g.input("x", f32, {4});
       masked_mean(x, x);
     },
     {"masked_mean", "mask is f32[4]", "booleans"}},
    {"NotWritten",
     [] {
       Graph g;
       g.output("y", true_size(g.input("x", f32, {open(4, next_power_of_two())}), 0));
       compile(g).run();
     },
     {"nothing was written", "\"x: size of axis 0\""}},
};

class BucketRefusal : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(All, BucketRefusal, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(BucketRefusal, SaysWhy) {
  const std::string message = message_of(GetParam().act);
  for (const char* word : GetParam().words) EXPECT_TRUE(contains(message, word)) << message;
}

// --- programs

class Buckets : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Buckets, ::testing::ValuesIn(testing::devices()), device_name);

std::vector<float> numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 1000) / 500 - 1;
  return values;
}

TEST_P(Buckets, SizesOfOneBucketShareAPlanAndACapture) {
  for (Mode mode : kModes) {
    Graph g;
    Value x = g.input("x", f32, {open(5, next_power_of_two())});
    g.output("doubled", x * 2.0);
    g.output("size", true_size(x, 0));
    g.output("mask", valid_mask(x, 0));
    Program p = compile(g, {.tuning = {.capture_after = 1}});
    for (int size : {5, 8, 6, 7, 5, 8}) {
      p.write(x, numbers(size, 1));
      for (int i = 0; i < 2; ++i) p.run(mode);
      EXPECT_EQ(p.output("size").at(0), size);
      const Tensor doubled = p.output("doubled"), mask = p.output("mask");
      ASSERT_EQ(doubled.type().shape, Shape({8}));
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(mask.at(i), i < size) << size;
        EXPECT_EQ(doubled.at(i), i < size ? 2.0 * numbers(size, 1)[static_cast<std::size_t>(i)] : 0.0) << size;
      }
    }
    EXPECT_EQ(p.counters().cached_shapes, 1u);
    EXPECT_EQ(p.counters().captures, mode == sink ? 1u : 0u);
  }
}

TEST_P(Buckets, SeveralAxesArePadded) {
  Graph g;
  Value x = g.input("x", i32, {open(2, multiples_of(3)), 2, open(3, one_of({4, 6})), 2});
  g.output("x", x);
  g.output("rows", true_size(x, 0));
  g.output("columns", true_size(x, -2));
  Program p = compile(g);
  for (auto [rows, columns] : {std::pair{2, 3}, {3, 4}, {1, 1}, {4, 5}, {2, 3}, {0, 2}}) {
    Tensor given(i32, {rows, 2, columns, 2});
    for (std::int64_t i = 0; i < given.type().shape.size(); ++i)
      given.as<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i + 1);
    p.write(x, given);
    p.run();
    const Tensor padded = p.output("x");
    const Shape& shape = padded.type().shape;
    ASSERT_EQ(shape, Shape({rows <= 3 ? 3 : 6, 2, columns <= 4 ? 4 : 6, 2}));
    std::int64_t at = 0, next = 1;
    for (int a = 0; a < shape[0]; ++a)
      for (int b = 0; b < 2; ++b)
        for (int c = 0; c < shape[2]; ++c)
          for (int d = 0; d < 2; ++d)
            ASSERT_EQ(padded.at(at++), a < rows && c < columns ? next++ : 0) << rows << " x " << columns;
    EXPECT_EQ(p.output("rows").at(0), rows);
    EXPECT_EQ(p.output("columns").at(0), columns);
  }
}

TEST_P(Buckets, WithoutABucketTheTrueSizeIsTheSize) {
  Graph g;
  Value x = g.input("x", f32, {open(4), 3});
  g.output("rows", true_size(x, 0));
  g.output("columns", true_size(x, 1));
  Program p = compile(g);
  p.write(x, numbers(15, 1));
  p.run();
  EXPECT_EQ(p.output("rows").at(0), 5.0);
  EXPECT_EQ(p.output("columns").at(0), 3.0);
}

TEST(BucketsOfAnEager, DoNotExist) {
  Eager eager;
  Value x = eager.tensor({1, 2, 3});
  EXPECT_EQ(Eager::read(true_size(x, 0)).at(0), 3.0);
  EXPECT_EQ(Eager::read(valid_mask(x, 0)).at(2), 1.0);
}

TEST_P(Buckets, ASizeIsAskedForAnyNumberOfTimes) {
  Graph g;
  Value x = g.input("x", f32, {open(4, next_power_of_two())});
  EXPECT_EQ(true_size(x, 0).node(), true_size(x, -1).node());
}

TEST_P(Buckets, MaskedMeanLeavesOutWhatTheMaskDoes) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Graph g;
  Value x = g.input("x", f32, {3, 2}), mask = g.input("mask", boolean, {3, 1});
  Value mean = masked_mean(x * 1.0, mask);
  g.output("mean", mean);
  g.output("gradient", grad(mean, {x})[0]);
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, nan, inf, 3, 6});
  Tensor rows(boolean, {3, 1});
  rows.as<bool>()[0] = rows.as<bool>()[2] = true;
  p.write(mask, rows);
  p.run();
  EXPECT_EQ(p.output("mean").at(0), 3.0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(p.output("gradient").at(i), i / 2 == 1 ? 0.0 : 0.25) << i;
  p.write(mask, Tensor(boolean, {3, 1}));
  p.run();
  EXPECT_EQ(p.output("mean").at(0), 0.0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(p.output("gradient").at(i), 0.0) << i;
}

// Two layers, trained on batches of any size, with or without a bucket.
struct Model {
  Graph g;
  Value x, targets;
  Variable w1{"w1", Tensor::kaiming({6, 8}, 1)}, w2{"w2", Tensor::kaiming({8, 4}, 2)};

  explicit Model(const Dim& rows) : x(g.input("x", f32, {rows, 6})), targets(g.input("targets", i32, {rows})) {
    Value hidden = tanh(matmul(x, g.value(w1)));
    Value losses = cross_entropy(matmul(hidden, g.value(w2)), targets, {.per_row = true});
    Value loss = masked_mean(losses, valid_mask(x, 0));
    g.record("loss", loss);
    adamw(loss, {w1, w2}, {.lr = 1e-2});
  }
  std::vector<double> train(Program& p, Mode mode) {
    std::mt19937 random(5);
    for (int step = 0; step < 30; ++step) {
      const int rows = std::uniform_int_distribution(1, 20)(random);
      std::vector<std::int32_t> classes;
      for (int i = 0; i < rows; ++i) classes.push_back(static_cast<std::int32_t>(random() % 4));
      p.write(x, numbers(6 * rows, static_cast<unsigned>(random())));
      p.write(targets, classes);
      p.run(mode);
    }
    std::vector<double> results = p.records<double>("loss");
    for (const Variable& variable : {w1, w2}) {
      const Tensor value = variable.read();
      for (std::int64_t i = 0; i < value.type().shape.size(); ++i) results.push_back(value.at(i));
    }
    return results;
  }
};

TEST_P(Buckets, PaddingDoesNotShowInTraining) {
  Model plain(open(5));
  Program unpadded = compile(plain.g);
  const std::vector<double> wanted = plain.train(unpadded, interactive_serial);
  for (const Bucket& bucket : {next_power_of_two(), multiples_of(7), one_of({3, 20})}) {
    std::vector<double> first;
    for (Mode mode : kModes) {
      SCOPED_TRACE(to_string(bucket) + ", " + std::string(to_string(mode)));
      Model model(open(5, bucket));
      Program p = compile(model.g);
      const std::vector<double> results = model.train(p, mode);
      EXPECT_LE(p.counters().cached_shapes, 5u);
      ASSERT_EQ(results.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(results[i], wanted[i], 1e-4) << i;
      if (first.empty()) first = results;
      EXPECT_EQ(results, first) << "modes differ";
    }
  }
}

}  // namespace
}  // namespace graphsink::bucket_test
