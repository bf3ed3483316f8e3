// Rows of the op table: products of batches, and ops that move data.
#include "op_reference_data.h"
#include "op_rows.h"

namespace graphsink::testing {

namespace {

// Plain matrices on either side, equal batches, and batches that broadcast; none at all, and sums of nothing.
OpRow batched_matmul_row(MatmulOptions options) {
  std::vector<Case> cases;
  struct Sizes {
    Shape batch_a, batch_b;
    std::int64_t m, k, n;
  };
  for (const auto& [batch_a, batch_b, m, k, n] : std::initializer_list<Sizes>{{{2}, {2}, 2, 3, 4},
                                                                              {{2, 3}, {}, 5, 3, 4},
                                                                              {{}, {3}, 2, 5, 3},
                                                                              {{3}, {1}, 2, 5, 3},
                                                                              {{1}, {2, 3}, 2, 5, 3},
                                                                              {{4, 1}, {1, 3}, 3, 2, 5},
                                                                              {{2, 1, 3}, {4, 1}, 1, 3, 2},
                                                                              {{0}, {0}, 2, 3, 4},
                                                                              {{0}, {}, 2, 3, 4},
                                                                              {{3}, {3}, 2, 0, 4},
                                                                              {{3}, {}, 0, 2, 4},
                                                                              {{7}, {7}, 33, 17, 9}}) {
    auto shape = [](Shape batch, std::int64_t rows, std::int64_t columns, bool is_transposed) {
      batch.push_back(is_transposed ? columns : rows);
      batch.push_back(is_transposed ? rows : columns);
      return batch;
    };
    cases.push_back({shape(batch_a, m, k, options.transpose_a), shape(batch_b, k, n, options.transpose_b)});
  }
  return {"matmul",
          options.out ? std::vector<DType>{f16, bf16} : kFloats,
          cases,
          [=](const auto& in) { return matmul(in[0], in[1], options); },
          [=](const Arrays& in) { return batched_product(in[0], in[1], options.transpose_a, options.transpose_b); },
          true};
}

OpRow permute_row(std::vector<int> axes, std::vector<Case> cases) {
  std::vector<int> from_front = axes;
  for (int& axis : from_front) axis = axis < 0 ? axis + static_cast<int>(axes.size()) : axis;
  return {"permute",
          kAll,
          std::move(cases),
          [=](const auto& in) { return permute(in[0], axes); },
          [=](const Arrays& in) { return permuted(in[0], from_front); },
          true};
}

OpRow slice_row(Numbers begins, Numbers ends, Numbers steps, std::vector<Case> cases) {
  return {"slice",
          kAll,
          std::move(cases),
          [=](const auto& in) { return slice(in[0], begins, ends, steps); },
          [=](const Arrays& in) { return sliced(in[0], begins, ends, steps); },
          true};
}

OpRow pad_row(Numbers before, Numbers after, double value, std::vector<Case> cases) {
  return {"pad",
          kAll,
          std::move(cases),
          [=](const auto& in) { return pad(in[0], before, after, value); },
          [=](const Arrays& in) { return padded(in[0], before, after, value); },
          true};
}

OpRow concat_row(int axis, std::vector<Case> cases) {
  return {"concat",
          kAll,
          std::move(cases),
          [=](const auto& in) {
            return concat({in.begin(), in.end()}, axis);
          },
          [=](const Arrays& in) { return joined(in, axis); },
          true};
}

// The parts in reverse order, the last of them twice: each part takes part, in its place.
OpRow split_row(Numbers sizes, int parts, int axis, std::vector<Case> cases) {
  return {"split",
          kAll,
          std::move(cases),
          [=](const auto& in) {
            std::vector<Value> made = parts > 0 ? split(in[0], parts, axis) : split(in[0], sizes, axis);
            std::vector<Arg> turned(made.rbegin(), made.rend());
            turned.push_back(turned[0]);
            return concat(turned, axis);
          },
          [=](const Arrays& in) {
            Arrays made = parted(in[0], sizes, axis), turned(made.rbegin(), made.rend());
            turned.push_back(turned[0]);
            return joined(turned, axis);
          },
          true};
}

OpRow gather_row(int axis, std::vector<Case> cases) {
  return {"gather",
          kAll,
          std::move(cases),
          [=](const auto& in) { return gather(in[0], in[1], axis); },
          [=](const Arrays& in) { return gathered(in[0], in[1], axis); },
          true};
}

OpRow scatter_add_row(int axis, std::vector<Case> cases) {
  return {"scatter_add",
          {f32, f64, f16, bf16, i32},
          std::move(cases),
          [=](const auto& in) { return scatter_add(in[0], in[1], in[2], axis); },
          [=](const Arrays& in) { return scattered(in[0], in[1], in[2], axis); },
          true};
}

// Rows that stay rows, tiles, axes that merge, axes of one element, and nothing.
void add_permute_rows(std::vector<OpRow>& rows) {
  rows.push_back(permute_row({}, {{Shape{}}}));
  rows.push_back(permute_row({0}, {{{257}}, {{0}}}));
  rows.push_back(permute_row({1, 0}, {{{2, 3}}, {{1, 7}}, {{0, 3}}, {{37, 41}}, {{64, 32}}}));
  rows.push_back(permute_row({1, 0, 2}, {{{3, 5, 8}}, {{33, 2, 3}}, {{2, 1, 3}}}));
  rows.push_back(permute_row({-1, 0, 1}, {{{3, 5, 35}}, {{2, 3, 1}}, {{4, 0, 2}}}));
  rows.push_back(permute_row({2, 1, 0}, {{{3, 4, 5}}, {{33, 3, 34}}, {{1, 37, 2}}}));
  rows.push_back(permute_row({0, 2, 1, 3}, {{{2, 3, 4, 5}}, {{2, 5, 3, 16}}}));
  rows.push_back(permute_row({0, 2, 3, 1}, {{{2, 3, 5, 7}}, {{1, 40, 2, 33}}}));
  rows.push_back(permute_row({3, 1, 4, 0, 2}, {{{2, 3, 2, 3, 4}}, {{2, 1, 5, 1, 3}}}));
}

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                       kLeast = std::numeric_limits<std::int64_t>::min();

void add_slice_rows(std::vector<OpRow>& rows) {
  rows.push_back(slice_row({}, {}, {}, {{Shape{}}, {{0}}, {{2, 3}}}));
  rows.push_back(slice_row({2}, {kMost}, {}, {{{5}}, {{2}}, {{1}}, {{0}}, {{1031}}, {{4, 16}}, {{37, 3}}}));
  rows.push_back(slice_row({-3}, {-1}, {}, {{{5}}, {{2}}, {{4, 3}}}));
  rows.push_back(slice_row({4}, {1}, {}, {{{5}}}));
  rows.push_back(slice_row({kMost}, {kLeast}, {-1}, {{{5}}, {{0}}, {{1}}, {{1031}}, {{4, 3}}}));
  rows.push_back(slice_row({-2}, {to_end}, {-2}, {{{5}}, {{1}}, {{0}}, {{7, 3}}}));
  rows.push_back(slice_row({-2}, {-20}, {-3}, {{{11}}, {{2}}, {{4, 5}}}));
  rows.push_back(slice_row({1, 0}, {kMost, kMost}, {2, 3}, {{{7, 10}}, {{2, 2}}, {{37, 41}}}));
  rows.push_back(slice_row({0, 1, 4}, {2, -1, 12}, {1, 1, 1}, {{{3, 4, 16}}, {{2, 3, 12}}}));
  rows.push_back(slice_row({0, kMost, 1}, {kMost, kLeast, kMost}, {1, -2, 1}, {{{2, 5, 4}}, {{3, 2, 2}}}));
  rows.push_back(slice_row({1, 1}, {2, 2}, {5, -1}, {{{3, 3}}}));
}

void add_pad_rows(std::vector<OpRow>& rows) {
  rows.push_back(pad_row({}, {}, 1, {{Shape{}}}));
  rows.push_back(pad_row({2}, {1}, 1, {{{5}}, {{0}}, {{1031}}}));
  rows.push_back(pad_row({0}, {0}, 1, {{{5}}, {{0}}}));
  rows.push_back(pad_row({0, 4}, {0, 8}, 0, {{{3, 16}}, {{3, 4}}, {{2, 1}}}));
  rows.push_back(pad_row({1, 0}, {2, 0}, 1, {{{3, 5}}, {{37, 41}}, {{0, 3}}}));
  rows.push_back(pad_row({0, 1, 2}, {1, 0, 3}, 1, {{{2, 3, 4}}, {{1, 1, 1}}}));
  rows.push_back(pad_row({0, 0, 1, 1}, {0, 0, 1, 1}, 0, {{{2, 3, 5, 7}}}));
}

void add_concat_rows(std::vector<OpRow>& rows) {
  rows.push_back(concat_row(0, {{{2}, {3}}, {{0}, {5}, {0}}, {{1031}, {257}, {3}}, {{2, 3}, {1, 3}}, {{4}}}));
  rows.push_back(concat_row(-1, {{{2, 3}, {2, 4}}, {{37, 8}, {37, 4}, {37, 16}}, {{0, 3}, {0, 1}}, {{2, 0}, {2, 3}}}));
  rows.push_back(concat_row(1, {{{2, 3, 5}, {2, 1, 5}, {2, 2, 5}}, {{33, 2, 4}, {33, 7, 4}}}));
  rows.push_back(split_row({2, 3}, 0, 0, {{{5}}, {{5, 7}}, {{5, 0}}}));
  rows.push_back(split_row({4, 0, 8}, 0, -1, {{{12}}, {{37, 12}}, {{0, 12}}}));
  rows.push_back(split_row({2, 2, 2}, 3, 1, {{{5, 6}}, {{5, 6, 4}}}));
  rows.push_back(split_row({257}, 1, 0, {{{257}}}));
}

void add_gather_rows(std::vector<OpRow>& rows) {
  rows.push_back(gather_row(0, {{{5}, indices({4}, 5)},
                                {{5, 3}, indices({2, 3}, 5)},
                                {{5, 3}, indices({}, 5)},
                                {{5, 3}, indices({0}, 5)},
                                {{5, 0}, indices({2}, 5)},
                                {{7, 257}, indices({31}, 7)},
                                {{11, 4}, indices({1031}, 11)}}));
  rows.push_back(gather_row(1, {{{3, 5}, indices({4}, 5)},
                                {{2, 7, 3}, indices({2, 2}, 7)},
                                {{0, 7, 3}, indices({2}, 7)},
                                {{33, 5, 8}, indices({9}, 5)}}));
  rows.push_back(gather_row(-1, {{{3, 5}, indices({4}, 5)}, {{2, 3, 7}, indices({}, 7)}}));
  rows.push_back(scatter_add_row(0, {{{5}, indices({4}, 5), {4}},
                                     {{5, 3}, indices({2, 3}, 5), {2, 3, 3}},
                                     {{5, 3}, indices({}, 5), {3}},
                                     {{5, 3}, indices({0}, 5), {0, 3}},
                                     {{5, 0}, indices({2}, 5), {2, 0}},
                                     {{3, 257}, indices({71}, 3), {71, 257}},
                                     {{257, 2}, indices({65}, 257), {65, 2}},
                                     {{257}, indices({9000}, 257), {9000}}}));
  rows.push_back(
      scatter_add_row(-2, {{{3, 5, 2}, indices({4}, 5), {3, 4, 2}}, {{0, 5, 2}, indices({4}, 5), {0, 4, 2}}}));
}

OpRow conv2d_row(Conv2dOptions options, std::vector<Case> cases) {
  return {"conv2d",
          kSingleAndDouble,
          std::move(cases),
          [=](const auto& in) { return conv2d(in[0], in[1], options); },
          [=](const Arrays& in) { return convolved(in[0], in[1], options); },
          true};
}
// One element for each window, filters that are the whole image, one by one, no images, groups, and every option.
void add_conv2d_rows(std::vector<OpRow>& rows) {
  rows.push_back(conv2d_row({}, {{{1, 1, 1, 1}, {1, 1, 1, 1}},
                                 {{2, 3, 5, 4}, {4, 3, 3, 2}},
                                 {{3, 2, 4, 5}, {3, 2, 4, 5}},
                                 {{2, 3, 7, 5}, {5, 3, 1, 1}},
                                 {{0, 3, 5, 4}, {4, 3, 3, 2}},
                                 {{2, 0, 5, 4}, {4, 0, 3, 2}},
                                 {{5, 3, 11, 13}, {7, 3, 3, 3}}}));
  rows.push_back(conv2d_row({.stride = {2, 1}, .padding = {1, 2}}, {{{2, 3, 5, 4}, {4, 3, 3, 3}}}));
  rows.push_back(conv2d_row({.stride = {1, 3}, .padding = {0, 1}, .dilation = {2, 1}}, {{{2, 2, 7, 8}, {3, 2, 3, 2}}}));
  rows.push_back(conv2d_row({.stride = {2, 2}}, {{{2, 3, 5, 5}, {4, 3, 1, 1}}}));
  rows.push_back(conv2d_row({.padding = {1, 1}, .groups = 2}, {{{3, 4, 5, 4}, {6, 2, 3, 3}}}));
  rows.push_back(
      conv2d_row({.padding = {1, 1}, .groups = 5}, {{{2, 5, 4, 3}, {5, 1, 3, 3}}, {{2, 5, 4, 3}, {10, 1, 1, 1}}}));
  rows.push_back(conv2d_row({.groups = 3}, {{{2, 6, 4, 3}, {3, 2, 1, 1}}}));
}

OpRow pool_row(bool is_max, std::array<std::int64_t, 2> window, Pool2dOptions options, std::vector<Case> cases) {
  WindowOptions windows{window, options.stride, options.padding};
  if (options.stride[0] == 0) windows.stride = window;
  return {
      is_max ? "max_pool2d" : "avg_pool2d",
      kSingleAndDouble,
      std::move(cases),
      [=](const auto& in) { return is_max ? max_pool2d(in[0], window, options) : avg_pool2d(in[0], window, options); },
      [=](const Arrays& in) { return pooled(in[0], windows, is_max); },
      true};
}
void add_pool_rows(std::vector<OpRow>& rows) {
  for (bool is_max : {true, false}) {
    rows.push_back(
        pool_row(is_max, {2, 2}, {}, {{{2, 3, 4, 6}}, {{5, 7}}, {{0, 3, 4, 4}}, {{3, 2, 2}}, {{3, 37, 41}}}));
    rows.push_back(pool_row(is_max, {3, 2}, {.stride = {2, 1}, .padding = {1, 1}}, {{{2, 3, 5, 4}}, {{1, 1, 1, 1}}}));
    rows.push_back(pool_row(is_max, {1, 1}, {.stride = {2, 3}}, {{{2, 5, 7}}}));
  }
}

OpRow view_row(std::string name, Value (*op)(Arg, int, Placement), int axis, std::vector<Case> cases,
               std::function<Shape(Shape)> shape) {
  return {std::move(name),
          kAll,
          std::move(cases),
          [=](const auto& in) { return op(in[0], axis, {}); },
          [=](const Arrays& in) { return with_shape(in[0], shape(in[0].shape)); },
          true};
}
void add_view_rows(std::vector<OpRow>& rows) {
  rows.push_back(view_row("flatten", flatten, 1, {{{2, 3}}, {{2, 3, 4}}, {{0, 3, 4}}}, [](Shape s) {
    return Shape{s[0], s.rank() == 2 ? s[1] : s[1] * s[2]};
  }));
  rows.push_back(view_row("flatten", flatten, -2, {{{2, 3, 4}}}, [](Shape s) { return Shape{s[0], s[1] * s[2]}; }));
  rows.push_back(view_row("squeeze", squeeze, -1, {{{5, 1}}, {{0, 1}}}, [](Shape s) { return Shape{s[0]}; }));
  rows.push_back(view_row("squeeze", squeeze, 0, {{{1, 2, 3}}, {{1, 1, 1}}}, [](Shape s) {
    return Shape{s[1], s[2]};
  }));
  rows.push_back(view_row("unsqueeze", unsqueeze, 1, {{{5, 7}}}, [](Shape s) { return Shape{s[0], 1, s[1]}; }));
  rows.push_back(view_row("unsqueeze", unsqueeze, -1, {{{5}}, {{0}}}, [](Shape s) { return Shape{s[0], 1}; }));
  for (int axis : {0, 1, -1}) {
    rows.push_back({"stack",
                    kAll,
                    {{{4}, {4}}, {{0}, {0}}, {{3}, {3}, {3}}},
                    [=](const auto& in) {
                      return stack({in.begin(), in.end()}, axis);
                    },
                    [=](const Arrays& in) {
                      Arrays parts;
                      for (const Array& x : in)
                        parts.push_back(with_shape(x, axis == 0 ? Shape{1, x.shape[0]} : Shape{x.shape[0], 1}));
                      return joined(parts, axis);
                    },
                    true});
  }
}

// Rectangles of both kinds, with the diagonal in them and beyond them.
void add_triangle_rows(std::vector<OpRow>& rows) {
  for (std::int64_t diagonal : {0, 2, -1, 40}) {
    for (bool is_upper : {false, true}) {
      rows.push_back({is_upper ? "triu" : "tril", kAll, kMatrices,
                      [=](const auto& in) { return is_upper ? triu(in[0], diagonal) : tril(in[0], diagonal); },
                      [=](const Arrays& in) {
                        return generate(in[0].shape, [&](const Shape& at) {
                          bool is_kept = is_upper ? at[-1] - at[-2] >= diagonal : at[-1] - at[-2] <= diagonal;
                          return is_kept ? in[0][index_of(in[0].shape, at)] : 0.0;
                        });
                      },
                      true});
    }
  }
}

void add_take_along_rows(std::vector<OpRow>& rows, int axis, std::vector<Case> cases,
                         std::vector<DType> dtypes = kAll) {
  rows.push_back({"take_along_axis", std::move(dtypes), std::move(cases),
                  [=](const auto& in) { return take_along_axis(in[0], in[1], axis); },
                  [=](const Arrays& in) {
                    return generate(in[1].shape, [&](Shape at) {
                      at[axis] = static_cast<std::int64_t>(in[1][index_of(in[1].shape, at)]);
                      return in[0][index_of(in[0].shape, at)];
                    });
                  },
                  true});
}

void add_index_rows(std::vector<OpRow>& rows) {
  // One index for each line and many, lines that are apart, none of either.
  add_take_along_rows(rows, 1,
                      {{{2, 5}, indices({2, 1}, 5)},
                       {{5, 37}, indices({5, 1031}, 37)},
                       {{2, 7, 33}, indices({2, 4, 33}, 7)},
                       {{0, 5}, indices({0, 3}, 5)},
                       {{3, 5}, indices({3, 0}, 5)}});
  add_take_along_rows(rows, -1, {{{5}, indices({9000}, 5)}, {{3, 1, 4}, indices({3, 1, 4}, 4)}}, kFloats);
  for (DType dtype : kAll) {
    rows.push_back(without_grad(
        {"one_hot",
         {i32},
         {{indices({2}, 5)}, {indices({3, 2}, 5)}, {indices({0}, 5)}, {indices({}, 5)}, {indices({1031}, 5)}},
         [=](const auto& in) { return one_hot(in[0], 5, dtype); },
         [=](const Arrays& in) {
           Shape shape = in[0].shape;
           shape.push_back(5);
           return generate(shape, [&](const Shape& at) {
             Shape line(at.dims().first(static_cast<std::size_t>(at.rank() - 1)));
             return double(in[0][index_of(in[0].shape, line)] == static_cast<double>(at[-1]));
           });
         }},
        kNoFloats));
  }
  for (DType dtype : {f32, f64, i32, i64}) {
    rows.push_back(without_grad({"arange",
                                 {f32, boolean},
                                 {{{2, 3}}, {{0, 3}}, {{1031, 1}}},
                                 [=](const auto& in) { return arange(in[0], -2, dtype); },
                                 [=](const Arrays& in) {
                                   return generate({in[0].shape[0]},
                                                   [&](const Shape& at) { return static_cast<double>(at[0]); });
                                 }},
                                "The data of `like` is not read."));
  }
}

}  // namespace

void add_data_rows(std::vector<OpRow>& rows) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      rows.push_back(batched_matmul_row({.transpose_a = transpose_a, .transpose_b = transpose_b}));
      rows.push_back(batched_matmul_row({.transpose_a = transpose_a, .transpose_b = transpose_b, .out = f32}));
    }
  }
  add_permute_rows(rows);
  add_slice_rows(rows);
  add_pad_rows(rows);
  add_concat_rows(rows);
  add_gather_rows(rows);
  add_triangle_rows(rows);
  add_index_rows(rows);
  add_view_rows(rows);
  add_conv2d_rows(rows);
  add_pool_rows(rows);
}

}  // namespace graphsink::testing
