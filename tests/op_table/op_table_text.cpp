// Rows of the op table: the ops of text models.
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

// Draws that leave nothing to chance: shapes and dtypes. What is random is tested in op_random_test.cpp.
OpRow certain_row(std::string name, Value (*op)(const Value&), double value) {
  return {std::move(name),
          kSingleAndDouble,
          kUnary,
          [=](const auto& in) { return op(in[0]); },
          [=](const Arrays& in) { return map(in[0], [=](double x) { return value == 0 ? x : value; }); },
          value == 0};
}

}  // namespace

void add_text_rows(std::vector<OpRow>& rows) {
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
          certain_row(
              "dropout", [](const Value& x) { return dropout(x, 0.0); }, 0),
      });
}

}  // namespace graphsink::testing
