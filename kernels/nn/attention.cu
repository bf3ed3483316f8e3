// attention: softmax(scale * q k^T) v for each head, without the matrix of scores in memory: Dao, Fu, Ermon, Rudra & Re
// 2022, "FlashAttention", and Dao 2023, "FlashAttention-2". Forward keeps two numbers of each query, AttentionNorms;
// backward makes the scores again, once for the gradient of the queries and once for those of keys and values.
#include "kernels/nn/attention_cpu.h"
#include "kernels/nn/attention_kernels.h"

#include "graphsink/ops.h"
#include "kernels/support/dtype.h"

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

template <class T>
void attention_on(const CpuArgs& a, const AttentionSizes& s) {
  if (s.width == 0) return;  // the output is empty, and BLAS takes no such matrices
  auto* scores = static_cast<T*>(a.workspace());
  std::int64_t queries = s.queries * s.width, keys = s.keys * s.width;
  for (std::int64_t h = 0; h < s.heads; ++h) {
    attend_head(s, a.in<T>(0) + h * queries, a.in<T>(1) + h * keys, a.in<T>(2) + h * keys, a.out<T>(0) + h * queries,
                AttentionNorms<T>{a.out<T>(1), a.out<T>(2)}.from(h * s.queries), scores);
  }
}

template <class T>
void attention_grad_on(const CpuArgs& a, const AttentionSizes& s) {
  if (s.width == 0) return;
  auto* scratch = static_cast<T*>(a.workspace());
  std::int64_t queries = s.queries * s.width, keys = s.keys * s.width;
  for (std::int64_t h = 0; h < s.heads; ++h) {
    AttentionNorms<const T> norms{a.in<T>(4), a.in<T>(5)};
    AttentionGradHead<T> head{a.in<T>(0) + h * queries,  a.in<T>(1) + h * keys,     a.in<T>(2) + h * keys,
                              a.in<T>(3) + h * queries,  norms.from(h * s.queries), a.in<T>(6) + h * queries,
                              a.out<T>(0) + h * queries, a.out<T>(1) + h * keys,    a.out<T>(2) + h * keys};
    attend_head_grad(s, head, scratch);
  }
}

std::size_t cpu_workspace(DType dtype, std::size_t tiles) {
  return tiles * static_cast<std::size_t>(kCpuQueries * kCpuKeys) * size_of(dtype);
}

// --- the ops. Inputs: q, k, v, and backward also all three outputs and the gradient of the first.

template <class Args>
void forward(Args& a) {
  AttentionSizes s = sizes_of(a.in_type(0).shape, a.in_type(1).shape, a.template attrs<AttentionOptions>());
  a.in_type(0).dtype == DType::f32 ? attention_on<float>(a, s) : attention_on<double>(a, s);
}
template <class Args>
void backward(Args& a) {
  AttentionSizes s = sizes_of(a.in_type(0).shape, a.in_type(1).shape, a.template attrs<AttentionOptions>());
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
    return {nullptr, cpu_workspace(p.in(0).dtype, 1)};
  }
  p.in(0).dtype == DType::f32 ? load_attention<float>(p) : load_attention<double>(p);
  return {};
}
Prepared prepare_attention_grad(const PrepareArgs& p) {
  if (!p.cuda) {
    use_one_blas_thread();
    return {nullptr, cpu_workspace(p.in(0).dtype, 2)};
  }
  p.in(0).dtype == DType::f32 ? load_attention_grad<float>(p) : load_attention_grad<double>(p);
  return {nullptr, p.in(4).bytes()};
}

// The products of matrices, of the pairs of query and key that the mask leaves: two forwards, and five backwards, as
// the scores are computed again.
template <int products>
std::uint64_t attention_flops(const BodyArgs& a) {
  const AttentionSizes s = sizes_of(a.in_type(0).shape, a.in_type(1).shape, a.attrs<AttentionOptions>());
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < s.queries; ++i) pairs += s.visible(i);
  return 2 * products * static_cast<std::uint64_t>(s.heads * pairs * s.width);
}

const OpDef attention_grad_op{.name = "attention_grad",
                              .infer = infer_attention_grad,
                              .prepare = prepare_attention_grad,
                              .bodies = {backward<const CpuArgs>, backward<CudaArgs>},
                              .flops = attention_flops<5>};

std::vector<Value> attention_grad(const GradArgs& a) {
  Arg q(a.inputs[0], a.where);
  const auto& out = a.outputs;
  return emit(attention_grad_op, {q, a.inputs[1], a.inputs[2], out[0], out[1], out[2], a.grads[0]}, a.attrs);
}

const OpDef attention_op{.name = "attention",
                         .infer = infer_attention,
                         .prepare = prepare_attention,
                         .bodies = {forward<const CpuArgs>, forward<CudaArgs>},
                         .grad = attention_grad,
                         .flops = attention_flops<2>};

}  // namespace

Value attention(Arg q, Arg k, Arg v, AttentionOptions options, Placement placement) {
  return emit(attention_op, {q, k, v}, options, placement)[0];
}

}  // namespace graphsink
