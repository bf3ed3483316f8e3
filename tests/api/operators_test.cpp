// What one can write instead of calls: operators, indices, one axis instead of a list.
#include <cmath>

#include "messages.h"
#include "program_fixture.h"

namespace graphsink::operators_test {
namespace {

using testing::contains;
using testing::device_name;
using testing::message_of;
using testing::OnDevice;

class Operators : public OnDevice {
 protected:
  // The elements of a Value after a step of its graph.
  std::vector<double> elements(Graph& g, const Value& value) {
    g.output("y", value);
    Program program = compile(g);
    program.run();
    const Tensor y = program.output("y");
    std::vector<double> all;
    for (std::int64_t i = 0; i < y.shape().size(); ++i) all.push_back(y.at(i));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Operators, ::testing::ValuesIn(testing::devices()), device_name);

const Tensor kX({1.0f, -2.0f, 3.0f});

Value six(Graph& g) { return reshape(g.value(Variable("x", Tensor({0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f}))), {3, 2}); }

TEST_P(Operators, ComputeElements) {
  using List = std::vector<double>;
  struct Row {
    Value (*of)(const Value& x, const Variable& v);
    List expected;
  };
  const Row rows[] = {
      {[](const Value& x, const Variable& v) { return cast(x == v, f32); }, {1, 1, 1}},
      {[](const Value& x, const Variable&) { return cast(x == 3.0, f32); }, {0, 0, 1}},
      {[](const Value& x, const Variable&) { return cast(x != 3.0, f32); }, {1, 1, 0}},
      {[](const Value& x, const Variable&) { return cast(!(x < 0.0), f32); }, {1, 0, 1}},
      {[](const Value& x, const Variable&) { return cast(x > 0.0 && x < 2.0, f32); }, {1, 0, 0}},
      {[](const Value& x, const Variable&) { return cast(x < 0.0 || 2.0 < x, f32); }, {0, 1, 1}},
      {[](const Value& x, const Variable& v) {
         Value y = x;
         y += v;
         y -= 1.0;
         y *= x;
         y /= 2.0;
         return y;
       },
       {0.5, 5, 7.5}},
  };
  for (const Row& row : rows) {
    Graph g;
    Variable v("v", kX);
    EXPECT_EQ(elements(g, row.of(g.value(v), v)), row.expected) << "row " << &row - rows;
  }
}

// A handle is changed, not what it referred to.
TEST_P(Operators, AssignmentLeavesTheOldValue) {
  Graph g;
  Value x = g.value(Variable("x", kX)), y = x;
  y += 1.0;
  EXPECT_EQ(elements(g, y - x), (std::vector<double>{1, 1, 1}));
}

TEST_P(Operators, Index) {
  using List = std::vector<double>;
  struct Row {
    Value (*of)(const Value& x);
    Shape shape;
    List expected;
  };
  const Row rows[] = {
      {[](const Value& x) { return x[0]; }, {2}, {0, 1}},
      {[](const Value& x) { return x[-1]; }, {2}, {4, 5}},
      {[](const Value& x) { return x[-3]; }, {2}, {0, 1}},
      {[](const Value& x) { return x[1][1]; }, {}, {3}},
      {[](const Value& x) {
         return x[{1, 3}];
       },
       {2, 2},
       {2, 3, 4, 5}},
      {[](const Value& x) {
         return x[{-1, to_end}];
       },
       {1, 2},
       {4, 5}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE("row " + std::to_string(&row - rows));
    Graph g;
    Value y = row.of(six(g));
    EXPECT_EQ(y.shape(), row.shape);
    EXPECT_EQ(elements(g, y), row.expected);
  }
}

TEST_P(Operators, OneAxisInsteadOfAList) {
  Graph g;
  Value x = six(g);
  const std::vector<Value> parts{sum(x, 1), mean(x, -1), max(x, {1}), min(x, std::vector<int>{1})};
  EXPECT_EQ(elements(g, stack(parts)), (std::vector<double>{1, 5, 9, 0.5, 2.5, 4.5, 1, 3, 5, 0, 2, 4}));
}

// Without using namespace graphsink: what split() returns is joined again.
TEST(OperatorsByName, ConcatIsFoundByItsOperands) {
  Graph g;
  const std::vector<Value> parts = split(g.value(Variable("x", kX)), 3, 0);
  EXPECT_EQ(concat(parts, 0).shape(), Shape{3});
  EXPECT_EQ(stack(parts).shape(), (Shape{3, 1}));
}

TEST(OperatorMessages, NameTheLine) {
  Graph g;
  Value x = g.value(Variable("x", kX)), y = g.value(Variable("y", Tensor({1.0f, 2.0f})));
  EXPECT_TRUE(contains(message_of([&] { x += y; }), "operators_test.cpp:" + std::to_string(__LINE__) + ": add"));
  EXPECT_TRUE(contains(message_of([&] { (void)(x == y); }), "operators_test.cpp:" + std::to_string(__LINE__)));
  const std::string outside = message_of([&] { (void)x[3]; });
  EXPECT_TRUE(contains(outside, "operators_test.cpp:" + std::to_string(__LINE__ - 1) + ": index: 3 of f32[3]"))
      << outside;
  EXPECT_TRUE(contains(outside, "use an index from -3 to 2")) << outside;
  EXPECT_TRUE(
      contains(message_of([&] { (void)x[std::vector<int>().size() - 1]; }), " of f32[3]; remedy: use an index"));
  Value any_size = g.input("any_size", f32, {open(3)});
  EXPECT_TRUE(contains(message_of([&] { (void)any_size[std::vector<int>().size() - 1]; }), "of an open axis"));
  EXPECT_EQ(any_size[0].shape(), Shape());
  EXPECT_EQ(any_size[-1].shape(), Shape());
  EXPECT_TRUE(contains(message_of([&] { (void)sum(x)[0]; }), "a scalar has no axis"));
  EXPECT_TRUE(contains(message_of([&] { kX.item(); }), "f32[3] has 3 elements"));
  EXPECT_EQ(Tensor({2.5f}).item(), 2.5);
}

}  // namespace
}  // namespace graphsink::operators_test
