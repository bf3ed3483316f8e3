#include "op_reference_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace graphsink::testing {

Array softmax_of(const Array& x, int axis, bool is_log) {
  if (axis < 0) axis += x.shape.rank();
  std::int64_t inner = 1, length = x.shape[axis];
  for (int d = axis + 1; d < x.shape.rank(); ++d) inner *= x.shape[d];
  Array y(x.shape);
  for (std::int64_t i = 0; i < x.shape.size(); ++i) {
    if (i / inner % length != 0) continue;  // not the first of its line
    double total = 0;
    for (std::int64_t k = 0; k < length; ++k) total += std::exp(x[i + k * inner]);
    for (std::int64_t k = 0; k < length; ++k) {
      double at = x[i + k * inner];
      y[i + k * inner] = is_log ? at - std::log(total) : std::exp(at) / total;
    }
  }
  return y;
}

Array norm_of(const Array& x, const Array& gain, const Array* bias, double epsilon) {
  Array y(x.shape);
  std::int64_t width = x.shape[-1];
  for (std::int64_t first = 0; first < x.shape.size(); first += width) {
    double mean = 0, squares = 0;
    for (std::int64_t k = 0; bias && k < width; ++k) mean += x[first + k] / static_cast<double>(width);
    for (std::int64_t k = 0; k < width; ++k)
      squares += (x[first + k] - mean) * (x[first + k] - mean) / static_cast<double>(width);
    double deviation = std::sqrt(squares + epsilon);
    for (std::int64_t k = 0; k < width; ++k)
      y[first + k] = (x[first + k] - mean) / deviation * gain[k] + (bias ? (*bias)[k] : 0);
  }
  return y;
}

Array attention_of(const Array& q, const Array& k, const Array& v, bool is_causal, double scale) {
  std::int64_t heads = q.shape[0] * q.shape[1], queries = q.shape[2], keys = k.shape[2], width = q.shape[3];
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(width));
  Array y(q.shape);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      std::int64_t query = (h * queries + i) * width;
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t j = 0; j < keys && (!is_causal || j <= i + keys - queries); ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < width; ++c) score += q[query + c] * k[(h * keys + j) * width + c];
        total += weights.emplace_back(std::exp(scale * score));
      }
      for (std::size_t j = 0; j < weights.size(); ++j)
        for (std::int64_t c = 0; c < width; ++c)
          y[query + c] += weights[j] / total * v[(h * keys + static_cast<std::int64_t>(j)) * width + c];
    }
  }
  return y;
}
}  // namespace graphsink::testing
