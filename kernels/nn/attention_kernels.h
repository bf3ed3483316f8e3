// attention on the GPU: Dao 2023, "FlashAttention-2", algorithms 1 and 2. A block owns a tile of queries (or of keys,
// for their gradients) and walks over the tiles of the other side; what it owns is added up by it alone, in that order.
#pragma once

#include "kernels/nn/attention.h"

namespace graphsink {

// kSide x kSide threads work on kTile x kTile scores; vectors are of kWidth elements, zeros beyond the real width.
// Thread (x, y) has rows y + i * kSide and columns x + j * kSide. Shared rows have one element more, which spreads
// them over the banks.
template <class T, int kWidth_, int kTile_>
struct AttentionBlock {
  static constexpr int kWidth = kWidth_, kTile = kTile_;
  static constexpr int kSide = std::min(kTile, 16);
  static constexpr int kRows = kTile / kSide;      // rows of a thread
  static constexpr int kColumns = kWidth / kSide;  // columns of a thread, in results of kWidth columns
  static constexpr unsigned kThreads = kSide * kSide;
  using Vectors = T[kTile][kWidth + 1];
  using Scores = T[kTile][kTile + 1];

  static __device__ int x() { return static_cast<int>(threadIdx.x) % kSide; }
  static __device__ int y() { return static_cast<int>(threadIdx.x) / kSide; }

  // The first `count` rows of `from`, zeros after them.
  static __device__ void load(Vectors& to, HeadRows<const T> from, std::int64_t count, std::int64_t width) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kWidth; i += static_cast<int>(kThreads)) {
      int row = i / kWidth, column = i % kWidth;
      to[row][column] = row < count && column < width ? from[row][column] : T(0);
    }
  }

  // products = a b^T
  static __device__ void multiply(const Vectors& a, const Vectors& b, T (&products)[kRows][kRows]) {
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kRows; ++j) products[i][j] = T(0);
    for (int c = 0; c < kWidth; ++c) {
      T left[kRows], right[kRows];
      for (int i = 0; i < kRows; ++i) left[i] = a[y() + i * kSide][c];
      for (int j = 0; j < kRows; ++j) right[j] = b[x() + j * kSide][c];
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kRows; ++j) products[i][j] += left[i] * right[j];
    }
  }

  // sums += weights b, or weights^T b.
  template <bool kTransposed>
  static __device__ void add_product(const Scores& weights, const Vectors& b, T (&sums)[kRows][kColumns]) {
    for (int k = 0; k < kTile; ++k) {
      T left[kRows], right[kColumns];
      for (int i = 0; i < kRows; ++i) left[i] = kTransposed ? weights[k][y() + i * kSide] : weights[y() + i * kSide][k];
      for (int c = 0; c < kColumns; ++c) right[c] = b[k][x() + c * kSide];
      for (int i = 0; i < kRows; ++i)
        for (int c = 0; c < kColumns; ++c) sums[i][c] += left[i] * right[c];
    }
  }

  static __device__ void store(HeadRows<T> to, const T (&values)[kRows][kColumns], T factor, std::int64_t count,
                               std::int64_t width) {
    for (int i = 0; i < kRows; ++i)
      for (int c = 0; c < kColumns; ++c)
        if (y() + i * kSide < count && x() + c * kSide < width)
          to[y() + i * kSide][x() + c * kSide] = values[i][c] * factor;
  }

  // Over the threads that share a row, which are neighbours in a warp.
  template <class F>
  static __device__ T combine_row(T value, const F& f) {
    for (int offset = kSide / 2; offset > 0; offset /= 2) value = f(value, __shfl_xor_sync(kAllLanes, value, offset));
    return value;
  }
};

// Exponentials of one row of a tile go to `weights`; `largest` and `sum` are of the whole row so far, and `sums`, which
// are relative to the largest score, follow it. Keys [0, seen) of the tile are visible. Before a score above -inf, all
// exponentials are 0.
template <class B, class T>
__device__ void soften_row(T (&scores)[B::kRows], T (&weights)[B::kTile + 1], std::int64_t seen, T& largest, T& sum,
                           T (&sums)[B::kColumns]) {
  T most = largest;
  for (int j = 0; j < B::kRows; ++j)
    if (B::x() + j * B::kSide < seen) most = most < scores[j] ? scores[j] : most;
  most = B::combine_row(most, [](T a, T b) { return a < b ? b : a; });
  T base = subtrahend(most), added(0);
  for (int j = 0; j < B::kRows; ++j) {
    T weight = B::x() + j * B::kSide < seen ? math::exp(scores[j] - base) : T(0);
    weights[B::x() + j * B::kSide] = weight;
    added += weight;
  }
  added = B::combine_row(added, [](T a, T b) { return a + b; });
  T shrink = largest == most ? T(1) : math::exp(largest - base);
  sum = sum * shrink + added;
  for (T& s : sums) s *= shrink;
  largest = most;
}

template <class B, class T>
__global__ void attention_rows(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out,
                               AttentionNorms<T> norms, AttentionSizes s) {
  wait_for_inputs();
  __shared__ typename B::Vectors queries, others;  // keys, then values
  __shared__ typename B::Scores weights;
  std::int64_t tiles = (s.queries + B::kTile - 1) / B::kTile;
  std::int64_t head = blockIdx.x / tiles, first = blockIdx.x % tiles * B::kTile;
  std::int64_t count = s.queries - first < B::kTile ? s.queries - first : B::kTile;
  const HeadRows<const T> keys = k.rows(s, head), values = v.rows(s, head);
  B::load(queries, q.rows(s, head).from(first), count, s.width);
  T sums[B::kRows][B::kColumns] = {}, largest[B::kRows], sum[B::kRows] = {};
  for (T& x : largest) x = T(-INFINITY);
  std::int64_t end = s.visible(first + count - 1);
  for (std::int64_t at = 0; at < end; at += B::kTile) {
    B::load(others, keys.from(at), s.keys - at, s.width);
    __syncthreads();
    T scores[B::kRows][B::kRows];
    B::multiply(queries, others, scores);
    for (int i = 0; i < B::kRows; ++i) {
      for (T& score : scores[i]) score *= static_cast<T>(s.scale);
      int row = B::y() + i * B::kSide;
      std::int64_t seen = (s.visible(first + row) < s.keys ? s.visible(first + row) : s.keys) - at;
      soften_row<B>(scores[i], weights[row], seen, largest[i], sum[i], sums[i]);
    }
    __syncthreads();  // the weights are there, and the keys no longer needed
    B::load(others, values.from(at), s.keys - at, s.width);
    __syncthreads();
    B::template add_product<false>(weights, others, sums);
    __syncthreads();  // before the next keys
  }
  for (int i = 0; i < B::kRows; ++i) {
    int row = B::y() + i * B::kSide;
    bool sees_keys = s.visible(first + row) > 0;
    for (T& x : sums[i]) x = sees_keys ? x / sum[i] : T(0);
    if (row >= count || B::x() != 0) continue;
    norms.largest[head * s.queries + first + row] = largest[i];
    norms.log_sum[head * s.queries + first + row] = sees_keys ? math::log(sum[i]) : T(0);
  }
  B::store(out.rows(s, head).from(first), sums, T(1), count, s.width);
}

// --- backward

// delta = sum(out * gradient of it) for each query; a warp each.
template <class T>
__global__ void attention_deltas(Heads<const T> out, Heads<const T> g, T* delta, AttentionSizes s) {
  wait_for_inputs();
  std::int64_t lane = threadIdx.x % kWarp, rows = s.heads * s.queries;
  for (std::int64_t row = thread_index() / kWarp; row < rows; row += all_threads() / kWarp) {
    const std::int64_t head = row / s.queries, query = row % s.queries;
    const T *out_row = out.rows(s, head)[query], *g_row = g.rows(s, head)[query];
    T sum(0);
    for (std::int64_t c = lane; c < s.width; c += kWarp) sum += out_row[c] * g_row[c];
    sum = warp_sum(sum);
    if (lane == 0) delta[row] = sum;
  }
}

template <class T>
struct AttentionGradInputs {
  Heads<const T> q, k, v;
  AttentionNorms<const T> norms;
  Heads<const T> g;
  const T* delta;
};

// Gradients of the scores of a tile of queries and a tile of keys, and, if wanted, the weights themselves.
template <class B, class T>
__device__ void score_grads(const typename B::Vectors& queries, const typename B::Vectors& keys,
                            const typename B::Vectors& values, const typename B::Vectors& grads,
                            AttentionNorms<const T> norms, const T* delta, std::int64_t first_query,
                            std::int64_t first_key, const AttentionSizes& s, typename B::Scores& score_grad,
                            typename B::Scores* weights) {
  T scores[B::kRows][B::kRows], weight_grads[B::kRows][B::kRows];
  B::multiply(queries, keys, scores);
  B::multiply(grads, values, weight_grads);
  for (int i = 0; i < B::kRows; ++i) {
    int row = B::y() + i * B::kSide;
    std::int64_t query = first_query + row;
    for (int j = 0; j < B::kRows; ++j) {
      int column = B::x() + j * B::kSide;
      bool is_seen = query < s.queries && first_key + column < s.keys && first_key + column < s.visible(query);
      T weight = is_seen ? norms.weight(scores[i][j] * static_cast<T>(s.scale), query) : T(0);
      score_grad[row][column] = is_seen ? weight * (weight_grads[i][j] - delta[query]) : T(0);
      if (weights != nullptr) (*weights)[row][column] = weight;
    }
  }
}

template <class B, class T>
__global__ void attention_query_grads(AttentionGradInputs<T> in, Heads<T> out, AttentionSizes s) {
  wait_for_inputs();
  __shared__ typename B::Vectors queries, keys, values, grads;
  __shared__ typename B::Scores score_grad;
  std::int64_t tiles = (s.queries + B::kTile - 1) / B::kTile;
  std::int64_t head = blockIdx.x / tiles, first = blockIdx.x % tiles * B::kTile;
  std::int64_t count = s.queries - first < B::kTile ? s.queries - first : B::kTile;
  const HeadRows<const T> all_keys = in.k.rows(s, head), all_values = in.v.rows(s, head);
  B::load(queries, in.q.rows(s, head).from(first), count, s.width);
  B::load(grads, in.g.rows(s, head).from(first), count, s.width);
  T sums[B::kRows][B::kColumns] = {};
  std::int64_t end = s.visible(first + count - 1);
  for (std::int64_t at = 0; at < end; at += B::kTile) {
    B::load(keys, all_keys.from(at), s.keys - at, s.width);
    B::load(values, all_values.from(at), s.keys - at, s.width);
    __syncthreads();
    score_grads<B>(queries, keys, values, grads, in.norms.from(head * s.queries), in.delta + head * s.queries, first,
                   at, s, score_grad, static_cast<typename B::Scores*>(nullptr));
    __syncthreads();
    B::template add_product<false>(score_grad, keys, sums);
    __syncthreads();  // before the next keys
  }
  B::store(out.rows(s, head).from(first), sums, static_cast<T>(s.scale), count, s.width);
}

template <class B, class T>
__global__ void attention_key_grads(AttentionGradInputs<T> in, Heads<T> key_grad, Heads<T> value_grad,
                                    AttentionSizes s) {
  wait_for_inputs();
  __shared__ typename B::Vectors queries, keys, values, grads;
  __shared__ typename B::Scores score_grad, weights;
  std::int64_t tiles = (s.keys + B::kTile - 1) / B::kTile;
  std::int64_t head = blockIdx.x / tiles, first = blockIdx.x % tiles * B::kTile;
  std::int64_t count = s.keys - first < B::kTile ? s.keys - first : B::kTile;
  const HeadRows<const T> all_queries = in.q.rows(s, head), all_grads = in.g.rows(s, head);
  B::load(keys, in.k.rows(s, head).from(first), count, s.width);
  B::load(values, in.v.rows(s, head).from(first), count, s.width);
  T key_sums[B::kRows][B::kColumns] = {}, value_sums[B::kRows][B::kColumns] = {};
  for (std::int64_t at = s.first_query(first) / B::kTile * B::kTile; at < s.queries; at += B::kTile) {
    B::load(queries, all_queries.from(at), s.queries - at, s.width);
    B::load(grads, all_grads.from(at), s.queries - at, s.width);
    __syncthreads();
    score_grads<B>(queries, keys, values, grads, in.norms.from(head * s.queries), in.delta + head * s.queries, at,
                   first, s, score_grad, &weights);
    __syncthreads();
    B::template add_product<true>(weights, grads, value_sums);
    B::template add_product<true>(score_grad, queries, key_sums);
    __syncthreads();  // before the next queries
  }
  B::store(key_grad.rows(s, head).from(first), key_sums, static_cast<T>(s.scale), count, s.width);
  B::store(value_grad.rows(s, head).from(first), value_sums, T(1), count, s.width);
}

}  // namespace graphsink
