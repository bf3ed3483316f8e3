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

Array channel_norm_of(const Array& x, std::int64_t groups, const Array& gain, const Array& bias, double epsilon) {
  std::int64_t channels = x.shape[1], inner = 1;
  for (int d = 2; d < x.shape.rank(); ++d) inner *= x.shape[d];
  auto channel = [&](std::size_t i) { return static_cast<std::int64_t>(i) / inner % channels; };
  auto group = [&](std::size_t i) {
    std::int64_t sample = static_cast<std::int64_t>(i) / inner / channels;
    return static_cast<std::size_t>(groups == 0 ? channel(i) : sample * groups + channel(i) / (channels / groups));
  };
  std::vector<double> count(x.at.size()), mean(x.at.size()), squares(x.at.size());  // more than there are groups
  for (std::size_t i = 0; i < x.at.size(); ++i) count[group(i)] += 1, mean[group(i)] += x.at[i];
  for (std::size_t i = 0; i < x.at.size(); ++i) {
    double distance = x.at[i] - mean[group(i)] / count[group(i)];
    squares[group(i)] += distance * distance;
  }
  Array y(x.shape);
  for (std::size_t i = 0; i < x.at.size(); ++i) {
    std::size_t g = group(i);
    y.at[i] = (x.at[i] - mean[g] / count[g]) / std::sqrt(squares[g] / count[g] + epsilon) * gain[channel(i)] +
              bias[channel(i)];
  }
  return y;
}

Array attention_of(const Array& q, const Array& k, const Array& v, double scale, const ChangeScore& change) {
  std::int64_t heads = q.shape[0] * q.shape[1], queries = q.shape[2], keys = k.shape[2], width = q.shape[3];
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(width));
  Array y(q.shape);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      std::int64_t query = (h * queries + i) * width;
      std::vector<double> weights;
      double total = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < width; ++c) score += q[query + c] * k[(h * keys + j) * width + c];
        total += weights.emplace_back(std::exp(change(h, i, j, scale * score)));
      }
      for (std::int64_t j = 0; j < keys && total > 0; ++j)
        for (std::int64_t c = 0; c < width; ++c)
          y[query + c] += weights[static_cast<std::size_t>(j)] / total * v[(h * keys + j) * width + c];
    }
  }
  return y;
}

Array attention_of(const Array& q, const Array& k, const Array& v, bool is_causal, double scale) {
  std::int64_t ahead = k.shape[2] - q.shape[2];
  return attention_of(q, k, v, scale, [=](std::int64_t, std::int64_t i, std::int64_t j, double score) {
    return is_causal && j > i + ahead ? -std::numeric_limits<double>::infinity() : score;
  });
}
}  // namespace graphsink::testing
