// attention on the CPU: the same walk over tiles as on the GPU, their products by BLAS. f32 is summed in f32 by BLAS
// and in f64 along a row of exponentials.
#pragma once

#include "kernels/nn/attention.h"
#include "kernels/support/blas.h"
#include "kernels/support/row.h"

namespace graphsink {

constexpr std::int64_t kCpuQueries = 64;  // queries of a tile
constexpr std::int64_t kCpuKeys = 256;
constexpr std::int64_t kSummedKeys = 128;  // by one product: a longer sum takes BLAS longer

// A tile of one head: queries [first, first + rows), keys [at, at + columns).
struct AttentionTile {
  std::int64_t first, rows, at, columns;
};

// f(tile) for each tile of a head in which a query sees a key, those of the same queries after one another.
template <class F>
void for_each_tile(const AttentionSizes& s, const F& f) {
  for (std::int64_t first = 0; first < s.queries; first += kCpuQueries) {
    std::int64_t rows = std::min(kCpuQueries, s.queries - first), end = s.visible(first + rows - 1);
    for (std::int64_t at = 0; at < end; at += kCpuKeys) f(AttentionTile{first, rows, at, std::min(kCpuKeys, end - at)});
  }
}

// Rows from the given one on, as BLAS takes a matrix.
template <class T>
BlasMatrix<T> matrix_of(const HeadRows<const T>& rows, std::int64_t first, bool is_transposed = false) {
  return {rows[first], static_cast<int>(rows.pitch), is_transposed};
}

// scores = factor * a b^T for rows of a and b.
template <class T>
void multiply_rows(const AttentionTile& t, const AttentionSizes& s, T factor, HeadRows<const T> a, HeadRows<const T> b,
                   T* scores) {
  multiply(static_cast<int>(t.rows), static_cast<int>(t.columns), static_cast<int>(s.width), factor,
           matrix_of(a, t.first), matrix_of(b, t.at, true), T(0), scores, kCpuKeys);
}
// out += factor * scores b for the queries of the tile.
template <class T>
void add_to_queries(const AttentionTile& t, const AttentionSizes& s, T factor, const T* scores, HeadRows<const T> b,
                    HeadRows<T> out) {
  for (std::int64_t first = 0; first < t.columns; first += kSummedKeys) {
    multiply(static_cast<int>(t.rows), static_cast<int>(s.width),
             static_cast<int>(std::min(kSummedKeys, t.columns - first)), factor,
             BlasMatrix<T>{scores + first, kCpuKeys}, matrix_of(b, t.at + first), T(1), out[t.first],
             static_cast<int>(out.pitch));
  }
}
// out += factor * scores^T b for the keys of the tile.
template <class T>
void add_to_keys(const AttentionTile& t, const AttentionSizes& s, T factor, const T* scores, HeadRows<const T> b,
                 HeadRows<T> out) {
  multiply(static_cast<int>(t.columns), static_cast<int>(s.width), static_cast<int>(t.rows), factor,
           BlasMatrix<T>{scores, kCpuKeys, true}, matrix_of(b, t.first), T(1), out[t.at], static_cast<int>(out.pitch));
}

template <class T>
void clear(const HeadRows<T>& rows, std::int64_t count, std::int64_t width) {
  for (std::int64_t i = 0; i < count; ++i) std::fill_n(rows[i], width, T(0));
}

// The scores of a query become exponentials; `out` is relative to the largest score so far. Before a score above -inf,
// all exponentials are 0. Keys that the query does not see take part with a score of -inf: rows of one length, whose
// sums are vector code, take less time than shorter ones.
template <class T>
void soften_row(T* scores, std::int64_t seen, std::int64_t columns, T& largest, double& sum, T* out,
                std::int64_t width) {
  std::fill(scores + seen, scores + columns, -std::numeric_limits<T>::infinity());
  T most = std::max(largest, chained_max(columns, scores)), base = subtrahend(most);
  for_each_index(columns, [=](std::int64_t j) { scores[j] = math::exp(scores[j] - base); });
  if (largest != most) {
    T shrink = math::exp(largest - base);
    sum *= shrink;
    for_each_index(width, [=](std::int64_t c) { out[c] *= shrink; });
    largest = most;
  }
  sum += chained_sum(columns, [=](std::int64_t j) { return double{scores[j]}; });
}

template <class T>
void attend_head(const AttentionSizes& s, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                 HeadRows<T> out, AttentionNorms<T> norms, T* scores) {
  double sum[kCpuQueries];
  clear(out, s.queries, s.width);
  std::fill_n(norms.largest, s.queries, -std::numeric_limits<T>::infinity());
  std::fill_n(norms.log_sum, s.queries, T(0));  // result for queries that see no key
  for_each_tile(s, [&](const AttentionTile& t) {
    if (t.at == 0) std::fill_n(sum, t.rows, 0.0);
    multiply_rows(t, s, static_cast<T>(s.scale), q, k, scores);
    for (std::int64_t i = 0; i < t.rows; ++i) {
      std::int64_t query = t.first + i, seen = std::clamp<std::int64_t>(s.visible(query) - t.at, 0, t.columns);
      soften_row(scores + i * kCpuKeys, seen, t.columns, norms.largest[query], sum[i], out[query], s.width);
    }
    add_to_queries(t, s, T(1), scores, v, out);
    bool is_last = t.at + t.columns == s.visible(t.first + t.rows - 1);
    for (std::int64_t i = 0; is_last && i < t.rows; ++i) {
      if (s.visible(t.first + i) == 0) continue;
      T* row = out[t.first + i];
      auto total = static_cast<T>(sum[i]);
      for_each_index(s.width, [=](std::int64_t c) { row[c] /= total; });
      norms.log_sum[t.first + i] = static_cast<T>(math::log(sum[i]));
    }
  });
}

template <class T>
struct AttentionGradHead {
  HeadRows<const T> q, k, v, out;
  AttentionNorms<const T> norms;
  HeadRows<const T> g;
  HeadRows<T> q_grad, k_grad, v_grad;
};

// `scratch` holds two tiles of scores.
template <class T>
void attend_head_grad(const AttentionSizes& s, const AttentionGradHead<T>& h, T* scratch) {
  T *weights = scratch, *score_grad = scratch + kCpuQueries * kCpuKeys;
  clear(h.q_grad, s.queries, s.width);
  clear(h.k_grad, s.keys, s.width);
  clear(h.v_grad, s.keys, s.width);
  T deltas[kCpuQueries];
  for_each_tile(s, [&](const AttentionTile& t) {
    for (std::int64_t i = 0; t.at == 0 && i < t.rows; ++i) {
      const T *out = h.out[t.first + i], *g = h.g[t.first + i];
      deltas[i] = static_cast<T>(chained_sum(s.width, [=](std::int64_t c) { return double{out[c]} * g[c]; }));
    }
    multiply_rows(t, s, static_cast<T>(s.scale), h.q, h.k, weights);
    multiply_rows(t, s, T(1), h.g, h.v, score_grad);
    for (std::int64_t i = 0; i < t.rows; ++i) {
      std::int64_t query = t.first + i, seen = std::clamp<std::int64_t>(s.visible(query) - t.at, 0, t.columns);
      T *weight = weights + i * kCpuKeys, *grad = score_grad + i * kCpuKeys, delta = deltas[i];
      auto norms = h.norms;
      for_each_index(seen, [=](std::int64_t j) { weight[j] = norms.weight(weight[j], query); });
      for_each_index(seen, [=](std::int64_t j) { grad[j] = weight[j] * (grad[j] - delta); });
      std::fill(weight + seen, weight + t.columns, T(0));
      std::fill(grad + seen, grad + t.columns, T(0));
    }
    add_to_keys(t, s, T(1), weights, h.g, h.v_grad);
    add_to_keys(t, s, static_cast<T>(s.scale), score_grad, h.q, h.k_grad);
    add_to_queries(t, s, static_cast<T>(s.scale), score_grad, h.k, h.q_grad);
  });
}

}  // namespace graphsink
