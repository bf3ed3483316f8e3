// matmul: products of matrices, or of batches of them.
#include "kernels/linalg/matmul.h"

#include "graphsink/ops.h"
#include "kernels/file_ops.h"
#include "kernels/linalg/epilogue.h"
#include "kernels/runtime/fusion_rules.h"
#include "kernels/support/product.h"
#include "kernels/support/reduce_ops.h"
#include "kernels/support/tiles.h"

namespace graphsink {
namespace {

struct MatmulAttrs {
  bool transpose_a = false, transpose_b = false;
  bool tf32 = false;
  std::optional<DType> out = {};
  // The result is the sum of the products of all batches, [..., k, m]^T x [..., k, n] -> [m, n]: one product, with all
  // rows in k. The gradient of a plain matrix.
  bool sums_batches = false;
  static auto fields(auto& s) {
    return std::tie("transpose_a", s.transpose_a, "transpose_b", s.transpose_b, "tf32", s.tf32, "out", s.out,
                    "sums_batches", s.sums_batches);
  }
};

// Precondition: two matrices at least.
Shape leading(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(shape.rank() - 2))); }

MatrixProduct product_of(const Shape& lhs, const Shape& rhs, const MatmulAttrs& attrs) {
  MatrixProduct p;
  p.m = lhs[attrs.transpose_a ? -1 : -2];
  p.k = lhs[attrs.transpose_a ? -2 : -1];
  p.n = rhs[attrs.transpose_b ? -2 : -1];
  p.transpose_a = attrs.transpose_a;
  p.transpose_b = attrs.transpose_b;
  p.tf32 = attrs.tf32;
  return p;
}

void infer_matmul(InferArgs& a) {
  a.expect_inputs(2);
  a.expect_same_dtype(2);
  const auto& attrs = a.attrs<MatmulAttrs>();
  expect_dtype<float, double, half, bfloat16>(a, 0);
  DType dtype = a.in(0).dtype, out_dtype = attrs.out.value_or(dtype);
  if (out_dtype != dtype && !(out_dtype == DType::f32 && is_half(dtype)))
    a.fail("has no result of " + std::string(to_string(out_dtype)), "cast() the result");
  const Shape &lhs = a.in(0).shape, &rhs = a.in(1).shape;
  if (lhs.rank() < 2 || rhs.rank() < 2) a.fail("takes two matrices, or batches of them", "reshape() the operands");
  MatrixProduct p = product_of(lhs, rhs, attrs);
  if (rhs[attrs.transpose_b ? -1 : -2] != p.k) {
    a.fail(std::string("inner dimensions differ") + (attrs.transpose_a ? ", a transposed" : "") +
               (attrs.transpose_b ? ", b transposed" : ""),
           "make the columns of the first the rows of the second");
  }
  if (attrs.sums_batches && leading(lhs) != leading(rhs)) a.fail("the batches differ", "make them equal");
  Shape out;
  if (!attrs.sums_batches) {
    out = broadcast_shape(a, leading(lhs), leading(rhs), "the batches do not broadcast",
                          "make the axes before the last two equal or 1");
  }
  out.push_back(p.m);
  out.push_back(p.n);
  a.out(out_dtype, out);
}

MatrixProduct describe(const PrepareArgs& args) {
  const auto& attrs = args.attrs.as<MatmulAttrs>();
  const Shape &lhs = args.in(0).shape, &rhs = args.in(1).shape;
  MatrixProduct p = product_of(lhs, rhs, attrs);
  p.dtype = args.in(0).dtype;
  p.f32_out = args.out(0).dtype != p.dtype;
  if (attrs.sums_batches) {
    p.k *= leading(lhs).size();
    return p;
  }
  if (!attrs.transpose_a && leading(rhs).size() == 1) {  // all rows are those of one matrix
    p.m *= leading(lhs).size();
    return p;
  }
  Shape batches = leading(args.out(0).shape);
  p.batches.size = batches.size();
  std::int64_t strides[3][Shape::kMaxRank] = {};
  broadcast_strides(leading(lhs), batches, strides[0]);
  broadcast_strides(leading(rhs), batches, strides[1]);
  broadcast_strides(batches, batches, strides[2]);
  for (int d = 0; d < batches.rank() && p.batches.size > 0; ++d)
    append(p.batches, batches[d], {strides[0][d] * p.m * p.k, strides[1][d] * p.k * p.n, strides[2][d] * p.m * p.n});
  return p;
}

Prepared prepare_matmul_op(const PrepareArgs& p) {
  PreparedProduct prepared = prepare_product(p, describe(p));
  std::size_t workspace = prepared.workspace;
  return {std::make_shared<PreparedProduct>(std::move(prepared)), workspace};
}

void matmul_cuda(CudaArgs& a) {
  run_product(a, a.local<PreparedProduct>(), a.in<void>(0), a.in<void>(1), a.out<void>(0), a.workspace());
}

std::int64_t count_tiles(const BodyArgs& a) { return count_product_tiles(a.local<PreparedProduct>().product); }

// Calls then(tile) behind each tile of the product.
template <class Then>
void run_tiles(const CpuArgs& a, void* out, std::int64_t first, std::int64_t end, const Then& then) {
  const auto& prepared = a.local<PreparedProduct>();
  for (std::int64_t t = first; t < end; ++t) {
    const ProductTile tile = product_tile(prepared.product, t);
    run_product_tile(prepared, tile, a.in<void>(0), a.in<void>(1), out, a.workspace());
    then(tile);
  }
}

void run_matmul_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  run_tiles(a, a.out<void>(0), first, end, [](const ProductTile&) {});
}
constexpr Tiles kMatmulTiles{count_tiles, run_matmul_tiles};

Value multiply(const Arg& a, const Arg& b, const MatmulAttrs& attrs, Placement placement = {});

// Transposes go into the products, so that no gradient needs a transposed copy.
std::vector<Value> matmul_grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<MatmulAttrs>();
  Arg a(args.inputs[0], args.where), b(args.inputs[1], args.where);
  Value gradient = args.grads[0];
  if (gradient.dtype() != args.inputs[0].dtype()) gradient = cast(Arg(gradient, args.where), args.inputs[0].dtype());
  Arg g(gradient, args.where);
  auto times = [&](const Arg& x, const Arg& y, bool transpose_x, bool transpose_y) {
    return multiply(x, y, {transpose_x, transpose_y, attrs.tf32});
  };
  std::vector<Value> result(2);
  if (attrs.sums_batches) {
    if (args.needed[0]) result[0] = times(b, g, false, true);
    if (args.needed[1]) result[1] = times(a, g, false, false);
    return result;
  }
  auto [transpose_a, transpose_b, tf32, out, sums_batches] = attrs;
  MatmulAttrs summed{.transpose_a = true, .tf32 = tf32, .sums_batches = true};
  if (args.needed[0]) {
    Value da = transpose_a ? times(b, g, transpose_b, true) : times(g, b, false, !transpose_b);
    result[0] = sum_to(args, da, args.inputs[0], 2);
  }
  if (args.needed[1]) {
    bool is_plain = !transpose_a && args.inputs[0].shape().rank() > 2 && args.inputs[1].shape().rank() == 2;
    if (is_plain) {
      result[1] = transpose_b ? multiply(g, a, summed) : multiply(a, g, summed);
    } else {
      Value db = transpose_b ? times(g, a, true, transpose_a) : times(a, g, !transpose_a, false);
      result[1] = sum_to(args, db, args.inputs[1], 2);
    }
  }
  return result;
}

// --- products that take over what follows them; outputs are the result, then, where others need it, what the
// activation was applied to.

template <class T>
EpilogueData<T> epilogue_of(const BodyArgs& a, bool has_bias) {
  const Shape& shape = a.out_type(0).shape;
  T* out = a.out<T>(0);
  T* kept = a.outputs() > 1 ? a.out<T>(1) : nullptr;
  const std::int64_t columns = shape[-1];
  return {kept ? kept : out, has_bias ? a.in<T>(2) : nullptr, kept, out, shape.size() / columns, columns, columns};
}

template <class Activation, bool has_bias>
void fused_cuda(CudaArgs& a) {
  run_product(a, a.local<PreparedProduct>(), a.in<void>(0), a.in<void>(1), a.out<void>(a.outputs() - 1), a.workspace());
  if (a.out_type(0).shape.size() == 0) return;
  for_dtype<float, double, half, bfloat16>(
      a.out_type(0).dtype, [&]<class T>() { run_epilogue<Activation>(epilogue_of<T>(a, has_bias), a); });
}

// Bias and activation of a tile of the product are computed while the tile is in the cache.
template <class Activation, bool has_bias>
void run_fused_tiles(const CpuArgs& a, std::int64_t first, std::int64_t end) {
  const std::int64_t rows_of_batch = a.local<PreparedProduct>().product.m;
  run_tiles(a, a.out<void>(a.outputs() - 1), first, end, [&](const ProductTile& tile) {
    if (a.out_type(0).shape.size() == 0) return;
    for_dtype<float, double, half, bfloat16>(a.out_type(0).dtype, [&]<class T>() {
      EpilogueData<T> e = epilogue_of<T>(a, has_bias);
      const std::int64_t first_row = tile.first_batch * rows_of_batch + tile.first_row;
      const std::int64_t begin = first_row * e.pitch + tile.first_column;
      e.product += begin;
      e.out += begin;
      if (e.sum) e.sum += begin;
      if (e.bias) e.bias += tile.first_column;
      e.rows = (tile.end_batch - 1) * rows_of_batch + tile.end_row - first_row;
      e.columns = tile.end_column - tile.first_column;
      run_epilogue<Activation>(e, a);
    });
  });
}
template <class Activation, bool has_bias>
constexpr Tiles kFusedTiles{count_tiles, run_fused_tiles<Activation, has_bias>};

template <class Activation>
Prepared prepare_fused(const PrepareArgs& p) {
  for_dtype<float, double, half, bfloat16>(p.out(0).dtype,
                                           [&]<class T>() { load_kernel(p, finish_product<Activation, T>); });
  return prepare_matmul_op(p);
}

// Floating-point operations of the product alone.
std::uint64_t matmul_flops(const BodyArgs& a) {
  const auto& attrs = a.attrs<MatmulAttrs>();
  const Shape& lhs = a.in_type(0).shape;
  const MatrixProduct p = product_of(lhs, a.in_type(1).shape, attrs);
  if (p.m == 0) return 0;
  const std::int64_t terms = attrs.sums_batches ? lhs.size() / p.m : p.k;  // terms of each element of the result
  return 2 * static_cast<std::uint64_t>(a.out_type(0).shape.size() * terms);
}

// Emitted by no one: the planner puts it in place of ops whose types are known.
template <class Activation, bool has_bias>
constexpr OpDef fused_op(std::string_view name) {
  return {.name = name,
          .prepare = prepare_fused<Activation>,
          .bodies = {kFusedTiles<Activation, has_bias>, fused_cuda<Activation, has_bias>},
          .flops = matmul_flops};
}

struct FusedActivation {
  Scalar next;  // function of the op that follows
  OpDef plain, with_bias;
};
constexpr FusedActivation kActivations[] = {
    {Scalar::relu, fused_op<Relu, false>("matmul_relu"), fused_op<Relu, true>("matmul_bias_relu")},
    {Scalar::gelu, fused_op<Gelu, false>("matmul_gelu"), fused_op<Gelu, true>("matmul_bias_gelu")},
    {Scalar::silu, fused_op<Silu, false>("matmul_silu"), fused_op<Silu, true>("matmul_bias_silu")},
    {Scalar::tanh, fused_op<Tanh, false>("matmul_tanh"), fused_op<Tanh, true>("matmul_bias_tanh")},
    {Scalar::sigmoid, fused_op<Sigmoid, false>("matmul_sigmoid"), fused_op<Sigmoid, true>("matmul_bias_sigmoid")}};

template <bool has_bias>
Fused fuse_activation(const FuseArgs& a) {
  for (const FusedActivation& activation : kActivations)
    if (a.next.elements.scalar == activation.next)
      return {has_bias ? &activation.with_bias : &activation.plain, a.attrs};
  return {};
}
constexpr OpDef matmul_bias_op = fused_op<NoActivation, true>("matmul_bias");

// A vector that is added to every row.
bool is_bias(const FuseArgs& a) {
  if (a.next.elements.scalar != Scalar::add) return false;
  const Shape& bias = a.next_inputs[static_cast<std::size_t>(1 - a.operand)].shape;
  return bias.rank() > 0 && bias.rank() <= a.output.shape.rank() && bias[-1] == a.output.shape[-1] &&
         bias.size() == bias[-1];
}

// Refuses where others use the product without the bias, because that is nowhere then.
Fused fuse_bias(const FuseArgs& a) { return is_bias(a) && !a.is_kept ? Fused{&matmul_bias_op, a.attrs} : Fused{}; }

}  // namespace

const OpDef matmul_op{.name = "matmul",
                      .infer = infer_matmul,
                      .traits = {.costly = true},
                      .prepare = prepare_matmul_op,
                      .bodies = {kMatmulTiles, matmul_cuda},
                      .grad = matmul_grad,
                      .flops = matmul_flops};

const FusionRule matmul_rules[] = {{.op = &matmul_op, .fuse = fuse_bias},
                                   {.op = &matmul_op, .fuse = fuse_activation<false>},
                                   {.op = &matmul_bias_op, .fuse = fuse_activation<true>}};

bool is_rows_by_matrix(const Attrs& attrs, const TensorType& a, const TensorType& b) {
  const auto& matmul = attrs.as<MatmulAttrs>();
  return !matmul.transpose_a && !matmul.sums_batches && a.shape.rank() >= 2 && b.shape.rank() == 2;
}

Attrs unrounded(const Attrs& attrs) {
  MatmulAttrs product = attrs.as<MatmulAttrs>();
  product.out = DType::f32;
  return product;
}

namespace {

Value multiply(const Arg& a, const Arg& b, const MatmulAttrs& attrs, Placement placement) {
  return emit(matmul_op, {a, b}, attrs, placement)[0];
}

}  // namespace

Value matmul(Arg a, Arg b, MatmulOptions options, Placement placement) {
  return multiply(a, b, {options.transpose_a, options.transpose_b, options.tf32, options.out}, placement);
}

std::span<const FileOp> matmul_file_ops() {
  static constexpr FileOp ops[] = {file_op<MatmulAttrs>(matmul_op)};
  return ops;
}

}  // namespace graphsink
