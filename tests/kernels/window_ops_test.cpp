// Convolutions and pools of images that the CPU handles in several blocks of rows, channels and windows, with edges in
// all of them. Operands are whole numbers, so that sums are exact in any order and every element has to be right.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "test_ops.h"

namespace graphsink::window_ops_test {
namespace {

class WindowOps : public ::testing::TestWithParam<DeviceId> {
 protected:
  Program compile(const Graph& g) { return graphsink::compile(g, {.target = GetParam()}); }
};
std::string device_name(const ::testing::TestParamInfo<DeviceId>& info) {
  return info.param.kind == DeviceKind::cpu ? "cpu" : "cuda";
}
INSTANTIATE_TEST_SUITE_P(Devices, WindowOps, ::testing::ValuesIn(testing::devices()), device_name);

Tensor whole_numbers(DType dtype, const Shape& shape, std::uint32_t seed) {
  Tensor tensor(f64, shape);
  std::uint32_t state = seed;
  for (double& x : tensor.as<double>()) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<double>(state >> 29) - 3;
  }
  return tensor.to(dtype);
}

// Rows of numbers from whichever dtype.
std::vector<double> elements_of(const Tensor& tensor) {
  Tensor wide = tensor.to(f64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

void expect_elements(const Tensor& seen, const std::vector<double>& wanted, const char* what) {
  std::vector<double> all = elements_of(seen);
  ASSERT_EQ(all.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wanted[i]))
      ASSERT_TRUE(std::isnan(all[i])) << what << " " << i;
    else
      ASSERT_EQ(all[i], wanted[i]) << what << " " << i;
  }
}

struct Convolution {
  Shape x, w;
  Conv2dOptions options;
};

// f(result, image, filters) with the places of the two factors of each product and of its sum.
template <class F>
void for_each_product(const Convolution& c, const Shape& y, const F& f) {
  std::int64_t channels = c.w[1], filters = y[1] / c.options.groups;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t o = 0; o < y[1]; ++o)
      for (std::int64_t i = 0; i < y[2]; ++i)
        for (std::int64_t j = 0; j < y[3]; ++j)
          for (std::int64_t k = 0; k < channels; ++k)
            for (std::int64_t dy = 0; dy < c.w[2]; ++dy)
              for (std::int64_t dx = 0; dx < c.w[3]; ++dx) {
                std::int64_t row = i * c.options.stride[0] - c.options.padding[0] + dy * c.options.dilation[0];
                std::int64_t column = j * c.options.stride[1] - c.options.padding[1] + dx * c.options.dilation[1];
                if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) continue;
                std::int64_t plane = n * c.x[1] + o / filters * channels + k;
                f(static_cast<std::size_t>(((n * y[1] + o) * y[2] + i) * y[3] + j),
                  static_cast<std::size_t>((plane * c.x[2] + row) * c.x[3] + column),
                  static_cast<std::size_t>(((o * channels + k) * c.w[2] + dy) * c.w[3] + dx));
              }
}

TEST_P(WindowOps, ConvolutionsInManyBlocks) {
  const Convolution convolutions[] = {
      {{2, 9, 37, 41}, {4, 9, 3, 3}, {.padding = {1, 1}}},
      {{2, 3, 70, 33}, {2, 3, 5, 4}, {}},
      {{1, 8, 90, 47}, {4, 4, 3, 2}, {.stride = {2, 1}, .padding = {2, 1}, .groups = 2}},
      {{2, 4, 40, 53}, {6, 2, 3, 3}, {.stride = {1, 3}, .padding = {3, 2}, .dilation = {2, 3}, .groups = 2}},
      {{2, 3, 9, 600}, {2, 3, 1, 7}, {.padding = {0, 3}}},
      {{2, 3, 11, 5}, {2, 3, 3, 9}, {.padding = {1, 4}}},  // some elements of a window are padding only
      {{3, 70, 31, 23}, {5, 70, 1, 1}, {}},                // the columns are the image
      {{2, 4, 31, 23}, {5, 4, 1, 1}, {.stride = {2, 2}}},  // they are not
      {{2, 12, 31, 23}, {12, 1, 3, 3}, {.padding = {1, 1}, .groups = 12}}};
  for (const Convolution& c : convolutions)
    for (DType dtype : {f32, f64}) {
      SCOPED_TRACE(to_string(TensorType{dtype, c.x}) + " " + to_string(TensorType{dtype, c.w}));
      Tensor image = whole_numbers(dtype, c.x, 1), filters = whole_numbers(dtype, c.w, 2);
      Graph g;
      Value x = g.constant(image), w = g.constant(filters), y = conv2d(x, w, c.options);
      Tensor weights = whole_numbers(dtype, y.shape(), 3);
      std::vector<Value> gradients = grad(sum(y * g.constant(weights)), {x, w});
      g.output("y", y);
      g.output("dx", gradients[0]);
      g.output("dw", gradients[1]);
      Program p = compile(g);
      p.run(interactive);
      std::vector<double> a = elements_of(image), b = elements_of(filters), d = elements_of(weights);
      std::vector<double> wanted(d.size()), dx(a.size()), dw(b.size());
      for_each_product(c, y.shape(), [&](std::size_t result, std::size_t pixel, std::size_t filter) {
        wanted[result] += a[pixel] * b[filter];
        dx[pixel] += d[result] * b[filter];
        dw[filter] += d[result] * a[pixel];
      });
      expect_elements(p.output("y"), wanted, "y");
      expect_elements(p.output("dx"), dx, "dx");
      expect_elements(p.output("dw"), dw, "dw");
    }
}

struct Pooling {
  Shape x;
  std::array<std::int64_t, 2> window;
  Pool2dOptions options;
};

// f(result, the pixels of its window) for each window.
template <class F>
void for_each_window(const Pooling& c, const Shape& y, const F& f) {
  std::array<std::int64_t, 2> stride = c.options.stride;
  for (std::size_t d : {0, 1})
    if (stride[d] == 0) stride[d] = c.window[d];
  std::size_t result = 0;
  for (std::int64_t plane = 0; plane < y[0]; ++plane)
    for (std::int64_t i = 0; i < y[1]; ++i)
      for (std::int64_t j = 0; j < y[2]; ++j, ++result) {
        std::vector<std::size_t> pixels;
        for (std::int64_t dy = 0; dy < c.window[0]; ++dy)
          for (std::int64_t dx = 0; dx < c.window[1]; ++dx) {
            std::int64_t row = i * stride[0] - c.options.padding[0] + dy;
            std::int64_t column = j * stride[1] - c.options.padding[1] + dx;
            if (row >= 0 && row < c.x[1] && column >= 0 && column < c.x[2])
              pixels.push_back(static_cast<std::size_t>((plane * c.x[1] + row) * c.x[2] + column));
          }
        f(result, pixels);
      }
}

TEST_P(WindowOps, PoolsOfManyWindows) {
  const Pooling pools[] = {{{2, 64, 1030}, {2, 2}, {}},
                           {{3, 41, 533}, {2, 2}, {.stride = {1, 1}}},
                           {{2, 35, 1031}, {3, 4}, {.stride = {2, 2}, .padding = {1, 2}}},
                           {{2, 70, 800}, {2, 4}, {.stride = {3, 3}, .padding = {1, 1}}},
                           {{40, 17, 2}, {2, 2}, {.stride = {1, 2}}},
                           {{2, 33, 520}, {8, 2}, {.stride = {4, 2}}}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Pooling& c : pools)
    for (DType dtype : {f32, f64}) {
      SCOPED_TRACE(to_string(TensorType{dtype, c.x}));
      std::vector<double> a = elements_of(whole_numbers(f64, c.x, 1));
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (i % static_cast<std::size_t>(c.x[2]) % 97 < 6) a[i] = -kInfinity;  // whole windows
        if (i % 997 == 0) a[i] = std::numeric_limits<double>::quiet_NaN();
      }
      Graph g;
      Value x = g.constant(Tensor(c.x, a).to(dtype)), finite = g.constant(whole_numbers(dtype, c.x, 1));
      Value most = max_pool2d(x, c.window, c.options), mean = avg_pool2d(finite, c.window, c.options);
      Tensor weights = whole_numbers(dtype, most.shape(), 3);
      auto size = static_cast<double>(c.window[0] * c.window[1]);  // a power of two, or sums would be rounded
      g.output("most", most);
      g.output("sum", mean * size);
      g.output("dx", grad(sum(most * g.constant(weights)), {x})[0]);
      g.output("dmean", grad(sum(mean * g.constant(weights)) * size, {finite})[0]);
      Program p = compile(g);
      p.run(interactive);
      std::vector<double> numbers = elements_of(whole_numbers(f64, c.x, 1)), d = elements_of(weights);
      std::vector<double> wanted(d.size()), sums(d.size()), dx(a.size()), dmean(a.size());
      for_each_window(c, most.shape(), [&](std::size_t result, const std::vector<std::size_t>& pixels) {
        std::size_t best = pixels[0];
        for (std::size_t pixel : pixels) {
          if (a[pixel] > a[best] || (std::isnan(a[pixel]) && !std::isnan(a[best]))) best = pixel;
          sums[result] += numbers[pixel];
          dmean[pixel] += d[result];
        }
        wanted[result] = a[best];
        dx[best] += d[result];
      });
      expect_elements(p.output("most"), wanted, "most");
      expect_elements(p.output("dx"), dx, "dx");
      if (std::exp2(std::round(std::log2(size))) != size) continue;
      expect_elements(p.output("sum"), sums, "sum");
      expect_elements(p.output("dmean"), dmean, "dmean");
    }
}

}  // namespace
}  // namespace graphsink::window_ops_test
