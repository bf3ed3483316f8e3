// Checks that calls accept shapes, data, numbers, state and bodies in all their forms.
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "program_fixture.h"

namespace graphsink::argument_test {
namespace {

using testing::OnDevice;

TEST(Arguments, InputsTakeAShapeOrDimensionsThatWereCounted) {
  Graph g;
  EXPECT_EQ(g.input("shape", f32, Shape{2, 3}).shape(), (Shape{2, 3}));
  EXPECT_EQ(g.feed("scalar", f32, {}).shape(), Shape{});
  std::vector<Dim> dims{open(4)};
  dims.emplace_back(3);
  Value x = g.feed("vector", f32, dims);
  EXPECT_EQ(to_string(x.shape()), "[open(4), 3]");
  EXPECT_EQ(to_string(g.input("like it", f32, x.shape()).shape()), "[open(4), 3]");
}

TEST_P(OnDevice, WritesTakeWhateverLiesInARow) {
  Graph g;
  Value x = g.input("x", f32, {3});
  g.output("y", x * 2.0);
  Program p = compile(g);
  auto expect = [&](double first) {
    p.run();
    Tensor y = p.output("y");
    for (int i : {0, 1, 2}) EXPECT_EQ(y.at(i), 2 * (first + i));
  };
  p.write(x, std::array<float, 3>{1, 2, 3});
  expect(1);
  std::vector<float> values{2, 3, 4, 5};
  p.write(x, std::span<float>(values).first(3));
  expect(2);
  p.write(x, std::span<const float, 3>(values.data() + 1, 3));
  expect(3);
  const float plain[] = {4, 5, 6};
  p.write(x, plain);
  expect(4);
  EXPECT_THROW(p.write(x, std::array<double, 3>{}), Error) << "of another type";
  EXPECT_THROW(p.write(x, std::array<float, 2>{}), Error);
}

TEST_P(OnDevice, NumbersMayBeOfAnyIntegerType) {
  Graph g;
  Value x = g.constant(Tensor({1.0f})), n = g.constant(Tensor({std::int64_t{1}}));
  g.output("x", (x + std::int64_t{3}) * std::size_t{2} - 1U + short{4} + 1ULL - 1LL + false);
  g.output("n", n + (std::int64_t{1} << 60));
  g.output("least", where(equal(n, 1), std::numeric_limits<std::int64_t>::min(), n));
  EXPECT_THROW((void)(n + ((std::int64_t{1} << 53) + 1)), Error);
  EXPECT_THROW((void)(n - std::numeric_limits<std::uint64_t>::max()), Error);
  Program p = compile(g);
  p.run();
  EXPECT_EQ(p.output("x").at(0), 11);
  EXPECT_EQ(p.output("n").as<std::int64_t>()[0], (std::int64_t{1} << 60) + 1);
  EXPECT_EQ(p.output("least").as<std::int64_t>()[0], std::numeric_limits<std::int64_t>::min());
}

TEST_P(OnDevice, ControlFlowTakesAndReturnsVectors) {
  Graph g;
  Value x = g.input("x", f32, {});
  std::vector<Value> init(3, x);
  Values states = while_(
      init, [](const Values& s) { return s[0] < 10.0; },
      [](const Values& s) {
        Values next;
        for (const Value& value : s) next.push_back(value * 2.0);
        return next;
      },
      {.max_iterations = 100});
  ASSERT_EQ(states.size(), 3u);
  g.output("state", states[2]);
  Values chosen = if_(
      x < 2.0,
      [&] {
        return Values{x, x + 1.0};
      },
      [&] {
        return Values{x * 10.0, x * 100.0};
      });
  ASSERT_EQ(chosen.size(), 2u);
  g.output("chosen", chosen[1]);
  Program p = compile(g);
  p.write(x, std::array{1.0f});
  p.run();
  EXPECT_EQ(p.output("state").at(0), 16);
  EXPECT_EQ(p.output("chosen").at(0), 2);
  p.write(x, std::array{3.0f});
  p.run();
  EXPECT_EQ(p.output("state").at(0), 12);
  EXPECT_EQ(p.output("chosen").at(0), 300);
}

TEST(Arguments, ALoopOverAVectorKnowsItsLine) {
  Graph g;
  Value x = g.input("x", f32, {});
  int line = 0;
  try {
    line = __LINE__ + 1;
    (void)while_(
        Values{x, x}, [](const Values& s) { return s[0] < 1.0; }, [](const Values& s) { return s[0]; });
    FAIL() << "the body returned too few Values";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.where().line()), line) << e.what();
  }
}

TEST_P(OnDevice, AGraphAssignsNumbersAndVariables) {
  Graph g;
  Variable count("count", Tensor({1.0f, 2.0f})), copy("copy", Tensor({0.0f, 0.0f}));
  g.assign(copy, count);
  g.assign(count, 7);
  Program p = compile(g);
  p.run();
  EXPECT_EQ(copy.read().at(1), 2);
  EXPECT_EQ(count.read().at(0), 7);
  EXPECT_EQ(count.read().at(1), 7);
  Variable whole("whole", Tensor({1}));
  EXPECT_THROW(g.assign(whole, 0.5), Error) << "i32 cannot hold it";
  EXPECT_THROW(g.assign(whole, count), Error) << "of another type";
}

void refuse(const CpuArgs& a) {
  throw Error("lookup", Where(), "row " + std::to_string(static_cast<int>(a.in<float>(0)[0])) + " of 3",
              "use a row below 3");
}
const OpDef refusing_op{.name = "refusing", .infer = testing::infer_like_first, .bodies = {refuse}};

TEST_P(OnDevice, AnErrorOfABodyKeepsItsRemedy) {
  Graph g;
  Value x = g.input("x", f32, {1});
  g.output("y", emit(refusing_op, {x})[0]);
  Program p = compile(g);
  p.write(x, std::array{5.0f});
  for (Mode mode : testing::kModes) {
    p.run(mode);
    try {
      p.sync();
      FAIL() << "the body threw";
    } catch (const Error& e) {
      std::string text = e.what();
      EXPECT_NE(text.find("refusing: its body threw: lookup: row 5 of 3, in step 0"), std::string::npos) << text;
      EXPECT_EQ(e.remedy(), "use a row below 3; the step committed nothing");
      EXPECT_EQ(text.find("remedy"), text.rfind("remedy")) << text;
    }
  }
}

}  // namespace
}  // namespace graphsink::argument_test
