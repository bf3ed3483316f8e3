// attention: softmax(scale * q k^T) v for each head, without the matrix of scores in memory: Dao, Fu, Ermon, Rudra & Re
// 2022, "FlashAttention", and Dao 2023, "FlashAttention-2". Forward keeps two numbers of each query, AttentionNorms;
// backward makes the scores again, once for the gradient of the queries and once for those of keys and values.
#include "kernels/nn/attention_cpu.h"
#include "kernels/nn/attention_kernels.h"

#include "graphsink/ops.h"
#include "kernels/support/dtype.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

AttentionSizes sizes_of(const Shape& q, const Shape& k, const AttentionOptions& options) {
  AttentionSizes s;
  s.heads = q[0] * q[1];
  s.queries = q[2];
  s.keys = k[2];
  s.width = q[3];
  s.is_causal = options.causal;
  s.scale =
      options.scale != 0 ? options.scale : 1 / math::sqrt(static_cast<double>(std::max<std::int64_t>(s.width, 1)));
  return s;
}

// --- CUDA

// The largest tile whose shared memory, of so many tiles of vectors and of scores, is within the 48 KiB that every
// launch may have.
constexpr int tile_for(std::size_t element, int width, int vectors, int scores) {
  auto fits = [=](int tile) {
    return element * static_cast<std::size_t>(tile * (vectors * (width + 1) + scores * (tile + 1))) <= 48 * 1024;
  };
  return fits(64) ? 64 : fits(32) ? 32 : fits(16) ? 16 : 8;
}
template <class T, int kWidth>
using ForwardBlock = AttentionBlock<T, kWidth, tile_for(sizeof(T), kWidth, 2, 1)>;
template <class T, int kWidth>
using QueryGradBlock = AttentionBlock<T, kWidth, tile_for(sizeof(T), kWidth, 4, 1)>;
template <class T, int kWidth>
using KeyGradBlock = AttentionBlock<T, kWidth, tile_for(sizeof(T), kWidth, 4, 2)>;

// f(width) with the width of vectors in shared memory as a constant.
template <class F>
void with_width(std::int64_t width, const F& f) {
  if (width <= 32) return f(std::integral_constant<int, 32>());
  if (width <= 64) return f(std::integral_constant<int, 64>());
  f(std::integral_constant<int, kMaxHeadWidth>());
}

template <class B>
Extent tiles_of(std::int64_t heads, std::int64_t rows) {
  return {static_cast<unsigned>(heads * ((rows + B::kTile - 1) / B::kTile))};
}

template <class T>
void attention_on(CudaArgs& a, const AttentionSizes& s) {
  with_width(s.width, [&](auto width) {
    using B = ForwardBlock<T, width()>;
    a.launch(attention_rows<B, T>, tiles_of<B>(s.heads, s.queries), Extent{B::kThreads}, 0, a.in<T>(0), a.in<T>(1),
             a.in<T>(2), a.out<T>(0), AttentionNorms<T>{a.out<T>(1), a.out<T>(2)}, s);
  });
}

template <class T>
void attention_grad_on(CudaArgs& a, const AttentionSizes& s) {
  T* delta = static_cast<T*>(a.workspace());
  std::int64_t rows = s.heads * s.queries;
  LaunchSize launch = launch_size(rows * kWarp);
  a.launch(attention_deltas<T>, launch.grid, launch.block, 0, a.in<T>(3), a.in<T>(6), delta, rows, s.width);
  AttentionGradInputs<T> in{a.in<T>(0), a.in<T>(1), a.in<T>(2), {a.in<T>(4), a.in<T>(5)}, a.in<T>(6), delta};
  with_width(s.width, [&](auto width) {
    using Q = QueryGradBlock<T, width()>;
    a.launch(attention_query_grads<Q, T>, tiles_of<Q>(s.heads, s.queries), Extent{Q::kThreads}, 0, in, a.out<T>(0), s);
    using K = KeyGradBlock<T, width()>;
    a.launch(attention_key_grads<K, T>, tiles_of<K>(s.heads, s.keys), Extent{K::kThreads}, 0, in, a.out<T>(1),
             a.out<T>(2), s);
  });
}

template <class T>
void load_attention(const PrepareArgs& p) {
  with_width(p.in(0).shape[3], [&](auto width) { load_kernel(p, attention_rows<ForwardBlock<T, width()>, T>); });
}
template <class T>
void load_attention_grad(const PrepareArgs& p) {
  load_kernel(p, attention_deltas<T>);
  with_width(p.in(0).shape[3], [&](auto width) {
    load_kernel(p, attention_query_grads<QueryGradBlock<T, width()>, T>);
    load_kernel(p, attention_key_grads<KeyGradBlock<T, width()>, T>);
  });
}

// --- CPU

// A tile is a few heads, at most kMostTiles tiles in all. Each has a part of the workspace.
constexpr std::int64_t kMostTiles = 16;
std::int64_t heads_of_tile(const AttentionSizes& s) {
  return std::max<std::int64_t>(1, (s.heads + kMostTiles - 1) / kMostTiles);
}
std::int64_t tiles_of(const AttentionSizes& s) {
  return std::max<std::int64_t>(1, (s.heads + heads_of_tile(s) - 1) / heads_of_tile(s));
}
AttentionSizes sizes_of(const BodyArgs& a) {
  return sizes_of(a.in_type(0).shape, a.in_type(1).shape, a.attrs<AttentionOptions>());
}
std::int64_t count_tiles(const BodyArgs& a) { return tiles_of(sizes_of(a)); }

constexpr std::int64_t kScores = kCpuQueries * kCpuKeys;  // in a tile of scores

template <class T>
void attend_tiles(const CpuArgs& a, const AttentionSizes& s, std::int64_t first, std::int64_t end) {
  if (s.width == 0) return;  // the output is empty, and BLAS takes no such matrices
  auto* scores = static_cast<T*>(a.workspace()) + first * kScores;
  std::int64_t queries = s.queries * s.width, keys = s.keys * s.width;
  for (std::int64_t h = first * heads_of_tile(s); h < std::min(s.heads, end * heads_of_tile(s)); ++h) {
    attend_head(s, a.in<T>(0) + h * queries, a.in<T>(1) + h * keys, a.in<T>(2) + h * keys, a.out<T>(0) + h * queries,
                AttentionNorms<T>{a.out<T>(1), a.out<T>(2)}.from(h * s.queries), scores);
  }
}

template <class T>
void attend_grad_tiles(const CpuArgs& a, const AttentionSizes& s, std::int64_t first, std::int64_t end) {
  if (s.width == 0) return;
  auto* scratch = static_cast<T*>(a.workspace()) + first * 2 * kScores;
  std::int64_t queries = s.queries * s.width, keys = s.keys * s.width;
  for (std::int64_t h = first * heads_of_tile(s); h < std::min(s.heads, end * heads_of_tile(s)); ++h) {
    AttentionNorms<const T> norms{a.in<T>(4), a.in<T>(5)};
    AttentionGradHead<T> head{a.in<T>(0) + h * queries,  a.in<T>(1) + h * keys,     a.in<T>(2) + h * keys,
                              a.in<T>(3) + h * queries,  norms.from(h * s.queries), a.in<T>(6) + h * queries,
                              a.out<T>(0) + h * queries, a.out<T>(1) + h * keys,    a.out<T>(2) + h * keys};
    attend_head_grad(s, head, scratch);
  }
}

std::size_t cpu_workspace(const PrepareArgs& p, std::int64_t scores_of_tile) {
  const AttentionSizes s = sizes_of(p.in(0).shape, p.in(1).shape, p.attrs.as<AttentionOptions>());
  return static_cast<std::size_t>(tiles_of(s) * scores_of_tile * kScores) * size_of(p.in(0).dtype);
}

void run_forward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const AttentionSizes s = sizes_of(a);
  a.in_type(0).dtype == DType::f32 ? attend_tiles<float>(a, s, first, end) : attend_tiles<double>(a, s, first, end);
}
void run_backward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const AttentionSizes s = sizes_of(a);
  a.in_type(0).dtype == DType::f32 ? attend_grad_tiles<float>(a, s, first, end)
                                   : attend_grad_tiles<double>(a, s, first, end);
}
constexpr Tiles kForwardTiles{count_tiles, run_forward_tiles}, kBackwardTiles{count_tiles, run_backward_tiles};

// --- the ops. Inputs: q, k, v, and backward also all three outputs and the gradient of the first.

void forward(CudaArgs& a) {
  AttentionSizes s = sizes_of(a);
  a.in_type(0).dtype == DType::f32 ? attention_on<float>(a, s) : attention_on<double>(a, s);
}
void backward(CudaArgs& a) {
  AttentionSizes s = sizes_of(a);
  a.in_type(0).dtype == DType::f32 ? attention_grad_on<float>(a, s) : attention_grad_on<double>(a, s);
}

void infer_attention(InferArgs& a) {
  a.expect_inputs(3);
  a.expect_same_dtype(3);
  const Shape &q = a.in(0).shape, &k = a.in(1).shape, &v = a.in(2).shape;
  expect_dtype<float, double>(a, 0);
  if (q.rank() != 4 || k.rank() != 4) a.fail("q, k, v are not of rank 4", "reshape() to [batch, heads, time, width]");
  if (k != v || q[0] != k[0] || q[1] != k[1] || q[3] != k[3])
    a.fail("q, k, v do not fit together", "let q and k differ in time alone, and k and v not at all");
  if (q[3] > kMaxHeadWidth)
    a.fail("heads are wider than " + std::to_string(kMaxHeadWidth), "use more heads, or matmul() and softmax()");
  a.out(a.in(0).dtype, q);
  a.out(a.in(0).dtype, {q[0], q[1], q[2]});
  a.out(a.in(0).dtype, {q[0], q[1], q[2]});
}

void infer_attention_grad(InferArgs& a) {
  for (int i = 0; i < 3; ++i) a.out(a.in(i).dtype, a.in(i).shape);
}

Prepared prepare_attention(const PrepareArgs& p) {
  if (!p.cuda) {
    use_one_blas_thread();
    return {nullptr, cpu_workspace(p, 1)};
  }
  p.in(0).dtype == DType::f32 ? load_attention<float>(p) : load_attention<double>(p);
  return {};
}
Prepared prepare_attention_grad(const PrepareArgs& p) {
  if (!p.cuda) {
    use_one_blas_thread();
    return {nullptr, cpu_workspace(p, 2)};
  }
  p.in(0).dtype == DType::f32 ? load_attention_grad<float>(p) : load_attention_grad<double>(p);
  return {nullptr, p.in(4).bytes()};
}

// The products of matrices, of the pairs of query and key that the mask leaves: two forwards, and five backwards, as
// the scores are computed again.
template <int products>
std::uint64_t attention_flops(const BodyArgs& a) {
  const AttentionSizes s = sizes_of(a);
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < s.queries; ++i) pairs += s.visible(i);
  return 2 * products * static_cast<std::uint64_t>(s.heads * pairs * s.width);
}

const OpDef attention_grad_op{.name = "attention_grad",
                              .infer = infer_attention_grad,
                              .traits = {.kernels_wait = true},
                              .prepare = prepare_attention_grad,
                              .bodies = {run_all_tiles<kBackwardTiles>, backward},
                              .tiles = kBackwardTiles,
                              .flops = attention_flops<5>};

std::vector<Value> attention_grad(const GradArgs& a) {
  Arg q(a.inputs[0], a.where);
  const auto& out = a.outputs;
  return emit(attention_grad_op, {q, a.inputs[1], a.inputs[2], out[0], out[1], out[2], a.grads[0]}, a.attrs);
}

const OpDef attention_op{.name = "attention",
                         .infer = infer_attention,
                         .traits = {.kernels_wait = true},
                         .prepare = prepare_attention,
                         .bodies = {run_all_tiles<kForwardTiles>, forward},
                         .tiles = kForwardTiles,
                         .grad = attention_grad,
                         .flops = attention_flops<2>};

}  // namespace

Value attention(Arg q, Arg k, Arg v, AttentionOptions options, Placement placement) {
  return emit(attention_op, {q, k, v}, options, placement)[0];
}

}  // namespace graphsink
