// What products, images and ops that move data promise beyond their values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "test_ops.h"

namespace graphsink::data_ops_test {
namespace {

class DataOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, DataOps, ::testing::ValuesIn(testing::devices()), device_name);

// The sum may take the place of its base, but not while the updates are still to be read there.
TEST_P(DataOps, ScatterAddOfAValueToItself) {
  Graph g;
  Value x = g.input("x", f32, {3}), at = g.input("at", i32, {3});
  Value y = x * 2.0;
  g.output("sum", scatter_add(y, at, y));
  Program p = compile(g);
  p.write(x, std::vector<float>{1, 2, 3});
  p.write(at, std::vector<std::int32_t>{1, 0, 0});
  p.run();
  Tensor sum = p.output("sum");
  EXPECT_EQ(sum.at(0), 2 + 4 + 6);
  EXPECT_EQ(sum.at(1), 4 + 2);
  EXPECT_EQ(sum.at(2), 6);
}

Tensor numbers(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  Tensor tensor(f64, shape);
  for (double& x : tensor.as<double>()) x = static_cast<double>(random() % 4001) / 2000 - 1;
  return tensor;
}

Value of(Graph& g, DType dtype, const Shape& shape) { return g.constant(Tensor(dtype, shape)); }

// Several rows that follow one another are copied together, short ones in pieces that overlap. In a group of
// element-wise ops a block of the result may begin and end within a row.
TEST_P(DataOps, SlicesAndPadsOfRowsOfEveryLength) {
  std::vector<std::int64_t> lengths(140);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {511, 512, 513, 1000, 1501});
  for (DType dtype : {f16, f32, f64}) {
    for (std::int64_t length : lengths) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(length));
      const Shape shape{4, 5, length + 3}, part{2, 4, length};
      Tensor data(f64, shape);
      for (std::size_t i = 0; i < data.as<double>().size(); ++i) data.as<double>()[i] = static_cast<double>(i % 251);
      Graph g;
      Value x = g.input("x", dtype, shape);
      Value cut = slice(x, {1, 1, 2}, {3, 5, length + 2});
      Value whole = pad(cut, {1, 1, 2}, {1, 0, 1}, 3);
      g.output("cut", cut + cut);
      g.output("whole", whole + x);
      Program p = compile(g);
      p.write(x, data.to(dtype));
      p.run();
      Tensor halves = p.output("cut").to(f64), sums = p.output("whole").to(f64);
      std::size_t wrong = 0, at = 0, in_part = 0;
      for (std::int64_t i = 0; i < shape[0]; ++i) {
        for (std::int64_t j = 0; j < shape[1]; ++j) {
          for (std::int64_t k = 0; k < shape[2]; ++k, ++at) {
            const double value = data.as<double>()[at];
            const bool is_inside = i >= 1 && i < 3 && j >= 1 && k >= 2 && k < length + 2;
            wrong += sums.as<double>()[at] != value + (is_inside ? value : 3);
            if (is_inside) wrong += halves.as<double>()[in_part++] != 2 * value;
          }
        }
      }
      EXPECT_EQ(in_part, static_cast<std::size_t>(part.size()));
      EXPECT_EQ(wrong, 0u);
    }
  }
}

TEST_P(DataOps, AnIndexOutsideTheAxisFailsTheStep) {
  for (std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    for (bool scatters : {false, true}) {
      SCOPED_TRACE(std::string(scatters ? "scatter_add " : "gather ") + std::to_string(bad));
      Graph g;
      Value indices = g.input("i", i32, {2});
      Value ones = g.constant(Tensor::full(f32, {2, 3}, 1.0));
      Value y = scatters ? scatter_add(ones, indices, g.constant(Tensor::full(f32, {2, 2}, 2.0)), 1)
                         : gather(ones, indices, 1);
      Variable kept("kept", Tensor::full(f32, {}, 1.0));
      assign(kept, sum(y));
      g.output("y", y);
      Program p = compile(g);
      p.write(indices, std::vector<std::int32_t>{1, bad});
      p.run(interactive);
      try {
        p.sync();
        ADD_FAILURE() << "the step did not fail";
      } catch (const Error& e) {
        EXPECT_EQ(e.op(), scatters ? "scatter_add" : "gather") << e.what();
      }
      EXPECT_EQ(kept.read().at(0), 1.0);
      EXPECT_EQ(p.steps(), 0);
      EXPECT_THROW((void)p.output("y"), Error);  // of the failed step
      p.write(indices, std::vector<std::int32_t>{1, 1});
      p.run(interactive);
      EXPECT_EQ(kept.read().at(0), scatters ? 14.0 : 4.0);
    }
  }
}

TEST_P(DataOps, AnAxisOfNothingHasNoIndices) {
  for (bool scatters : {false, true}) {
    Graph g;
    Value nothing = of(g, f32, {0, 2}), indices = of(g, i32, {3});
    g.output("y", scatters ? scatter_add(nothing, indices, of(g, f32, {3, 2})) : gather(nothing, indices));
    Program p = compile(g);
    p.run(interactive);
    EXPECT_THROW(p.sync(), Error);
  }
}

// f32 sums where any other order gives another result; the kernels sort more indices than a block can.
TEST_P(DataOps, EqualIndicesAddUpInTheirOrder) {
  constexpr std::int64_t kWidth = 150;
  for (std::int64_t count : {100, 5000}) {
    Tensor updates = Tensor::uniform({count, kWidth}, 1, -1.0f, 1.0f);
    for (std::size_t i = 0; i < updates.as<float>().size(); ++i)
      if (i / kWidth % 3 == 0) updates.as<float>()[i] *= 1e6f;
    std::mt19937 random(1);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
    for (std::int32_t& row : rows) row = static_cast<std::int32_t>(random() % 3);
    Graph g;
    g.output("y",
             scatter_add(g.constant(Tensor(f32, {3, kWidth})), g.constant(Tensor({count}, rows)), g.constant(updates)));
    Program p = compile(g);
    p.run(interactive);
    Tensor y = p.output("y");
    std::vector<float> wanted(3 * kWidth);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t c = 0; c < kWidth; ++c)
        wanted[static_cast<std::size_t>(rows[i]) * kWidth + c] += updates.as<float>()[i * kWidth + c];
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(y.as<float>()[i], wanted[i]) << i;
  }
}

// More pieces than one launch takes.
TEST_P(DataOps, ManyPieces) {
  constexpr std::int64_t kPieces = 300;
  Graph g;
  Value x = g.constant(numbers({7, kPieces * (kPieces + 1) / 2}, 1));
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 1; i <= kPieces; ++i) sizes.push_back(i);
  std::vector<Value> parts = split(x, sizes, 1);
  g.output("last", parts.back());
  g.output("all", concat({parts.begin(), parts.end()}, 1));
  g.output("x", x);
  Program p = compile(g);
  p.run(interactive);
  Tensor wanted = p.output("x"), all = p.output("all"), last = p.output("last");
  EXPECT_TRUE(std::equal(all.data(), all.data() + all.bytes(), wanted.data()));
  EXPECT_EQ(last.at(kPieces - 1), wanted.at(wanted.shape()[1] - 1));
}

// One product, whatever the batch, where one side is a plain matrix; the gradients as well.
TEST_P(DataOps, AProductWithAMatrixIsOneProduct) {
  auto kernels = [&](const Shape& a, const Shape& b) {
    Graph g;
    Variable x("x", Tensor(f32, a)), w("w", Tensor(f32, b));
    Value y = matmul(g.value(x), w);
    std::vector<Value> gradients = grad(sum(y), {x, w});
    for (const Value& value : {y, gradients[0], gradients[1]}) g.output("o" + std::to_string(value.node()), value);
    Program p = compile(g);
    p.run(interactive);
    p.sync();
    return p.counters().kernels;
  };
  EXPECT_EQ(kernels({6, 7, 3}, {3, 4}), kernels({7, 3}, {3, 4}));
  EXPECT_EQ(kernels({6, 7, 3}, {6, 3, 4}), kernels({7, 3}, {3, 4}));
  EXPECT_EQ(kernels({2, 3, 7, 3}, {3, 4}), kernels({7, 3}, {3, 4}));
}

// The columns of all images do not fit into the workspace: one image after the other, at addresses of any alignment.
TEST_P(DataOps, ConvolutionsOfLargeImages) {
  constexpr std::int64_t kHeight = 1024, kWidth = 1030;
  Tensor images(f64, {3, 1, kHeight, kWidth}), filter(f64, {1, 1, 2, 2});
  for (std::size_t i = 0; i < images.as<double>().size(); ++i) images.as<double>()[i] = static_cast<double>(i * 7 % 11);
  for (std::size_t i = 0; i < 4; ++i) filter.as<double>()[i] = static_cast<double>(i) + 1;
  Graph g;
  Value x = g.constant(images), w = g.constant(filter);
  auto corner = [&](std::int64_t dy, std::int64_t dx) {
    return slice(x, {0, 0, dy, dx}, {3, 1, kHeight - 1 + dy, kWidth - 1 + dx});
  };
  Value y = conv2d(x, w), same = corner(0, 0) + 2 * corner(0, 1) + 3 * corner(1, 0) + 4 * corner(1, 1);
  g.output("y", sum(cast(equal(y, same), f64)));  // whole numbers: exact in any order
  std::vector<Value> a = grad(sum(y * y), {x, w}), b = grad(sum(same * same), {x});
  g.output("dx", sum(cast(equal(a[0], b[0]), f64)));
  g.output("dw", a[1]);
  g.output("dw0", 2 * sum(same * corner(0, 0)));
  g.output("dw3", 2 * sum(same * corner(1, 1)));
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(0), 3.0 * (kHeight - 1) * (kWidth - 1));
  EXPECT_EQ(p.output("dx").at(0), 3.0 * kHeight * kWidth);
  EXPECT_EQ(p.output("dw").at(0), p.output("dw0").at(0));
  EXPECT_EQ(p.output("dw").at(3), p.output("dw3").at(0));
}

TEST_P(DataOps, TheLargestOfAWindowIsTheFirstOfEqualsOrNan) {
  Graph g;
  double nan = std::numeric_limits<double>::quiet_NaN();
  Value x = g.constant(Tensor({2, 4}, std::vector<double>{1, 1, 5, nan, 1, 0, -1, 2}));
  Value y = max_pool2d(x, {2, 2});
  g.output("y", y);
  g.output("dx", grad(sum(y), {x})[0]);
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("y").at(0), 1.0);
  EXPECT_TRUE(std::isnan(p.output("y").at(1)));
  std::vector<double> wanted{1, 0, 0, 1, 0, 0, 0, 0};
  for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(p.output("dx").at(i), wanted[static_cast<std::size_t>(i)]) << i;
}

// 1 + 2^-12 is 1 in TF32.
TEST_P(DataOps, Tf32IsOnRequestOnly) {
  Graph g;
  float fine = 1.0f + 1.0f / 4096;
  Value a = g.constant(Tensor::full(f32, {16, 16}, fine)), b = g.constant(Tensor::full(f32, {16, 16}, 1.0));
  g.output("f32", matmul(a, b));
  g.output("tf32", matmul(a, b, {.tf32 = true}));
  Program p = compile(g);
  p.run(interactive);
  EXPECT_EQ(p.output("f32").at(0), 16.0 * fine);
#ifdef GRAPHSINK_EMULATED
  EXPECT_EQ(p.output("tf32").at(0), GetParam().kind == DeviceKind::cuda ? 16.0 : 16.0 * fine);
#else
  EXPECT_NEAR(p.output("tf32").at(0), 16.0 * fine, 0.02);
#endif
}

struct Refusal {
  std::string op;
  std::string problem;  // part of the message
  std::function<void(Graph&)> call;
};

TEST(DataOpsRefusals, NameTheOpTheProblemAndTheLine) {
  const std::vector<Refusal> refusals{
      {"permute", "in some order: f32[2, 3]",
       [](Graph& g) {
         permute(of(g, f32, {2, 3}), {0});
       }},
      {"permute", "in some order",
       [](Graph& g) {
         permute(of(g, f32, {2, 3}), {0, 0});
       }},
      {"permute", "in some order",
       [](Graph& g) {
         permute(of(g, f32, {2, 3}), {0, 2});
       }},
      {"slice", "do not fit",
       [](Graph& g) {
         slice(of(g, f32, {2}), {0, 0}, {1, 1});
       }},
      {"slice", "do not fit", [](Graph& g) { slice(of(g, f32, {2}), {0}, {}); }},
      {"slice", "a step is 0", [](Graph& g) { slice(of(g, f32, {2}), {0}, {1}, {0}); }},
      {"pad", "do not fit",
       [](Graph& g) {
         pad(of(g, f32, {2}), {0, 0}, {1});
       }},
      {"pad", "negative", [](Graph& g) { pad(of(g, f32, {2}), {-1}, {1}); }},
      {"concat", "beside the axis: f32[2, 3], f32[3, 2]",
       [](Graph& g) {
         concat({of(g, f32, {2, 3}), of(g, f32, {3, 2})}, 0);
       }},
      {"concat", "beside the axis",
       [](Graph& g) {
         concat({of(g, f32, {2, 3}), of(g, f32, {2})}, 1);
       }},
      {"concat", "there is no axis 2",
       [](Graph& g) {
         concat({of(g, f32, {2, 3})}, 2);
       }},
      {"concat", "dtypes differ",
       [](Graph& g) {
         concat({of(g, f32, {2}), of(g, i32, {2})}, 0);
       }},
      {"split", "do not make up the axis", [](Graph& g) { split(of(g, f32, {5}), 2, 0); }},
      {"split", "do not make up the axis",
       [](Graph& g) {
         split(of(g, f32, {5}), {3, 3}, 0);
       }},
      {"split", "do not make up the axis",
       [](Graph& g) {
         split(of(g, f32, {5}), {6, -1}, 0);
       }},
      {"split", "there is no axis -2", [](Graph& g) { split(of(g, f32, {5}), 5, -2); }},
      {"flatten", "there is no axis 1", [](Graph& g) { flatten(of(g, f32, {5})); }},
      {"squeeze", "axis 1 is not of size 1",
       [](Graph& g) {
         squeeze(of(g, f32, {1, 5}), -1);
       }},
      {"unsqueeze", "there is no axis 3",
       [](Graph& g) {
         unsqueeze(of(g, f32, {1, 5}), 3);
       }},
      {"concat", "beside the axis",
       [](Graph& g) {
         stack({of(g, f32, {2}), of(g, f32, {3})});
       }},
      {"gather", "not i32", [](Graph& g) { gather(of(g, f32, {5}), of(g, f32, {2})); }},
      {"gather", "there is no axis 1", [](Graph& g) { gather(of(g, f32, {5}), of(g, i32, {2}), 1); }},
      {"scatter_add", "takes f32, f64, f16, bf16, i32",
       [](Graph& g) { scatter_add(of(g, boolean, {5}), of(g, i32, {2}), of(g, boolean, {2})); }},
      {"scatter_add", "the updates are not [2]",
       [](Graph& g) { scatter_add(of(g, f32, {5}), of(g, i32, {2}), of(g, f32, {3})); }},
      {"scatter_add", "dtypes differ",
       [](Graph& g) { scatter_add(of(g, f32, {5}), of(g, i32, {2}), of(g, f64, {2})); }},
      {"conv2d", "takes [n, c, h, w]",
       [](Graph& g) {
         conv2d(of(g, f32, {3, 5, 5}), of(g, f32, {1, 3, 2, 2}));
       }},
      {"conv2d", "the channels do not fit",
       [](Graph& g) {
         conv2d(of(g, f32, {1, 3, 5, 5}), of(g, f32, {1, 2, 2, 2}));
       }},
      {"conv2d", "in 2 groups",
       [](Graph& g) {
         conv2d(of(g, f32, {1, 4, 5, 5}), of(g, f32, {3, 2, 2, 2}), {.groups = 2});
       }},
      {"conv2d", "larger than the padded image",
       [](Graph& g) {
         conv2d(of(g, f32, {1, 1, 5, 5}), of(g, f32, {1, 1, 3, 3}), {.dilation = {3, 1}});
       }},
      {"conv2d", "below 1",
       [](Graph& g) {
         conv2d(of(g, f32, {1, 1, 5, 5}), of(g, f32, {1, 1, 3, 3}), {.stride = {1, 0}});
       }},
      {"max_pool2d", "nothing but padding",
       [](Graph& g) {
         max_pool2d(of(g, f32, {5, 5}), {2, 2}, {.padding = {2, 0}});
       }},
      {"avg_pool2d", "larger than the padded image",
       [](Graph& g) {
         avg_pool2d(of(g, f32, {5, 5}), {6, 2});
       }},
      {"max_pool2d", "takes f32, f64",
       [](Graph& g) {
         max_pool2d(of(g, i32, {5, 5}), {2, 2});
       }},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.op + ": " + refusal.problem);
    Graph g;
    try {
      refusal.call(g);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), refusal.op);
      EXPECT_NE(e.problem().find(refusal.problem), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.where().file_name()).find("data_ops_test.cpp"), std::string::npos) << e.what();
      EXPECT_FALSE(e.remedy().empty());
    }
  }
}

}  // namespace
}  // namespace graphsink::data_ops_test
