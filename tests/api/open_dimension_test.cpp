// Open dimensions: a graph is built once and gives correct results for every size.
#include <functional>

#include "program_fixture.h"

namespace graphsink::open_dimension_test {
namespace {

using testing::kModes;
using testing::OnDevice;

Tensor counted(const Shape& shape) {
  Tensor x(f32, shape);
  float next = 0;
  for (float& element : x.as<float>()) element = next++;
  return x;
}

// Has one element only because of its example.
Value open_one(const Value& x) { return Graph(x.graph()).input("one", f32, {open(1)}); }

// --- what is refused when the graph is built

struct Row {
  const char* name;
  std::function<void(const Value& x)> act;  // x is f32[open(4), open(6), 8]
  std::vector<const char*> words;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const Row kRows[] = {
    {"SizeRead", [](const Value& x) { sum(x) / static_cast<double>(x.shape()[0]); }, {"shape", "open", "dim("}},
    {"SizeReadFromTheEnd", [](const Value& x) { x.shape()[-2]; }, {"shape", "open", "dim("}},
    {"SizeOfAResult",
     [](const Value& x) {
       reshape(relu(x), {relu(x).shape()[0], -1});
     },
     {"shape", "open", "keep(0)"}},
    {"SizeOfAProductOfOpenDimensions", [](const Value& x) { flatten(x, 0).shape()[0]; }, {"shape", "open"}},
    {"SizeOfASlice", [](const Value& x) { slice(x, {0}, {2}).shape()[0]; }, {"shape", "open"}},
    {"SliceBySize", [](const Value& x) { slice(x, {0}, {x.shape()[0] - 1}); }, {"shape", "open", "slice()"}},
    {"NumberOfElements", [](const Value& x) { x.shape().size(); }, {"shape", "open"}},
    {"Dimensions", [](const Value& x) { x.shape().dims(); }, {"shape", "open"}},
    {"Bytes", [](const Value& x) { x.type().bytes(); }, {"shape", "open"}},
    {"TensorOfItsType", [](const Value& x) { Tensor like(x.type()); }, {"open"}},
    {"TensorOfItsShape", [](const Value& x) { Tensor::full(f32, x.shape(), 1.0); }, {"open"}},
    {"RandomOfItsShape", [](const Value& x) { random_uniform(Graph(x.graph()), f32, x.shape()); }, {"open", "like"}},
    {"ReshapeToItsShape", [](const Value& x) { reshape(x, x.shape()); }, {"open", "_like"}},
    {"Record", [](const Value& x) { Graph(x.graph()).record("x", open_one(x)); }, {"record", "open(1)", "mean"}},
    {"Assign",
     [](const Value& x) {
       assign(Variable("v", Tensor(f32, {4, 6, 8})), x);
     },
     {"assign", "open"}},
    {"Loss",
     [](const Value& x) {
       grad(sum(x, {1, 2}), {x});
     },
     {"grad", "open", "mean"}},
    {"Predicate",
     [](const Value& x) {
       if_(
           less(sum(x, {1, 2}), 0.0), [&] { return x; }, [&] { return x; });
     },
     {"if_", "open"}},
    {"StateThatGrows",
     [](const Value& x) {
       while_(
           {x}, [](const Value& s) { return less(sum(s), 1.0); },
           [](const Value& s) {
             return concat({s, s}, 0);
           });
     },
     {"while_", "open"}},
};

class OpenDimension : public ::testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Refused, OpenDimension, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(OpenDimension, IsNotTakenForItsExample) {
  Graph g;
  Value x = g.input("x", f32, {open(4), open(6), 8});
  try {
    GetParam().act(x);
    FAIL() << "no error";
  } catch (const Error& e) {
    for (const char* word : GetParam().words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "no \"" << word << "\" in: " << e.what();
    EXPECT_FALSE(e.remedy().empty());
  }
}

TEST(OpenDimensions, AreMarkedInTheShapesOfResults) {
  Graph g;
  Value x = g.input("x", f32, {open(4), open(6), 8});
  EXPECT_EQ(to_string(x.type()), "f32[open(4), open(6), 8]");
  EXPECT_TRUE(x.shape().is_open(0));
  EXPECT_TRUE(x.shape().is_open(-2));
  EXPECT_FALSE(x.shape().is_open(2));
  EXPECT_EQ(x.shape()[-1], 8);
  EXPECT_EQ(x.shape().rank(), 3);
  auto shape_of = [](const Value& value) { return to_string(value.shape()); };
  EXPECT_EQ(shape_of(relu(x)), "[open(4), open(6), 8]");
  EXPECT_EQ(shape_of(sum(x, {1})), "[open(4), 8]");
  EXPECT_EQ(shape_of(mean(x)), "[]");
  EXPECT_EQ(shape_of(matmul(x, g.constant(Tensor(f32, {8, 3})))), "[open(4), open(6), 3]");
  EXPECT_EQ(shape_of(matmul(x, x, {.transpose_b = true})), "[open(4), open(6), open(6)]");
  EXPECT_EQ(shape_of(concat({x, x, g.constant(Tensor(f32, {4, 1, 8}))}, 1)), "[4, open(13), 8]");
  EXPECT_EQ(shape_of(slice(x, {0, 1}, {to_end, to_end})), "[open(4), open(5), 8]");
  EXPECT_EQ(shape_of(slice(x, {0, -1}, {1, to_end})), "[1, 1, 8]");
  EXPECT_EQ(shape_of(flatten(x, 1)), "[open(4), open(48)]");
  EXPECT_EQ(shape_of(x + g.constant(Tensor(f32, {6, 1}))), "[open(4), 6, 8]") << "6 or 1, and then broadcast";
  EXPECT_EQ(shape_of(top_k(x, 3).values), "[open(4), open(6), 3]");
  EXPECT_EQ(shape_of(grad(mean(x * x), {x})[0]), "[open(4), open(6), 8]");
  EXPECT_EQ(shape_of(unsqueeze(argmax(x, 1), 0)), "[1, open(4), 8]");
  // The second dimension can only be 6. The first stays open.
  Value flat = flatten(conv2d(unsqueeze(x, 1), g.constant(Tensor(f32, {2, 1, 3, 3}))), 1);
  EXPECT_EQ(shape_of(matmul(flat, g.constant(Tensor(f32, {48, 10})))), "[open(4), 10]");
}

// dim() returns the correct size for each shape, in every mode, and its result can be used in computations.
TEST_P(OnDevice, TheSizeOfAnOpenDimensionIsAValue) {
  Graph g;
  Value x = g.input("x", f32, {open(4), open(6), 8});
  g.output("sizes", stack({dim(x, 0), dim(x, 1), dim(x, -1), dim(relu(x), -2)}));
  g.output("mean", sum(x) / cast(dim(x, 0) * dim(x, 1) * 8, f32));
  g.output("branch", if_(
                         less(dim(x, 0), 5), [&] { return dim(x, 0); }, [&] { return dim(x, 0) * 100; }));
  for (Mode mode : kModes) {
    Program p = compile(g);
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t rows : {4, 9, 1}) {
        std::int64_t columns = rows + 1;
        p.write(x, Tensor::full(f32, {rows, columns, 8}, 3.0));
        p.run(mode);
        Tensor sizes = p.output("sizes");
        EXPECT_EQ(sizes.as<std::int32_t>()[0], rows);
        EXPECT_EQ(sizes.as<std::int32_t>()[1], columns);
        EXPECT_EQ(sizes.as<std::int32_t>()[2], 8);
        EXPECT_EQ(sizes.as<std::int32_t>()[3], columns);
        EXPECT_EQ(p.output("mean").at(0), 3.0);
        EXPECT_EQ(p.output("branch").at(0), static_cast<double>(rows < 5 ? rows : 100 * rows));
      }
    }
    if (mode == sink) {
      EXPECT_EQ(p.counters().fallbacks, 0u);
    }
  }
}

TEST_P(OnDevice, TheSizeOfAnOpenDimensionIsAValueInManyStepsOfOneLaunch) {
  Graph g;
  Value x = g.feed("x", f32, {open(4), 2});
  Variable rows("rows", Tensor(i32, {}));
  assign(rows, g.value(rows) + dim(x, 0));
  Program p = compile(g);
  double wanted = 0;
  for (std::int64_t size : {4, 7, 4, 3}) {
    p.write(x, Tensor(f32, {size, 2}));
    p.run(sink, {.steps = 10});
    wanted += 10.0 * static_cast<double>(size);
    EXPECT_EQ(rows.read().at(0), wanted);
  }
}

TEST(OpenDimensions, AnEagerKnowsAllSizes) {
  Eager eager;
  EXPECT_EQ(Eager::read(dim(eager.tensor({1, 2, 3}), 0)).at(0), 3.0);
}

// [B, T, D] -> heads [B, H, T, D / H] -> [B, T, D] with B and T open, including the gradient.
TEST_P(OnDevice, HeadsOfAttentionKeepOpenDimensions) {
  Graph g;
  Value x = g.input("x", f32, {open(2), open(3), 8});
  Value heads = permute(reshape(x, {keep(0), keep(1), 2, x.shape()[2] / 2}), {0, 2, 1, 3});
  Value same = reshape(permute(heads, {0, 2, 1, 3}), {keep(0), keep(1), -1});
  EXPECT_EQ(to_string(heads.shape()), "[open(2), 2, open(3), 4]");
  EXPECT_EQ(to_string(same.shape()), "[open(2), open(3), 8]");
  g.output("heads", heads);
  g.output("same", same);
  g.output("shorter", slice(same, {0, 1}, {to_end, to_end}));
  g.output("reversed", slice(same, {0, to_end}, {to_end, to_end}, {1, -1}));
  g.output("rows", reshape(same, {-1, 8}));
  g.output("gradient", grad(sum(attention(heads, heads, heads) * 0.0 + heads * heads), {x})[0]);
  for (Mode mode : kModes) {
    Program p = compile(g);
    for (auto [batch, time] : {std::pair<std::int64_t, std::int64_t>{2, 3}, {5, 1}, {1, 7}, {2, 3}, {0, 4}, {3, 0}}) {
      SCOPED_TRACE(to_string(Shape{batch, time}));
      Tensor data = counted({batch, time, 8});
      p.write(x, data);
      p.run(mode);
      EXPECT_EQ(p.output("heads").shape(), (Shape{batch, 2, time, 4}));
      Tensor back = p.output("same"), reversed = p.output("reversed"), gradient = p.output("gradient");
      EXPECT_EQ(back.shape(), data.shape());
      EXPECT_EQ(p.output("rows").shape(), (Shape{batch * time, 8}));
      EXPECT_EQ(p.output("shorter").shape(), (Shape{batch, std::max<std::int64_t>(time - 1, 0), 8}));
      EXPECT_EQ(reversed.shape(), data.shape());
      for (std::int64_t i = 0; i < data.shape().size(); ++i) {
        EXPECT_EQ(back.at(i), data.at(i));
        EXPECT_EQ(gradient.at(i), 2 * data.at(i));
      }
      if (batch * time > 0) {
        EXPECT_EQ(reversed.at(0), data.at((time - 1) * 8));
      }
    }
  }
}

// Some sizes do not change in any trial while the graph is built. They are checked when the program gets other shapes.
TEST(OpenDimensions, ASizeThatWasReadIsNeverAnother) {
  Graph g;
  Value x = g.input("x", f32, {open(8)});
  Value middle = slice(slice(x, {1}, {to_end}), {-3}, {4});  // none of 8 elements, three of 5
  EXPECT_FALSE(middle.shape().is_open(0));
  g.output("middle", middle);
  Program p = graphsink::compile(g);
  p.write(x, Tensor(f32, {9}));
  p.run();
  EXPECT_EQ(p.output("middle").shape(), Shape{0});
  p.write(x, Tensor(f32, {5}));
  try {
    p.run();
    FAIL() << "no error";
  } catch (const Error& e) {
    for (const char* word : {"slice", "f32[3]", "f32[0]", "open_dimension_test.cpp"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

// The graph is built with equal examples and run with sizes that broadcast. Each gradient has the shape of its operand.
TEST_P(OnDevice, GradientsOfOperandsThatTurnOutToBroadcast) {
  Graph g;
  Value x = g.input("x", f32, {open(4)}), y = g.input("y", f32, {open(4)});
  std::vector<Value> gradients = grad(sum(x * y), {x, y});
  g.output("gx", gradients[0]);
  g.output("gy", gradients[1]);
  for (Mode mode : kModes) {
    Program p = compile(g);
    for (std::int64_t size : {4, 1, 7, 1}) {
      p.write(x, Tensor::full(f32, {size}, 2.0));
      p.write(y, counted({size == 1 ? 5 : size}));
      p.run(mode);
      EXPECT_EQ(p.output("gx").shape(), Shape{size});
      EXPECT_EQ(p.output("gx").at(size - 1), size == 1 ? 10.0 : static_cast<double>(size - 1));
      EXPECT_EQ(p.output("gy").at(0), 2.0);
    }
  }
}

}  // namespace
}  // namespace graphsink::open_dimension_test
