// Sizes that no tensor can have are refused where they are given; they must never wrap around.
#include <cstdint>
#include <functional>
#include <limits>

#include "program_fixture.h"

namespace graphsink::size_test {
namespace {

using testing::OnDevice;

constexpr std::int64_t kHuge = std::int64_t{1} << 40;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

struct Row {
  const char* name;
  std::function<void(Graph& g)> act;
  std::vector<const char*> words;  // what the message must contain, besides this file's line
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Value of(Graph& g, std::initializer_list<Dim> dims) { return g.input("x", f32, dims); }

const Row kRows[] = {
    {"ShapeNegative",
     [](Graph&) {
       Shape shape{2, -3};
     },
     {"Shape", "-3"}},
    {"ShapeNegativePushed", [](Graph&) { Shape().push_back(-1); }, {"Shape", "-1"}},
    {"ShapeRank", [](Graph&) { Shape shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }, {"Shape", "8"}},
    {"ShapeDimension",
     [](Graph&) {
       (void)Shape{1, 2}[2];
     },
     {"shape", "no dimension 2 of [1, 2]"}},
    {"ShapeDimensionFromTheEnd",
     [](Graph&) {
       (void)Shape{1, 2}[-3];
     },
     {"shape", "no dimension -3"}},
    {"ShapeDimensionOpen", [](Graph& g) { (void)of(g, {open(1)}).shape().is_open(1); }, {"shape", "no dimension 1"}},
    {"ShapeElements",
     [](Graph&) {
       (void)Shape{kHuge, kHuge}.size();
     },
     {"Shape", "2^63"}},
    {"ShapeElementsBesideNone",
     [](Graph&) {
       (void)Shape{0, kHuge, kHuge}.size();
     },
     {"Shape", "2^63"}},
    {"TypeBytes",
     [](Graph&) {
       (void)TensorType{f32, {kHuge, 1 << 20}}.bytes();
     },
     {"Shape", "2^56"}},
    {"TensorNegative", [](Graph&) { Tensor tensor(f32, {-1}); }, {"-1"}},
    {"TensorBytes",
     [](Graph&) {
       Tensor tensor(f32, {kHuge, kHuge});
     },
     {"2^63"}},
// These sanitizers end the process instead of throwing bad_alloc.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {"TensorMemory",
     [](Graph&) {
       Tensor tensor(f32, {kHuge, 1024});
     },
     {"Tensor", "memory", "f32[1099511627776, 1024]"}},
#endif
    {"TensorKaiming",
     [](Graph&) {
       Tensor::kaiming({kHuge, kHuge, 0}, 1);
     },
     {"2^63"}},
    {"InputNegative",
     [](Graph& g) {
       of(g, {4, -1});
     },
     {"input", "\"x\"", "-1"}},
    {"InputNegativeExample", [](Graph& g) { of(g, {open(-4)}); }, {"input", "\"x\"", "-4"}},
    {"InputBytes",
     [](Graph& g) {
       of(g, {kHuge, kHuge});
     },
     {"input", "2^63"}},
    {"FeedBytes",
     [](Graph& g) {
       g.feed("f", f64, {kHuge, 1 << 20});
     },
     {"feed", "2^56"}},
    {"BroadcastBytes",
     [](Graph& g) {
       g.input("a", f32, {kHuge, 1}) + g.input("b", f32, {1, kHuge});
     },
     {"add", "2^63"}},
    {"ProductBytes",
     [](Graph& g) {
       matmul(g.input("a", f32, {kHuge, 1}), g.input("b", f32, {1, kHuge}));
     },
     {"matmul", "2^63"}},
    {"CastBytes",
     [](Graph& g) {
       cast(g.input("a", u8, {kHuge, 1 << 14}), f64);
     },
     {"cast", "2^56"}},
    {"Unsqueeze",
     [](Graph& g) {
       unsqueeze(of(g, {1, 1, 1, 1, 1, 1, 1, 1}), 0);
     },
     {"unsqueeze", "8"}},
    {"PadBoth", [](Graph& g) { pad(of(g, {4}), {kMost}, {kMost}); }, {"pad", "2^63"}},
    {"PadOne", [](Graph& g) { pad(of(g, {4}), {0}, {kMost}); }, {"pad", "2^63"}},
    {"SplitSizes",
     [](Graph& g) {
       constexpr std::int64_t kQuarter = std::int64_t{1} << 62;
       split(of(g, {4}), {kQuarter, kQuarter, kQuarter, kQuarter, 4}, 0);
     },
     {"split", "do not make up the axis"}},
    {"ReshapeSizes",
     [](Graph& g) {
       reshape(of(g, {0}), {kHuge, kHuge, 0});
     },
     {"reshape", "2^63"}},
    {"FlattenBesideNone",
     [](Graph& g) {
       flatten(of(g, {0, kHuge, kHuge}), 1);
     },
     {"2^63"}},
    {"ConvColumns",  // each size is possible, but the op's workspace is not
     [](Graph& g) {
       constexpr std::int64_t kSide = std::int64_t{1} << 25;
       conv2d(of(g, {1, 1, 2 * kSide, 2 * kSide}), g.input("w", f32, {1, 1, kSide, kSide}));
     },
     {"conv2d", "2^63"}},
    {"ConvPadding",
     [](Graph& g) {
       conv2d(of(g, {1, 1, 8, 8}), g.input("w", f32, {1, 1, 3, 3}), {.padding = {kMost, 0}});
     },
     {"conv2d", "2^63"}},
    {"ConvDilation",
     [](Graph& g) {
       conv2d(of(g, {1, 1, 8, 8}), g.input("w", f32, {1, 1, 3, 3}), {.dilation = {1, kMost}});
     },
     {"conv2d", "2^63"}},
    {"PoolPadding",
     [](Graph& g) {
       max_pool2d(of(g, {1, 1, 8, 8}), {kMost, 2}, {.padding = {kMost - 1, 0}});
     },
     {"max_pool2d", "2^63"}},
    {"RandomBytes",
     [](Graph& g) {
       random_uniform(g, f32, {kHuge, kHuge});
     },
     {"random", "2^63"}},
};

class Sizes : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Refused, Sizes, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Sizes, AreRefusedWhereTheyAreGiven) {
  Graph g;
  try {
    GetParam().act(g);
    FAIL() << "no error";
  } catch (const Error& e) {
    for (const char* word : GetParam().words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "no \"" << word << "\" in: " << e.what();
    EXPECT_NE(std::string(e.what()).find("size_test.cpp:"), std::string::npos) << e.what();
    EXPECT_FALSE(e.remedy().empty());
  }
}

// The error must name an op. Each value is possible, but their sum is too large and must not wrap around.
TEST(SizeTotals, AreAddedUpWithoutOverflow) {
  Graph g;
  Value x = g.input("x", f32, {std::int64_t{1} << 53});
  for (int i = 0; i < 600; ++i) g.output(std::to_string(i), x + static_cast<double>(i));
  try {
    graphsink::compile(g);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("2^63"), std::string::npos) << e.what();
  }
}

TEST(SizeTotals, OfConcatAreAddedUpWithoutOverflow) {
  Graph g;
  std::vector<Arg> parts(200, g.input("x", u8, {std::int64_t{1} << 55}));
  try {
    concat(parts, 0);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.op(), "concat") << e.what();
  }
}

TEST_P(OnDevice, ManyImagesArePlannedAtOnce) {
  Graph g;
  Value images = g.input("x", f32, {(std::int64_t{1} << 40) + 15, 1, 4, 4});  // a prime number
  g.output("y", conv2d(images, g.input("w", f32, {1, 1, 3, 3})));
  Program p = compile(g);
  EXPECT_THROW(p.bind(), Error) << "there is not so much memory";
}

// Their statistics are outputs with elements.
TEST_P(OnDevice, NormsOfLinesWithoutElementsAreSunk) {
  Graph g;
  const Value x = g.input("x", f32, {3, 0}), gain = g.constant(Tensor(f32, {0})), bias = g.constant(Tensor(f32, {0}));
  g.output("layer", layer_norm(x, gain, bias));
  g.output("rms", rms_norm(x, gain));
  Program p = compile(g);
  p.write(x, Tensor(f32, {3, 0}));
  for (int i = 0; i < 3; ++i) p.run(sink);
  p.sync();
  EXPECT_EQ(p.counters().fallbacks, 0u);
  EXPECT_EQ(p.output("layer").shape(), Shape({3, 0}));
}

TEST(SizeTotals, StepsOfSlicesReachFromEndToEnd) {
  Eager eager;
  Value x = eager.tensor({1, 2, 3});
  EXPECT_EQ(Eager::read(slice(x, {-1}, {kLeast}, {kLeast})).at(0), 3.0);
  EXPECT_EQ(Eager::read(slice(x, {0}, {to_end}, {kMost})).at(0), 1.0);
  EXPECT_EQ(Eager::read(slice(x, {to_end}, {to_end}, {-1})).at(2), 1.0);
  EXPECT_EQ(Eager::read(slice(x, {1}, {to_end})).shape(), Shape{2});
}

}  // namespace
}  // namespace graphsink::size_test
