#include "images/resize.h"

#include <algorithm>
#include <cmath>

namespace graphsink {
namespace {

// The places of an axis that a place of the result is made of, and their weights, which sum to 1.
struct ResizeWindow {
  std::size_t begin = 0;
  std::vector<float> weights;
};

std::vector<ResizeWindow> resize_windows(std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), radius = std::max(scale, 1.0);
  std::vector<ResizeWindow> windows(to);
  for (std::size_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto begin = static_cast<std::size_t>(std::max(0.0, std::floor(center - radius + 0.5)));
    const auto end = std::min(from, static_cast<std::size_t>(std::floor(center + radius + 0.5)));
    double sum = 0;
    std::vector<double> weights;
    for (std::size_t place = begin; place < end; ++place) {
      weights.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(place) + 0.5 - center) / radius));
      sum += weights.back();
    }
    windows[i].begin = begin;
    for (double weight : weights) windows[i].weights.push_back(static_cast<float>(weight / sum));
  }
  return windows;
}

}  // namespace

DecodedImage resized(const DecodedImage& image, std::size_t height, std::size_t width) {
  const std::size_t components = image.components;
  const std::vector<ResizeWindow> rows = resize_windows(image.height, height),
                                  columns = resize_windows(image.width, width);
  DecodedImage result{height, width, components, {}};
  result.bytes.reserve(height * width * components);
  std::vector<float> line(image.width * components);  // a row of the result, as wide as the image
  for (const ResizeWindow& row : rows) {
    std::fill(line.begin(), line.end(), 0.0f);
    for (std::size_t y = 0; y < row.weights.size(); ++y) {
      const std::uint8_t* from = image.bytes.data() + (row.begin + y) * line.size();
      for (std::size_t i = 0; i < line.size(); ++i) line[i] += row.weights[y] * static_cast<float>(from[i]);
    }
    for (const ResizeWindow& column : columns) {
      for (std::size_t c = 0; c < components; ++c) {
        float sum = 0;
        for (std::size_t x = 0; x < column.weights.size(); ++x) {
          sum += column.weights[x] * line[(column.begin + x) * components + c];
        }
        result.bytes.push_back(static_cast<std::uint8_t>(std::clamp(sum + 0.5f, 0.0f, 255.0f)));
      }
    }
  }
  return result;
}

}  // namespace graphsink
