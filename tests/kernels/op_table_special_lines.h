// Rows of the op table at special values and large offsets: ops that go along an axis.
#pragma once

#include "op_table_special.h"

namespace graphsink::testing {

inline Array matrix_of(const std::vector<std::vector<double>>& rows) {
  Array result({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  result.at.clear();
  for (const auto& row : rows) result.at.insert(result.at.end(), row.begin(), row.end());
  return result;
}

// f(line, line of the weights) -> line of the gradient, for each line of x along its last axis.
using Line = std::vector<double>;
inline Line line_at(const Array& x, std::int64_t row, std::int64_t length) {
  return {x.at.begin() + row * length, x.at.begin() + (row + 1) * length};
}
inline Array map_lines(const Array& x, const std::function<Line(const Line&, std::int64_t row)>& f) {
  std::vector<Line> rows;
  for (std::int64_t r = 0; r < x.shape[0]; ++r) rows.push_back(f(line_at(x, r, x.shape[1]), r));
  return matrix_of(rows);
}
// One element for each line.
inline Array fold_lines(const Array& x, const std::function<double(const Line&)>& f) {
  Array result({x.shape[0]});
  for (std::int64_t r = 0; r < x.shape[0]; ++r) result[r] = f(line_at(x, r, x.shape[1]));
  return result;
}

// --- softmax and log_softmax: NumPy's exp(x - max(x)) / sum(exp(x - max(x))), and the logarithm of that.

inline Line exact_softmax(const Line& x, bool is_log) {
  double largest = -kInfinite, total = 0;
  for (double v : x) largest = std::isnan(v) ? v : v > largest ? v : largest;
  for (double v : x) total += std::exp(v - largest);
  Line y;
  for (double v : x) y.push_back(is_log ? v - largest - std::log(total) : std::exp(v - largest) / total);
  return y;
}
inline Line exact_softmax_grad(const Line& x, const Line& g, bool is_log) {
  Line y = exact_softmax(x, is_log), dx;
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += is_log ? g[i] : g[i] * y[i];
  for (std::size_t i = 0; i < y.size(); ++i) dx.push_back(is_log ? g[i] - std::exp(y[i]) * sum : y[i] * (g[i] - sum));
  return dx;
}

// Lines of `length` along the last axis or the first; elements after the third are -inf.
inline SpecialRow special_softmax_row(bool is_log, bool is_last, std::size_t length) {
  auto turn = [=](const Array& x) { return is_last ? x : swap_last(x); };
  return {is_log ? "log_softmax" : "softmax",
          kFloats,
          [=](DType dtype) {
            double most = limits_of(dtype).largest, least = limits_of(dtype).denormal;
            std::vector<Line> lines{{1e4, 1e4, -1e4},
                                    {2048, 2050, 2052},
                                    {kInfinite, 1, 2},
                                    {1, kInfinite, kInfinite},
                                    {-kInfinite, 1, 2},
                                    {1, 2, -kInfinite},
                                    {-kInfinite, -kInfinite, -kInfinite},
                                    {kNan, 0, 1},
                                    {0, 1, kNan},
                                    {kInfinite, -kInfinite, 0},
                                    {most, most, -most},
                                    {0, -0.0, least}};
            for (Line& line : lines) line.resize(length, -kInfinite);
            return Arrays{turn(matrix_of(lines))};
          },
          [=](const auto& in) {
            int axis = is_last ? -1 : 0;
            return is_log ? log_softmax(in[0], axis) : softmax(in[0], axis);
          },
          [=](const Arrays& in) {
            return turn(map_lines(turn(in[0]), [=](const Line& x, std::int64_t) { return exact_softmax(x, is_log); }));
          },
          [=](const Arrays& in, const Array& weight) {
            Array g = turn(weight);
            return Arrays{turn(map_lines(turn(in[0]), [&](const Line& x, std::int64_t row) {
              return exact_softmax_grad(x, line_at(g, row, g.shape[1]), is_log);
            }))};
          },
          -1,
          true};
}

// --- cross_entropy

inline SpecialRow special_cross_entropy_row(const std::vector<Line>& logits, const Line& targets) {
  return {"cross_entropy",
          kSingleAndDouble,
          [=](DType) {
            return Arrays{matrix_of(logits), vector_of(targets)};
          },
          [](const auto& in) { return cross_entropy(in[0], in[1]); },
          [](const Arrays& in) {
            Array loss{Shape{}};
            for (std::int64_t r = 0; r < in[1].shape.size(); ++r)
              loss[0] -= exact_softmax(line_at(in[0], r, in[0].shape[1]), true)[static_cast<std::size_t>(in[1][r])] /
                         static_cast<double>(in[1].shape.size());
            return loss;
          },
          [](const Arrays& in, const Array& weight) {
            return Arrays{map_lines(in[0], [&](const Line& x, std::int64_t row) {
              Line y = exact_softmax(x, false);
              y[static_cast<std::size_t>(in[1][row])] -= 1;
              for (double& v : y) v *= weight[0] / static_cast<double>(in[1].shape.size());
              return y;
            })};
          },
          1};
}

// --- attention with one query of width 1 and scores q * k: softmax, then the mean of v.

inline SpecialRow special_attention_row(double q, const Line& k, const Line& v) {
  auto keys = static_cast<std::int64_t>(k.size());
  auto weights = [](const Arrays& in) {
    Line scores;
    for (double key : in[1].at) scores.push_back(in[0][0] * key);
    return exact_softmax(scores, false);
  };
  auto mean = [=](const Arrays& in) {
    double sum = 0;
    Line p = weights(in);
    for (std::size_t j = 0; j < p.size(); ++j) sum += p[j] * in[2].at[j];
    return sum;
  };
  return {"attention",
          kSingleAndDouble,
          [=](DType) {
            return Arrays{with_shape(vector_of({q}), {1, 1, 1, 1}), with_shape(vector_of(k), {1, 1, keys, 1}),
                          with_shape(vector_of(v), {1, 1, keys, 1})};
          },
          [](const auto& in) { return attention(in[0], in[1], in[2], {.scale = 1}); },
          [=](const Arrays& in) {
            return with_shape(vector_of({mean(in)}), {1, 1, 1, 1});
          },
          [=](const Arrays& in, const Array& g) {
            Arrays d{Array(in[0].shape), Array(in[1].shape), Array(in[2].shape)};
            Line p = weights(in);
            for (std::size_t j = 0; j < p.size(); ++j) {
              double score = p[j] * g[0] * (in[2].at[j] - mean(in));
              d[0].at[0] += score * in[1].at[j];
              d[1].at[j] = score * in[0].at[0];
              d[2].at[j] = p[j] * g[0];
            }
            return d;
          },
          -1,
          true};
}

// --- reductions of lines

// `slope` gives the gradient of a line from the line and the weight of its result.
inline SpecialRow special_fold_row(std::string name, std::function<Value(const Value&)> op, bool is_last,
                                   double (*f)(const Line&), Line (*slope)(const Line&, double)) {
  auto turn = [=](const Array& x) { return is_last ? x : swap_last(x); };
  return {std::move(name),
          kFloats,
          [=](DType dtype) {
            auto [least, most] = limits_of(dtype);
            return Arrays{turn(matrix_of({{1, 2, 3},
                                          {least, least, least},
                                          {most, -most, 1},
                                          {most, -most, most / 2},
                                          {kInfinite, 1, 2},
                                          {-kInfinite, -kInfinite, 2},
                                          {kInfinite, -kInfinite, 2},
                                          {kNan, 1, kNan},
                                          {1, kNan, kInfinite},
                                          {5, 5, -kInfinite}}))};
          },
          [=](const auto& in) { return op(in[0]); },
          [=](const Arrays& in) { return fold_lines(turn(in[0]), f); },
          [=](const Arrays& in, const Array& weight) {
            return Arrays{
                turn(map_lines(turn(in[0]), [&](const Line& x, std::int64_t row) { return slope(x, weight[row]); }))};
          },
          -1,
          true};
}
inline double exact_sum(const Line& x) {
  long double sum = 0;
  for (double v : x) sum += v;
  return static_cast<double>(sum);
}
template <bool is_max>
double exact_extreme(const Line& x) {
  double most = x[0];
  for (double v : x) most = is_max ? exact_maximum(most, v) : exact_minimum(most, v);
  return most;
}
template <bool is_max>
Line exact_extreme_grad(const Line& x, double g) {
  double most = exact_extreme<is_max>(x), count = 0;
  Line result;
  for (double v : x) result.push_back(v == most || std::isnan(v) ? 1 : 0);
  for (double v : result) count += v;
  for (double& v : result) v = v == 0 ? 0 : g / count;
  return result;
}

inline double exact_product(const Line& x) {
  double product = 1;
  for (double v : x) product *= v;
  return product;
}
inline Line exact_product_grad(const Line& x, double g) {
  Line result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Line others = x;
    others[i] = 1;
    result.push_back(g * exact_product(others));
  }
  return result;
}
inline double exact_log_sum_exp(const Line& x) {
  double most = -kInfinite, sum = 0;
  for (double v : x) most = v > most ? v : most;
  for (double v : x) sum += v == most ? 1 : std::exp(v - most);
  return most + std::log(sum);
}
inline Line exact_log_sum_exp_grad(const Line& x, double g) {
  double y = exact_log_sum_exp(x);
  Line result;
  for (double v : x) result.push_back(y == -kInfinite ? 0 : g * std::exp(v - y));
  return result;
}

inline void add_fold_rows(std::vector<SpecialRow>& rows) {
  for (bool is_last : {true, false}) {
    int axis = is_last ? 1 : 0;
    auto same = [](const Line& x, double g) { return Line(x.size(), g); };
    rows.push_back(special_fold_row(
        "sum", [=](const Value& x) { return sum(x, {axis}); }, is_last, exact_sum, same));
    rows.push_back(special_fold_row(
        "mean", [=](const Value& x) { return mean(x, {axis}); }, is_last,
        [](const Line& x) { return exact_sum(x) / 3; }, [](const Line& x, double g) { return Line(x.size(), g / 3); }));
    rows.push_back(special_fold_row(
        "sum_like",
        [=](const Value& x) {
          return reshape(sum_like(x, slice(x, {0, 0}, {axis ? 10 : 1, axis ? 1 : 10})), {-1});
        },
        is_last, exact_sum, same));
    rows.push_back(special_fold_row(
        "cumsum",
        [=](const Value& x) {
          return reshape(slice(cumsum(x, axis), {axis ? 0 : 2, axis ? 2 : 0}, {10, 10}), {-1});
        },
        is_last, exact_sum, same));
    rows.push_back(special_fold_row(
        "prod", [=](const Value& x) { return prod(x, {axis}); }, is_last, exact_product, exact_product_grad));
    rows.push_back(special_fold_row(
        "logsumexp", [=](const Value& x) { return logsumexp(x, {axis}); }, is_last, exact_log_sum_exp,
        exact_log_sum_exp_grad));
    rows.push_back(special_fold_row(
        "max", [=](const Value& x) { return max(x, {axis}); }, is_last, exact_extreme<true>, exact_extreme_grad<true>));
    rows.push_back(special_fold_row(
        "min", [=](const Value& x) { return min(x, {axis}); }, is_last, exact_extreme<false>,
        exact_extreme_grad<false>));
    rows.push_back(special_fold_row(
        "top_k", [=](const Value& x) { return reshape(top_k(x, 1, axis).values, {-1}); }, is_last, exact_extreme<true>,
        [](const Line& x, double g) {
          Line result(x.size(), 0);
          double most = exact_extreme<true>(x);
          auto is_first = [=](double v) { return v == most || std::isnan(v); };
          result[static_cast<std::size_t>(std::find_if(x.begin(), x.end(), is_first) - x.begin())] = g;
          return result;
        }));
  }
}

// --- products, windows, norms and sums at indices, whose operands, results and gradients are written out

struct Written {
  Arrays operands;
  Array result;
  std::function<Arrays(const Array& weight)> gradients;
};
inline SpecialRow written_row(std::string name, std::vector<DType> dtypes, const Written& written,
                              std::function<Value(const std::vector<Value>&)> apply, int indices = -1) {
  return {std::move(name),
          std::move(dtypes),
          [=](DType) { return written.operands; },
          std::move(apply),
          [=](const Arrays&) { return written.result; },
          [=](const Arrays&, const Array& weight) { return written.gradients(weight); },
          indices,
          true};
}

// Three factors each; the sums of halves pass through numbers that halves cannot hold.
inline SpecialRow special_matmul_row() {
  const Line a{6e4, 6e4, -6e4, 6e4, 6e4, 6e4, kInfinite, 0, 0, 0, kNan, 1, kInfinite, 1, 1};
  const Line b{1, 1, 1, 0.5, 0.5, 0.5, 1, 1, 1, 1, 1, 1, 0, 1, 1};
  Written w{{with_shape(vector_of(a), {5, 1, 3}), with_shape(vector_of(b), {5, 3, 1})},
            with_shape(vector_of({6e4, 9e4, kInfinite, kNan, kNan}), {5, 1, 1}),
            [=](const Array& g) {
              Arrays d{with_shape(vector_of(b), {5, 1, 3}), with_shape(vector_of(a), {5, 3, 1})};
              for (std::size_t i = 0; i < 15; ++i) d[0].at[i] *= g.at[i / 3], d[1].at[i] *= g.at[i / 3];
              return d;
            }};
  return written_row("matmul", kFloats, w, [](const auto& in) { return matmul(in[0], in[1]); });
}

inline SpecialRow special_conv2d_row() {
  Written w{{with_shape(vector_of({-0.0, 3, kInfinite, 1e30}), {1, 1, 1, 4}), with_shape(vector_of({2}), {1, 1, 1, 1})},
            with_shape(vector_of({0, 6, kInfinite, 2e30}), {1, 1, 1, 4}),
            [](const Array& g) {
              Arrays d{map(g, [](double v) { return 2 * v; }), with_shape(vector_of({kInfinite}), {1, 1, 1, 1})};
              d[1][0] *= g[2];
              return d;
            }};
  return written_row("conv2d", kSingleAndDouble, w, [](const auto& in) {
    return add(conv2d(in[0], in[1]), 0.0);  // the sign of a sum of one zero is open
  });
}

inline void add_pool_rows(std::vector<SpecialRow>& rows) {
  Array x = with_shape(vector_of({1, kNan, kInfinite, -kInfinite, -0.0, 0, 3, 3}), {1, 8});
  Written most{{x}, with_shape(vector_of({kNan, kInfinite, -0.0, 3}), {1, 4}), [](const Array& g) {
                 return Arrays{with_shape(vector_of({0, g[0], g[1], 0, g[2], 0, g[3], 0}), {1, 8})};
               }};
  rows.push_back(written_row("max_pool2d", kSingleAndDouble, most, [](const auto& in) {
    return max_pool2d(in[0], {1, 2});
  }));
  Written mean{{x}, with_shape(vector_of({kNan, kNan, 0, 3}), {1, 4}), [](const Array& g) {
                 Array d({1, 8});
                 for (std::int64_t i = 0; i < 8; ++i) d[i] = g[i / 2] / 2;
                 return Arrays{d};
               }};
  rows.push_back(written_row("avg_pool2d", kSingleAndDouble, mean, [](const auto& in) {
    return avg_pool2d(in[0], {1, 2});
  }));
}

// Rows of mean 4096 and variance 1, with an infinite element, and whose squares floats barely hold.
inline void add_norm_rows(std::vector<SpecialRow>& rows) {
  Array one = vector_of({1, 1}), two = vector_of({2, 2}), three = vector_of({3, 3});
  Written layer{{matrix_of({{4097, 4095}, {-1, 1}}), two, three}, matrix_of({{5, 1}, {1, 5}}), [=](const Array& g) {
                  return Arrays{matrix_of({{0, 0}, {0, 0}}), vector_of({g[0] - g[2], g[3] - g[1]}),
                                vector_of({g[0] + g[2], g[1] + g[3]})};
                }};
  rows.push_back(written_row("layer_norm", kSingleAndDouble, layer,
                             [](const auto& in) { return layer_norm(in[0], in[1], in[2], 0.0); }));
  Written infinite{{matrix_of({{kInfinite, 1}}), two, three}, matrix_of({{kNan, kNan}}), [=](const Array& g) {
                     return Arrays{matrix_of({{kNan, kNan}}), vector_of({kNan, kNan}), vector_of({g[0], g[1]})};
                   }};
  rows.push_back(written_row("layer_norm", kSingleAndDouble, infinite,
                             [](const auto& in) { return layer_norm(in[0], in[1], in[2], 0.0); }));
  Written rms{{matrix_of({{1e10, 1e10}, {-1e-10, 1e-10}}), two}, matrix_of({{2, 2}, {-2, 2}}), [=](const Array& g) {
                Array d({2, 2});
                for (std::int64_t i = 0; i < 4; ++i) {
                  double sign = i == 2 ? -1 : 1, own = g[i] * sign,
                         pair = g[i / 2 * 2] * (i / 2 ? -1 : 1) + g[i / 2 * 2 + 1];
                  d[i] = 2 * sign * (own - pair / 2) * (i / 2 ? 1e10 : 1e-10);
                }
                return Arrays{d, vector_of({g[0] - g[2], g[1] + g[3]})};
              }};
  rows.push_back(
      written_row("rms_norm", kSingleAndDouble, rms, [](const auto& in) { return rms_norm(in[0], in[1], 0.0); }));
}

// Far from 0, without spread, with an infinite element and with a NaN.
inline SpecialRow special_var_row() {
  Array x = matrix_of({{256, 258, 260}, {5, 5, 5}, {kInfinite, 1, 2}, {kNan, 0, 0}});
  Written w{{x}, vector_of({8.0 / 3, 0, kNan, kNan}), [](const Array& g) {
              return Arrays{matrix_of({{-4 * g[0] / 3, 0, 4 * g[0] / 3}, {0, 0, 0}, Line(3, kNan), Line(3, kNan)})};
            }};
  return written_row("var", kFloats, w, [](const auto& in) { return var(in[0], {1}); });
}

// As for layer_norm, with two samples of each channel, and with two channels in each group.
inline void add_channel_norm_rows(std::vector<SpecialRow>& rows) {
  Array two = vector_of({2, 2}), three = vector_of({3, 3}), zero = matrix_of({{0, 0}, {0, 0}});
  Written batch{{matrix_of({{4097, -1}, {4095, 1}}), two, three}, matrix_of({{5, 1}, {1, 5}}), [=](const Array& g) {
                  return Arrays{zero, vector_of({g[0] - g[2], g[3] - g[1]}), vector_of({g[0] + g[2], g[1] + g[3]})};
                }};
  rows.push_back(written_row("batch_norm", kSingleAndDouble, batch,
                             [](const auto& in) { return batch_norm(in[0], in[1], in[2], 0.0).y; }));
  Array twos = vector_of(Line(4, 2)), threes = vector_of(Line(4, 3));
  Written group{{matrix_of({{4097, 4095, -1, 1}}), twos, threes}, matrix_of({{5, 1, 1, 5}}), [](const Array& g) {
                  return Arrays{matrix_of({Line(4, 0)}), vector_of({g[0], -g[1], -g[2], g[3]}), vector_of(g.at)};
                }};
  rows.push_back(written_row("group_norm", kSingleAndDouble, group,
                             [](const auto& in) { return group_norm(in[0], 2, in[1], in[2], 0.0); }));
}

// Zeros of both signs are equal and keep their order; a NaN is the largest.
inline SpecialRow special_sort_row(bool descends) {
  Line line{kNan, 1, -0.0, kInfinite, 0, -kInfinite, kNan, 1, -0.0}, sorted(9);
  std::vector<std::size_t> order = descends ? std::vector<std::size_t>{0, 6, 3, 1, 7, 2, 4, 8, 5}
                                            : std::vector<std::size_t>{5, 2, 4, 8, 1, 7, 3, 0, 6};
  for (std::size_t i = 0; i < 9; ++i) sorted[i] = line[order[i]];
  Written w{{vector_of(line)}, vector_of(sorted), [=](const Array& g) {
              Array d({9});
              for (std::size_t i = 0; i < 9; ++i) d.at[order[i]] = g.at[i];
              return Arrays{d};
            }};
  return written_row("sort", kFloats, w, [=](const auto& in) { return sort(in[0], 0, {descends}).values; });
}

inline SpecialRow special_scatter_add_row() {
  Written w{{vector_of({0, -0.0, kInfinite, 1, 6e4}), vector_of({1, 2, 3, 3, 4}),
             vector_of({-0.0, -kInfinite, kInfinite, 1, -6e4})},
            vector_of({0, -0.0, kNan, kInfinite, 0}),
            [](const Array& g) {
              return Arrays{g, vector_of({g[1], g[2], g[3], g[3], g[4]})};
            }};
  return written_row(
      "scatter_add", kFloats, w, [](const auto& in) { return scatter_add(in[0], in[1], in[2]); }, 1);
}

inline std::vector<SpecialRow> special_line_rows() {
  std::vector<SpecialRow> rows;
  for (bool is_log : {false, true}) {
    for (std::size_t length : {3, 1100}) {
      rows.push_back(special_softmax_row(is_log, true, length));
      rows.push_back(special_softmax_row(is_log, false, length));
    }
  }
  rows.push_back(special_cross_entropy_row({{1e6, 1e6 + 1, 1e6 + 2}}, {0}));
  rows.push_back(special_cross_entropy_row(
      {{1e4, 1e4 + 1, 1e4 + 2}, {-1e6, -1e6 + 1, -1e6 + 2}, {-kInfinite, 1, 2}, {0, -0.0, 1e-40}, {88, -88, 0}},
      {1, 2, 2, 0, 0}));
  rows.push_back(special_cross_entropy_row({{kInfinite, 1, 2}, {1, kNan, 2}, {1, 2, 3}}, {0, 0, 1}));
  // Scores of 2^26, which is 8 from its neighbours, and below; a tile of scores that are -inf in f32; infinite scores.
  rows.push_back(special_attention_row(8192, {8192, 8192}, {1, 3}));
  rows.push_back(special_attention_row(-8192, {-8192, 8192, -8192, -8192 + 0x1p-8}, {1, 7, 3, -2}));
  Line k(300, -1e30), v(300, 1);
  k[290] = k[299] = 1;
  v[299] = 5;
  rows.push_back(special_attention_row(1e30, k, v));
  rows.push_back(special_attention_row(kInfinite, {1, 2}, {1, 3}));
  rows.push_back(special_attention_row(1, {kNan, 2}, {1, 3}));
  add_fold_rows(rows);
  rows.push_back(special_matmul_row());
  rows.push_back(special_conv2d_row());
  add_pool_rows(rows);
  add_norm_rows(rows);
  rows.push_back(special_scatter_add_row());
  rows.push_back(special_var_row());
  add_channel_norm_rows(rows);
  rows.push_back(special_sort_row(false));
  rows.push_back(special_sort_row(true));
  return rows;
}

}  // namespace graphsink::testing
