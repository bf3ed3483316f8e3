// Rows of the op table: the ops of text models.
#include <cmath>
#include <limits>

#include "op_reference_order.h"
#include "op_reference_text.h"
#include "op_rows.h"

namespace graphsink::testing {

namespace {

OpRow softmax_row(bool is_log, int axis, std::vector<Case> cases) {
  return {is_log ? "log_softmax" : "softmax",
          kFloats,
          std::move(cases),
          [=](const auto& in) { return is_log ? log_softmax(in[0], axis) : softmax(in[0], axis); },
          [=](const Arrays& in) { return softmax_of(in[0], axis, is_log); },
          true};
}

// A warp for each row, a block for each row, several parts for the gradients of gain and bias.
const std::vector<Shape> kNormed{{2, 3},     {0, 3},   {3, 0},       {1, 1},   {37, 41},
                                 {2, 3, 33}, {5, 257}, {3, 1, 1031}, {300, 5}, {131, 2, 35}};

OpRow layer_norm_row(double epsilon) {
  std::vector<Case> cases;
  for (const Shape& x : kNormed) cases.push_back({x, Shape{x[-1]}, Shape{x[-1]}});
  return {"layer_norm",
          kSingleAndDouble,
          cases,
          [=](const auto& in) { return layer_norm(in[0], in[1], in[2], epsilon); },
          [=](const Arrays& in) { return norm_of(in[0], in[1], &in[2], epsilon); },
          true};
}
OpRow rms_norm_row(double epsilon) {
  std::vector<Case> cases;
  for (const Shape& x : kNormed) cases.push_back({x, Shape{x[-1]}});
  return {"rms_norm",
          kSingleAndDouble,
          cases,
          [=](const auto& in) { return rms_norm(in[0], in[1], epsilon); },
          [=](const Arrays& in) { return norm_of(in[0], in[1], nullptr, epsilon); },
          true};
}

struct Heads {
  std::int64_t batch, heads, queries, keys, width;
};
OpRow attention_row(AttentionOptions options, const std::vector<Heads>& sizes) {
  std::vector<Case> cases;
  for (auto [b, h, queries, keys, width] : sizes)
    cases.push_back({{b, h, queries, width}, {b, h, keys, width}, {b, h, keys, width}});
  return {"attention",
          kSingleAndDouble,
          cases,
          [=](const auto& in) { return attention(in[0], in[1], in[2], options); },
          [=](const Arrays& in) { return attention_of(in[0], in[1], in[2], options.causal, options.scale); },
          true};
}

// A mask is false where its operand is not negative.
OpRow biased_attention_row(AttentionOptions options, bool is_mask, const Shape& bias, const Heads& sizes) {
  auto [b, h, queries, keys, width] = sizes;
  return {"attention",
          kSingleAndDouble,
          {{{b, h, queries, width}, {b, h, keys, width}, {b, h, keys, width}, bias}},
          [=](const auto& in) { return attention(in[0], in[1], in[2], is_mask ? less(in[3], 0) : in[3], options); },
          [=, heads = h, ahead = keys - queries](const Arrays& in) {
            Array full = broadcast_to(in[3], {b, heads, queries, keys});
            return attention_of(in[0], in[1], in[2], options.scale,
                                [&](std::int64_t head, std::int64_t i, std::int64_t j, double score) {
                                  double extra = full[(head * queries + i) * keys + j];
                                  bool is_hidden = (is_mask && extra >= 0) || (options.causal && j > i + ahead);
                                  if (is_hidden) return -std::numeric_limits<double>::infinity();
                                  return is_mask ? score : score + extra;
                                });
          },
          true};
}

// Samples, channels and lengths of one and more, and of none.
const std::vector<Shape> kChannels{{2, 3}, {1, 4, 1}, {5, 2, 3}, {3, 4, 2, 5}, {2, 6, 7, 37}};

std::vector<Case> channel_cases(const std::vector<Shape>& shapes, std::size_t vectors) {
  std::vector<Case> cases;
  for (const Shape& x : shapes) {
    cases.push_back({x});
    for (std::size_t i = 0; i < vectors; ++i) cases.back().push_back(Shape{x[1]});
  }
  return cases;
}

void add_channel_norm_rows(std::vector<OpRow>& rows) {
  for (double epsilon : {1e-5, 0.5}) {
    rows.push_back({"batch_norm", kSingleAndDouble, channel_cases(kChannels, 2),
                    [=](const auto& in) { return batch_norm(in[0], in[1], in[2], epsilon).y; },
                    [=](const Arrays& in) { return channel_norm_of(in[0], 0, in[1], in[2], epsilon); }, true});
  }
  auto of_channels = [](const Array& x, bool is_variance) {
    std::vector<int> axes{0};
    for (int d = 2; d < x.shape.rank(); ++d) axes.push_back(d);
    return folded(x, axes, false, [=](const std::vector<double>& group) {
      double mean = 0, squares = 0;
      for (double value : group) mean += value / static_cast<double>(group.size());
      for (double value : group) squares += (value - mean) * (value - mean) / static_cast<double>(group.size());
      return is_variance ? squares : mean;
    });
  };
  rows.push_back({"batch_norm", kSingleAndDouble, channel_cases(kChannels, 2),
                  [](const auto& in) { return batch_norm(in[0], in[1], in[2]).mean; },
                  [=](const Arrays& in) { return of_channels(in[0], false); }, true});
  rows.push_back({"batch_norm", kSingleAndDouble, channel_cases(kChannels, 2),
                  [](const auto& in) { return batch_norm(in[0], in[1], in[2]).variance; },
                  [=](const Arrays& in) { return of_channels(in[0], true); }, true});
  rows.push_back({"batch_norm", kFloats, channel_cases({{2, 3}, {3, 4, 2, 5}}, 4),
                  [](const auto& in) { return batch_norm(in[0], in[1], in[2], in[3], mul(in[4], in[4])); },
                  [](const Arrays& in) {
                    std::int64_t inner = in[0].shape.rank() == 2 ? 1 : 10;
                    return generate(in[0].shape, [&](const Shape& at) {
                      std::int64_t i = index_of(in[0].shape, at), c = i / inner % in[0].shape[1];
                      return (in[0][i] - in[3][c]) / std::sqrt(in[4][c] * in[4][c] + 1e-5) * in[1][c] + in[2][c];
                    });
                  },
                  true});
  for (int groups : {1, 2, 4}) {
    rows.push_back({"group_norm", kSingleAndDouble, channel_cases({{2, 4}, {1, 4, 3}, {3, 4, 2, 5}, {0, 4, 3}}, 2),
                    [=](const auto& in) { return group_norm(in[0], groups, in[1], in[2], 0.1); },
                    [=](const Arrays& in) { return channel_norm_of(in[0], groups, in[1], in[2], 0.1); }, true});
  }
}

// Draws that leave nothing to chance: shapes and dtypes. What is random is tested in op_random_test.cpp.
OpRow certain_row(std::string name, Value (*op)(const Value&), double value) {
  OpRow row{std::move(name),
            kSingleAndDouble,
            kUnary,
            [=](const auto& in) { return op(in[0]); },
            [=](const Arrays& in) { return map(in[0], [=](double x) { return value == 0 ? x : value; }); },
            true};
  return value == 0 ? row : without_grad(std::move(row), kTypeOnly);
}

}  // namespace

void add_text_rows(std::vector<OpRow>& rows) {
  add_channel_norm_rows(rows);
  for (DType dtype : {i32, i64}) {
    rows.push_back(without_grad({"randint",
                                 {f32},
                                 kUnary,
                                 [=](const auto& in) { return randint(in[0], -7, -6, dtype); },
                                 [](const Arrays& in) { return map(in[0], [](double) { return -7.0; }); }},
                                kNoFloats));
  }
  for (double probability : {0.0, 1.0}) {
    rows.push_back(without_grad({"bernoulli", kSingleAndDouble, kUnary,
                                 [=](const auto& in) { return bernoulli(mul(mul(in[0], 0), 0) + probability); },
                                 [=](const Arrays& in) { return map(in[0], [=](double) { return probability; }); }},
                                kNoFloats));
  }
  const std::vector<Case> lines{{{2, 3}}, {{0}},      {{0, 3}},     {{3, 0}},   {{1}},
                                {{257}},  {{37, 41}}, {{9, 5, 33}}, {{3, 1031}}};
  const std::vector<Case> columns{{{2, 3, 4}}, {{2, 0, 4}}, {{2, 3, 0}}, {{1, 1, 1}}, {{3, 257, 5}}, {{2, 7, 131}}};
  rows.insert(
      rows.end(),
      {
          softmax_row(false, -1, lines),
          softmax_row(false, 1, columns),
          softmax_row(false, 0, {{{5}}, {{3, 4}}, {{31, 2, 3}}}),
          softmax_row(true, -1, lines),
          softmax_row(true, -2, columns),
          layer_norm_row(1e-5),
          layer_norm_row(0.5),
          rms_norm_row(1e-5),
          rms_norm_row(0.5),
          // One tile and several, each width of vectors, more queries than keys and fewer, none of either.
          attention_row({},
                        {{1, 1, 2, 3, 4}, {2, 3, 5, 5, 1}, {1, 1, 70, 67, 5}, {1, 2, 1, 131, 33}, {1, 1, 9, 17, 128}}),
          attention_row({}, {{0, 2, 3, 3, 4}, {1, 1, 0, 3, 4}, {1, 1, 3, 0, 4}, {1, 1, 3, 3, 0}, {1, 1, 1, 1, 1}}),
          attention_row({.causal = true},
                        {{1, 1, 3, 3, 2}, {2, 2, 67, 67, 3}, {1, 1, 20, 140, 65}, {1, 2, 130, 41, 2}}),
          attention_row({.causal = true, .scale = 0.25}, {{1, 1, 35, 35, 100}, {1, 1, 5, 2, 3}, {1, 1, 1, 9, 64}}),
          certain_row(
              "random_uniform", [](const Value& x) { return random_uniform(x, 1.5, 1.5); }, 1.5),
          certain_row(
              "random_normal", [](const Value& x) { return random_normal(x, 2.5, 0.0); }, 2.5),
          biased_attention_row({}, true, {5, 7}, {2, 2, 5, 7, 3}),
          biased_attention_row({.scale = 0.5}, true, {2, 1, 1, 7}, {2, 3, 5, 7, 130}),
          biased_attention_row({}, false, {2, 1, 5, 7}, {2, 2, 5, 7, 3}),
          biased_attention_row({.causal = true}, false, {3, 1, 1}, {2, 3, 5, 7, 4}),
          biased_attention_row({.causal = true}, true, {1, 1, 7, 5}, {1, 2, 7, 5, 4}),
          biased_attention_row({}, false, {}, {1, 1, 0, 3, 4}),
          certain_row(
              "dropout", [](const Value& x) { return dropout(x, 0.0); }, 0),
      });
}

}  // namespace graphsink::testing
