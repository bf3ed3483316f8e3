// Rows of the op table: ops that compare elements, or go along an axis.
#include "op_reference_order.h"
#include "op_rows.h"

namespace graphsink::testing {

namespace {

// Gradients where elements differ; coarse rows have equal ones, and more cases.
void add_extreme_rows(std::vector<OpRow>& rows, std::vector<int> axes, bool keep_axes, const std::vector<Case>& cases,
                      const std::vector<Case>& more = {}) {
  for (bool is_max : {true, false}) {
    OpRow row{is_max ? "max" : "min",
              kSingleAndDouble,
              cases,
              [=](const auto& in) {
                return is_max ? max(in[0], axes, {.keep_axes = keep_axes}) : min(in[0], axes, {.keep_axes = keep_axes});
              },
              [=](const Arrays& in) { return extreme_of(in[0], axes, keep_axes, is_max); },
              true};
    rows.push_back(row);
    row.dtypes = kComparable;
    row.cases.insert(row.cases.end(), more.begin(), more.end());
    rows.push_back(coarse(without_grad(std::move(row))));
  }
}

void add_place_rows(std::vector<OpRow>& rows, int axis, bool keep_axis, const std::vector<Case>& cases) {
  for (bool is_max : {true, false}) {
    rows.push_back(
        coarse(without_grad({is_max ? "argmax" : "argmin", kComparable, cases,
                             [=](const auto& in) {
                               return is_max ? argmax(in[0], axis, {.keep_axes = keep_axis})
                                             : argmin(in[0], axis, {.keep_axes = keep_axis});
                             },
                             [=](const Arrays& in) { return extreme_place(in[0], axis, keep_axis, is_max); }},
                            kNoFloats)));
  }
}

// The share of the rows of in[0] whose largest element is at in[1], of those for which in[2] is 1 if there is one.
Array share_right(const Arrays& in) {
  const Array places = extreme_place(in[0], in[0].shape.rank() - 1, false, true);
  double right = 0, rows = 0;
  for (std::int64_t i = 0; i < places.shape.size(); ++i) {
    const bool counts = in.size() < 3 || in[2][i % in[2].shape.size()] == 1;
    rows += counts;
    right += counts && places[i] == in[1][i];
  }
  Array share{Shape{}};
  share[0] = in.size() < 3 ? right / rows : right / std::max(rows, 1.0);
  return share;
}

// The share is f32 for every dtype, so cases without a mask have numbers of rows by which it is exact.
void add_accuracy_rows(std::vector<OpRow>& rows) {
  const char* because = "It has no gradient.";
  for (DType labels : {i32, i64}) {
    const std::vector<Case> cases{{{4, 3}, indices({4}, 3)},
                                  {{2, 8, 2}, indices({2, 8}, 2)},
                                  {{5}, indices({}, 5)},
                                  {{0, 3}, indices({0}, 3)},
                                  {{256, 2}, indices({256}, 3)}};
    rows.push_back(
        coarse(without_grad({"accuracy", kComparable, cases,
                             [=](const auto& in) { return accuracy(in[0], cast(in[1], labels)); }, share_right},
                            because)));
  }
  const std::vector<Case> masked{{{7, 3}, indices({7}, 3), indices({7}, 2)},
                                 {{3, 5, 2}, indices({3, 5}, 2), indices({5}, 2)},
                                 {{3, 2}, indices({3}, 2), indices({3}, 1)},
                                 {{0, 2}, indices({0}, 2), indices({0}, 2)}};
  rows.push_back(coarse(without_grad({"accuracy",
                                      {f32, f16, bf16},
                                      masked,
                                      [](const auto& in) { return accuracy(in[0], in[1], equal(in[2], 1)); },
                                      share_right},
                                     because)));
}

// Where the last of the k and the next one are as close as the steps of the differences, gradients are left out.
void add_top_k_rows(std::vector<OpRow>& rows, std::int64_t k, int axis, const std::vector<Case>& cases,
                    bool has_grad = true) {
  OpRow values{"top_k",
               kSingleAndDouble,
               cases,
               [=](const auto& in) { return top_k(in[0], k, axis).values; },
               [=](const Arrays& in) { return top_of(in[0], k, axis, false); },
               true};
  if (has_grad) rows.push_back(values);
  values.dtypes = kComparable;
  rows.push_back(coarse(without_grad(std::move(values))));
  rows.push_back(coarse({"top_k", kComparable, cases, [=](const auto& in) { return top_k(in[0], k, axis).indices; },
                         [=](const Arrays& in) { return top_of(in[0], k, axis, true); }}));
}

void add_sort_rows(std::vector<OpRow>& rows, int axis, const std::vector<Case>& cases, bool has_grad = true) {
  for (bool descends : {false, true}) {
    OpRow values{"sort",
                 kSingleAndDouble,
                 cases,
                 [=](const auto& in) { return sort(in[0], axis, {descends}).values; },
                 [=](const Arrays& in) { return sorted_of(in[0], axis, descends, false); },
                 true};
    if (has_grad) rows.push_back(values);
    values.dtypes = kComparable;
    rows.push_back(coarse(without_grad(std::move(values))));
    rows.push_back(
        coarse({"sort", kComparable, cases, [=](const auto& in) { return sort(in[0], axis, {descends}).indices; },
                [=](const Arrays& in) { return sorted_of(in[0], axis, descends, true); }}));
  }
}

void add_cumsum_rows(std::vector<OpRow>& rows, int axis, const std::vector<Case>& cases, bool has_grad = true) {
  for (bool exclusive : {false, true}) {
    for (bool reverse : {false, true}) {
      rows.push_back({"cumsum", kNumbers, cases,
                      [=](const auto& in) { return cumsum(in[0], axis, {.exclusive = exclusive, .reverse = reverse}); },
                      [=](const Arrays& in) { return sums_along(in[0], axis, exclusive, reverse); }, has_grad});
    }
  }
}

}  // namespace

// Thread, warp and block for each element, several blocks for one, none at all.
void add_order_rows(std::vector<OpRow>& rows) {
  add_extreme_rows(rows, {}, false, {{{2, 3}}, {Shape{}}, {{1}}, {{257}}, {{1031}}}, {{{1, 33000}}});
  add_extreme_rows(rows, {1}, false, {{{2, 3}}, {{0, 3}}, {{1, 1}}, {{1031, 5}}, {{5, 1031}}}, {{{1031, 37}}});
  add_extreme_rows(rows, {0}, true, {{{2, 3}}, {{3, 0}}, {{1031, 5}}}, {{{33, 8200}}});
  add_extreme_rows(rows, {0, -1}, false, {{{2, 3, 4}}, {{1, 1, 1}}, {{17, 5, 31}}, {{131, 2, 3}}});
  add_place_rows(rows, 0, false, {{{3}}, {{1}}, {{257}}, {{2, 3}}, {{3, 0}}, {{1031, 5}}, {{33, 8200}}});
  add_place_rows(rows, -1, true, {{{2, 3}}, {{0, 3}}, {{1031, 5}}, {{5, 1031}}, {{1031, 37}}, {{2, 33000}}});
  add_place_rows(rows, 1, false, {{{2, 3, 4}}, {{7, 257, 33}}});
  add_accuracy_rows(rows);
  // One sort and several, all of the line and one element of it; long lines.
  add_top_k_rows(rows, 1, -1, {{{1}}, {{2, 3}}, {{0, 3}}, {{3, 257}}, {{2, 5000}}});
  add_top_k_rows(rows, 3, 1, {{{2, 3}}, {{5, 37, 7}}, {{2, 3, 0}}, {{2, 1031, 3}}});
  add_top_k_rows(rows, 1024, 0, {{{1024}}, {{1031}}, {{3100, 2}}}, false);
  // More lines than a grid has blocks.
  const Case many_lines{{4099, 3}};
  rows.push_back(coarse({"top_k",
                         {f32},
                         {many_lines},
                         [](const auto& in) { return top_k(in[0], 2, 1).values; },
                         [](const Arrays& in) { return top_of(in[0], 2, 1, false); }}));
  rows.push_back(coarse({"sort",
                         {f32},
                         {many_lines},
                         [](const auto& in) { return sort(in[0], 1).values; },
                         [](const Arrays& in) { return sorted_of(in[0], 1, false, false); }}));
  // A block for each line; lines too long for a block, which are sorted together.
  add_sort_rows(rows, -1, {{{1}}, {{2, 3}}, {{0, 3}}, {{3, 0}}, {{3, 257}}});
  add_sort_rows(rows, 1, {{{2, 3}}, {{5, 37, 7}}, {{2, 3, 0}}});
  add_sort_rows(rows, 0, {{{2049}}, {{9000, 2}}}, false);
  add_sort_rows(rows, 1, {{{3, 2048}}, {{2, 2049, 3}}}, false);
  // A thread for each line, one stretch of a block and several; lines that many blocks share.
  add_cumsum_rows(rows, 0, {{{3}}, {{0}}, {{1}}, {{257}}, {{1031}}, {{31, 5}}, {{3, 0}}});
  add_cumsum_rows(rows, -1, {{{2, 3}}, {{0, 3}}, {{3, 0}}, {{37, 41}}, {{2, 1031}}});
  add_cumsum_rows(rows, 1, {{{2, 3, 4}}, {{7, 257, 3}}});
  add_cumsum_rows(rows, 0, {{{40, 8192}}, {{16384}}, {{16385, 3}}}, false);
}

}  // namespace graphsink::testing
