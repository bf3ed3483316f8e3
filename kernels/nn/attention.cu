// attention: softmax(scale * q k^T) v for each head, without the matrix of scores in memory: Dao, Fu, Ermon, Rudra & Re
// 2022, "FlashAttention", and Dao 2023, "FlashAttention-2". Forward keeps two numbers of each query, AttentionNorms;
// backward makes the scores again, once for the gradient of the queries and once for those of keys and values.
#include "base/at.h"
#include "kernels/file_ops.h"
#include "kernels/nn/attention_cpu.h"
#include "kernels/nn/attention_kernels.h"

#include "graphsink/ops.h"
#include "kernels/runtime/fusion_rules.h"
#include "kernels/support/dtype.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

AttentionSizes sizes_of(const Shape& q, const Shape& k, const AttentionOptions& options) {
  AttentionSizes s;
  s.heads = q[0] * q[1];
  s.heads_of_batch = std::max<std::int64_t>(q[1], 1);
  s.queries = q[2];
  s.keys = k[2];
  s.width = q[3];
  s.is_causal = options.causal;
  s.scale =
      options.scale != 0 ? options.scale : 1 / math::sqrt(static_cast<double>(std::max<std::int64_t>(s.width, 1)));
  return s;
}

// Attributes of the ops whose operands lie in other tensors.
struct StridedAttention {
  AttentionOptions options;
  std::vector<Strided> operands;  // inputs, then outputs, of the op that takes whole tensors
  static auto fields(auto& s) { return std::tie("options", s.options, "operands", s.operands); }
};

// Data from prepare() for the bodies: sizes, and where the operands lie.
constexpr int kMostOperands = 10;
struct AttentionLayout {
  AttentionSizes sizes;
  HeadStrides operands[kMostOperands];  // inputs, then outputs, of the op that takes whole tensors
};

// The first three axes of q, k, v and the like; the norms have no others.
HeadStrides head_strides(const Strided& operand, const AttentionSizes& s) {
  return {.tensor = operand.tensor,
          .first = operand.first,
          .batch = operand.strides[0],
          .head = operand.strides[1],
          // The stride of an axis with one element says nothing, but BLAS wants rows that do not overlap.
          .row = std::max(operand.strides[2], s.width)};
}

std::shared_ptr<AttentionLayout> layout_of(const PrepareArgs& p) {
  auto layout = std::make_shared<AttentionLayout>();
  if (const auto* strided = p.attrs.get_if<StridedAttention>()) {
    layout->sizes = sizes_of(strided->operands[0].shape, strided->operands[1].shape, strided->options);
    for (std::size_t i = 0; i < strided->operands.size(); ++i)
      layout->operands[i] = head_strides(strided->operands[i], layout->sizes);
    return layout;
  }
  layout->sizes = sizes_of(p.in(0).shape, p.in(1).shape, p.attrs.as<AttentionOptions>());
  for (int i = 0; i < static_cast<int>(p.types.size()); ++i) {
    const int tensor = i < p.inputs ? i : i - p.inputs;
    layout->operands[i] = head_strides(Strided::whole(p.types[at(i)].shape, tensor), layout->sizes);
  }
  return layout;
}

// Tensors that the bodies read and write. Operands are numbered as in AttentionLayout.
class AttentionArgs {
 public:
  AttentionArgs(const BodyArgs& args, int inputs)
      : args_(args), layout_(args.local<AttentionLayout>()), inputs_(inputs) {}

  const AttentionSizes& sizes() const { return layout_.sizes; }
  template <class T>
  Heads<const T> in(int i) const {
    return {args_.in<T>(layout_.operands[i].tensor), layout_.operands[i]};
  }
  template <class T>
  Heads<T> out(int i) const {
    const HeadStrides& strides = layout_.operands[inputs_ + i];
    return {args_.out<T>(strides.tensor), strides};
  }
  // Norms are always whole.
  template <class T>
  const T* whole_in(int i) const {
    return args_.in<T>(layout_.operands[i].tensor);
  }
  template <class T>
  T* whole_out(int i) const {
    return args_.out<T>(layout_.operands[inputs_ + i].tensor);
  }

 private:
  const BodyArgs& args_;
  const AttentionLayout& layout_;
  int inputs_;
};
constexpr int kInputs = 3, kGradInputs = 7;

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
void attention_on(CudaArgs& a) {
  const AttentionArgs args(a, kInputs);
  const AttentionSizes& s = args.sizes();
  with_width(s.width, [&](auto width) {
    using B = ForwardBlock<T, width()>;
    a.launch(attention_rows<B, T>, tiles_of<B>(s.heads, s.queries), Extent{B::kThreads}, 0, args.in<T>(0),
             args.in<T>(1), args.in<T>(2), args.out<T>(0),
             AttentionNorms<T>{args.whole_out<T>(1), args.whole_out<T>(2)}, s);
  });
}

template <class T>
void attention_grad_on(CudaArgs& a) {
  const AttentionArgs args(a, kGradInputs);
  const AttentionSizes& s = args.sizes();
  T* delta = static_cast<T*>(a.workspace());
  a.launch(attention_deltas<T>, launch_size(s.heads * s.queries * kWarp), args.in<T>(3), args.in<T>(6), delta, s);
  AttentionGradInputs<T> in{args.in<T>(0), args.in<T>(1), args.in<T>(2), {args.whole_in<T>(4), args.whole_in<T>(5)},
                            args.in<T>(6), delta};
  with_width(s.width, [&](auto width) {
    using Q = QueryGradBlock<T, width()>;
    a.launch(attention_query_grads<Q, T>, tiles_of<Q>(s.heads, s.queries), Extent{Q::kThreads}, 0, in, args.out<T>(0),
             s);
    using K = KeyGradBlock<T, width()>;
    a.launch(attention_key_grads<K, T>, tiles_of<K>(s.heads, s.keys), Extent{K::kThreads}, 0, in, args.out<T>(1),
             args.out<T>(2), s);
  });
}

template <class T>
void load_attention(const PrepareArgs& p, std::int64_t head_width) {
  with_width(head_width, [&](auto width) { load_kernel(p, attention_rows<ForwardBlock<T, width()>, T>); });
}
template <class T>
void load_attention_grad(const PrepareArgs& p, std::int64_t head_width) {
  load_kernel(p, attention_deltas<T>);
  with_width(head_width, [&](auto width) {
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
std::int64_t count_tiles(const BodyArgs& a) { return tiles_of(a.local<AttentionLayout>().sizes); }

constexpr std::int64_t kScores = kCpuQueries * kCpuKeys;  // in a tile of scores

template <class T>
void attend_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const AttentionArgs args(a, kInputs);
  const AttentionSizes& s = args.sizes();
  if (s.width == 0) return;  // the output is empty, and BLAS takes no such matrices
  auto* scores = static_cast<T*>(a.workspace()) + first * kScores;
  const Heads<const T> q = args.in<T>(0), k = args.in<T>(1), v = args.in<T>(2);
  const Heads<T> out = args.out<T>(0);
  const AttentionNorms<T> norms{args.whole_out<T>(1), args.whole_out<T>(2)};
  for (std::int64_t h = first * heads_of_tile(s); h < std::min(s.heads, end * heads_of_tile(s)); ++h)
    attend_head(s, q.rows(s, h), k.rows(s, h), v.rows(s, h), out.rows(s, h), norms.from(h * s.queries), scores);
}

template <class T>
void attend_grad_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const AttentionArgs args(a, kGradInputs);
  const AttentionSizes& s = args.sizes();
  if (s.width == 0) return;
  auto* scratch = static_cast<T*>(a.workspace()) + first * 2 * kScores;
  const AttentionNorms<const T> norms{args.whole_in<T>(4), args.whole_in<T>(5)};
  for (std::int64_t h = first * heads_of_tile(s); h < std::min(s.heads, end * heads_of_tile(s)); ++h) {
    attend_head_grad(
        s,
        AttentionGradHead<T>{args.in<T>(0).rows(s, h), args.in<T>(1).rows(s, h), args.in<T>(2).rows(s, h),
                             args.in<T>(3).rows(s, h), norms.from(h * s.queries), args.in<T>(6).rows(s, h),
                             args.out<T>(0).rows(s, h), args.out<T>(1).rows(s, h), args.out<T>(2).rows(s, h)},
        scratch);
  }
}

void run_forward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  a.in_type(0).dtype == DType::f32 ? attend_tiles<float>(a, first, end) : attend_tiles<double>(a, first, end);
}
void run_backward_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  a.in_type(0).dtype == DType::f32 ? attend_grad_tiles<float>(a, first, end) : attend_grad_tiles<double>(a, first, end);
}
constexpr Tiles kForwardTiles{count_tiles, run_forward_tiles}, kBackwardTiles{count_tiles, run_backward_tiles};

// --- the ops. Inputs: q, k, v, and backward also all three outputs and the gradient of the first.

void forward(CudaArgs& a) { a.in_type(0).dtype == DType::f32 ? attention_on<float>(a) : attention_on<double>(a); }
void backward(CudaArgs& a) {
  a.in_type(0).dtype == DType::f32 ? attention_grad_on<float>(a) : attention_grad_on<double>(a);
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

// Inputs: q, k and v, what the op made of them, and the gradient of the first of these.
void infer_attention_grad(InferArgs& a) {
  a.expect_inputs(7);
  const std::vector<TensorType> made = a.outputs_of(infer_attention, {a.in(0), a.in(1), a.in(2)});
  for (int i = 0; i < 3; ++i) a.expect_input(3 + i, made[static_cast<std::size_t>(i)]);
  a.expect_input(6, made[0]);
  for (int i = 0; i < 3; ++i) a.out(a.in(i).dtype, a.in(i).shape);
}

// The scratch memory of the CPU bodies.
std::size_t cpu_workspace(const PrepareArgs& p, const AttentionSizes& s, std::int64_t scores_of_tile) {
  return static_cast<std::size_t>(tiles_of(s) * scores_of_tile * kScores) * size_of(p.in(0).dtype);
}

Prepared prepare_attention(const PrepareArgs& p) {
  auto layout = layout_of(p);
  const AttentionSizes& s = layout->sizes;
  if (!p.cuda) {
    use_one_blas_thread();
    return {layout, cpu_workspace(p, s, 1)};
  }
  p.in(0).dtype == DType::f32 ? load_attention<float>(p, s.width) : load_attention<double>(p, s.width);
  return {layout};
}
Prepared prepare_attention_grad(const PrepareArgs& p) {
  auto layout = layout_of(p);
  const AttentionSizes& s = layout->sizes;
  if (!p.cuda) {
    use_one_blas_thread();
    return {layout, cpu_workspace(p, s, 2)};
  }
  p.in(0).dtype == DType::f32 ? load_attention_grad<float>(p, s.width) : load_attention_grad<double>(p, s.width);
  return {layout, static_cast<std::size_t>(s.heads * s.queries) * size_of(p.in(0).dtype)};
}

// The products of matrices, of the pairs of query and key that the mask leaves: two forwards, and five backwards, as
// the scores are computed again.
template <int products>
std::uint64_t attention_flops(const BodyArgs& a) {
  const AttentionSizes& s = a.local<AttentionLayout>().sizes;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < s.queries; ++i) pairs += s.visible(i);
  return 2 * products * static_cast<std::uint64_t>(s.heads * pairs * s.width);
}

constexpr OpDef forward_op(std::string_view name) {
  return {.name = name,
          .traits = {.costly = true, .kernels_wait = true},
          .prepare = prepare_attention,
          .bodies = {kForwardTiles, forward},
          .flops = attention_flops<2>};
}
constexpr OpDef backward_op(std::string_view name) {
  return {.name = name,
          .traits = {.costly = true, .kernels_wait = true},
          .prepare = prepare_attention_grad,
          .bodies = {kBackwardTiles, backward},
          .flops = attention_flops<5>};
}

// The ops whose operands lie in other tensors. Emitted by no one: the planner puts them in place of the others.
constexpr OpDef strided_attention_op = forward_op("strided_attention");
constexpr OpDef strided_attention_grad_op = backward_op("strided_attention_grad");
template <const OpDef& op>
Fused strided_attention(const StridedArgs& a) {
  return {&op, StridedAttention{a.attrs.as<AttentionOptions>(), {a.operands.begin(), a.operands.end()}}};
}

// The softmax of the scores, in memory; a query that sees no key has zeros.
Value weights_of(const Value& q, const Value& k, const Arg& scale, bool is_causal) {
  const Value scores = matmul(q, k, {.transpose_b = true}) * scale;
  if (!is_causal) return softmax(scores);
  const Value ahead = dim(k, 2) - dim(q, 2);
  const Value is_seen = arange(k, 2) <= unsqueeze(arange(q, 2), 1) + ahead;
  return where(is_seen, softmax(where(is_seen, scores, -INFINITY)), 0.0);
}
// The gradients of q, k and v from these and that of the result alone, by ops that have gradients.
std::vector<Value> grad_formula(std::span<const Value> in, const Attrs& attrs) {
  const auto& options = attrs.as<AttentionOptions>();
  const Value &q = in[0], &k = in[1], &v = in[2], &g = in.back();
  const Value width = maximum(cast(dim(q, 3), q.dtype()), 1.0);
  const Arg scale = options.scale != 0 ? Arg(options.scale) : Arg(rsqrt(width));
  const Value weights = weights_of(q, k, scale, options.causal);
  const Value of_weights = matmul(g, v, {.transpose_b = true});
  const Value of_scores = weights * (of_weights - sum(of_weights * weights, {-1}, {.keep_axes = true})) * scale;
  return {matmul(of_scores, k), matmul(of_scores, q, {.transpose_a = true}), matmul(weights, g, {.transpose_a = true})};
}

constexpr OpDef attention_grad_op = [] {
  OpDef op = backward_op("attention_grad");
  op.infer = infer_attention_grad;
  op.grad = grad_formula;
  return op;
}();

std::vector<Value> attention_grad(const GradArgs& a) {
  Arg q(a.inputs[0], a.where);
  const auto& out = a.outputs;
  return emit(attention_grad_op, {q, a.inputs[1], a.inputs[2], out[0], out[1], out[2], a.grads[0]}, a.attrs);
}

constexpr OpDef attention_op = [] {
  OpDef op = forward_op("attention");
  op.infer = infer_attention;
  op.grad = attention_grad;
  return op;
}();

}  // namespace

const FusionRule attention_rules[] = {
    {.op = &attention_op, .strided = strided_attention<strided_attention_op>},
    {.op = &attention_grad_op, .strided = strided_attention<strided_attention_grad_op>}};

Value attention(Arg q, Arg k, Arg v, AttentionOptions options, Placement placement) {
  return emit(attention_op, {q, k, v}, options, placement)[0];
}

std::span<const FileOp> attention_file_ops() {
  static constexpr FileOp ops[] = {file_op<AttentionOptions>(attention_op),
                                   file_op<AttentionOptions>(attention_grad_op)};
  return ops;
}

}  // namespace graphsink
